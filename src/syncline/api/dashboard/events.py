"""Server-sent events that tell an open page when to refresh."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from syncline.api.auth import ScopedRoute
from syncline.api.login import ViewingOperator

router = APIRouter(include_in_schema=False, route_class=ScopedRoute)
EVERY_SECONDS = 2.0
MOST_STREAMS = 200
ENDS_AFTER = 300  # events; then the browser reconnects and is authenticated again


class Streams:
    """The open event streams of one application; `close` ends them all."""

    def __init__(self) -> None:
        self.open = 0
        self._closed = asyncio.Event()

    def close(self) -> None:
        self._closed.set()

    async def events(self) -> AsyncIterator[str]:
        """Yield an event every two seconds, until the server stops."""
        self.open += 1
        try:
            yield "retry: 2000\n\n"
            for count in range(ENDS_AFTER):
                yield f"event: tick\ndata: {count}\n\n"
                if await self._closes_within(EVERY_SECONDS):
                    return
        finally:
            self.open -= 1

    async def _closes_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._closed.wait()
        except TimeoutError:
            return False


@router.get("/events")
async def listen_for_events(request: Request, viewer: ViewingOperator) -> StreamingResponse:  # noqa: ARG001
    """Return events that tell the page when to refresh."""
    streams: Streams = request.app.state.streams
    if streams.open >= MOST_STREAMS:
        return StreamingResponse(iter(()), status_code=503, headers={"Retry-After": "30"})
    return StreamingResponse(
        streams.events(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )
