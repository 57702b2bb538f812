"""The same client for connectors with a plain `def sync`, which run in threads."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from syncline.http.client import HttpClient
from syncline.http.messages import Response
from syncline.http.request import Options

T = TypeVar("T")


class BlockingHttpClient:
    """An `HttpClient` with blocking methods; use it with a plain `with`.

    A thread has an event loop of its own, and therefore its own connections.
    """

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._runner.run(self._client.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._runner.run(self._client.__aexit__(kind, error, traceback))
        finally:
            self._runner.close()

    def get(self, url: str = "", **options: Unpack[Options]) -> Response:
        return self.request("GET", url, **options)

    def post(self, url: str = "", **options: Unpack[Options]) -> Response:
        return self.request("POST", url, **options)

    def request(self, method: str, url: str = "", **options: Unpack[Options]) -> Response:
        return self._runner.run(self._client.request(method, url, **options))

    def pages_by_link(self, url: str = "", **options: Any) -> Iterator[Response]:
        return self._iterate(self._client.pages_by_link(url, **options))

    def pages_by_number(self, url: str = "", **options: Any) -> Iterator[Response]:
        return self._iterate(self._client.pages_by_number(url, **options))

    def pages_by_offset(self, url: str = "", **options: Any) -> Iterator[Response]:
        return self._iterate(self._client.pages_by_offset(url, **options))

    def pages_by_cursor(self, url: str = "", **options: Any) -> Iterator[Response]:
        return self._iterate(self._client.pages_by_cursor(url, **options))

    def _iterate(self, pages: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> tuple[T] | None:
            async for page in pages:
                return (page,)
            return None

        while (found := self._runner.run(following())) is not None:
            yield found[0]
