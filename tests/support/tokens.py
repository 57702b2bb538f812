"""A provider with OAuth 2: tokens that expire, refresh tokens that serve once, one page to read."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

from support.httpserver import Reply, Seen, json_reply

EXPIRED = 1  # long ago, by every clock
LASTS_SECONDS = 3600


class TokenServer:
    """Answers `/token` and `/me`; hand `answer` to an `http_server`."""

    def __init__(self) -> None:
        self.refreshes = 0
        self.asked = asyncio.Event()
        self.good_access = "access-0"
        self.good_refresh = "refresh-0"
        self.failure: Reply | None = None
        self.delay = 0.0
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    def credentials(self, url: str, **values: Any) -> dict[str, Any]:
        """Return credentials whose access token has expired."""
        return {
            "access_token": "access-expired",
            "refresh_token": self.good_refresh,
            "expires_at": EXPIRED,
            "token_url": f"{url}/token",
            "client_id": "app",
            "client_secret": "canary-client-secret",
            **values,
        }

    async def answer(self, seen: Seen) -> Reply:
        if seen.path == "/token":
            return await self._token(parse_qs(seen.body.decode()))
        if seen.headers.get("authorization") == f"Bearer {self.good_access}":
            return json_reply({"me": self.good_access})
        return json_reply({"message": "expired"}, 401)

    async def _token(self, form: dict[str, list[str]]) -> Reply:
        self.refreshes += 1
        self.asked.set()
        await asyncio.sleep(self.delay)
        if self.meanwhile is not None:
            await self.meanwhile()
        if self.failure is not None:
            return self.failure
        by_itself = form["grant_type"] == ["client_credentials"]
        if not by_itself and form.get("refresh_token") != [self.good_refresh]:
            told = {"error": "invalid_grant", "error_description": "the token was revoked"}
            return json_reply(told, 400)
        self.good_access = f"access-{self.refreshes}"
        self.good_refresh = f"refresh-{self.refreshes}"
        token = {"access_token": self.good_access, "token_type": "bearer"}
        if not by_itself:
            token["refresh_token"] = self.good_refresh
        return json_reply({**token, "expires_in": LASTS_SECONDS})
