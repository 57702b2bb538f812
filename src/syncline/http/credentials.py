"""A connection's credentials during a run: a mapping that never shows its values."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from syncline.redaction import Scrubber, secrets_in

if TYPE_CHECKING:
    from syncline.http.environment import HttpEnvironment

Refresh = Callable[[str | None, "HttpEnvironment"], Awaitable[Mapping[str, Any]]]
"""Returns newer credentials; takes the access token that the provider rejected, if it did."""

EARLY_SECONDS = 60  # refresh a token this long before it expires


class Credentials(Mapping[str, Any]):
    """Reads like a dictionary, but prints, logs and copies without its values."""

    __slots__ = ("_refresh", "_values")

    def __init__(self, values: Mapping[str, Any], refresh: "Refresh | None" = None) -> None:
        self._values = dict(values)
        self._refresh = refresh

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return "Credentials(***)"

    def __deepcopy__(self, memo: object) -> "Credentials":
        return self

    def __reduce__(self) -> Any:
        raise TypeError("credentials cannot be pickled")

    @property
    def can_refresh(self) -> bool:
        return self._refresh is not None and is_refreshable(self._values)

    def is_expired(self, now: datetime) -> bool:
        return is_expired(self._values, now)

    async def refresh(self, rejected: str | None, environment: "HttpEnvironment") -> None:
        """Replace the values with newer ones; `rejected` is the access token that failed."""
        assert self._refresh is not None
        self._values = dict(await self._refresh(rejected, environment))

    def scrubber(self) -> Scrubber:
        """Return a function that masks these secrets in text."""
        return Scrubber(secrets_in(self._values))


def is_refreshable(values: Mapping[str, Any]) -> bool:
    """Return whether these are OAuth 2 credentials that can be refreshed without a person."""
    grant = values.get("refresh_token") or values.get("grant_type") == "client_credentials"
    return bool(values.get("token_url") and grant)


def is_expired(values: Mapping[str, Any], now: datetime) -> bool:
    """Return whether the access token has expired, or will before a request ends."""
    if not values.get("access_token"):
        return True
    expires_at = values.get("expires_at")
    if not isinstance(expires_at, int | float) or isinstance(expires_at, bool):
        return False
    return now.timestamp() >= expires_at - EARLY_SECONDS
