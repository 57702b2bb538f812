"""The one thing an author writes: a class that turns a cursor into a page."""

from collections.abc import AsyncIterator, Awaitable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from syncline.children.limits import ChildLimits
from syncline.model import Connection, SyncResult

if TYPE_CHECKING:  # it takes a tenth of a second to import, and not every connector calls out
    from syncline.http import Authentication, BlockingHttpClient, HttpClient, HttpEnvironment
    from syncline.http.status_errors import ErrorMap


class Connector:
    """Syncs one provider: cursor in, page out.

    Set `provider` and override `sync`, as `async def` or as a plain `def` (which runs in a
    thread). One that yields pages from an `async def` streams them: each is stored, with its
    cursor, before `sync` goes on after the `yield`. Raise `RateLimited`, `Unauthorized`,
    `Transient` or `Permanent` when no page can be had; anything else that is raised is retried
    with backoff.
    """

    provider: str = ""
    local: ClassVar[bool] = False  # it runs a program or reads this host
    http_environment: "HttpEnvironment | None" = None  # the engine's, once it has the connector
    child_limits: ChildLimits = ChildLimits()  # of each process it starts; the engine's, too
    sandboxed: bool = True  # whether a program of others runs in a sandbox; the engine's, too
    state_folder: Path | None = None  # for files that outlive a run; the engine's, too
    settings_name: ClassVar[str | None] = None  # the component of the settings it is given

    def sync(
        self, connection: Connection, cursor: Any
    ) -> SyncResult | Awaitable[SyncResult] | AsyncIterator[SyncResult]:
        """Return the page after `cursor`, which is None on the first call, or yield the pages."""
        raise NotImplementedError(f"{type(self).__name__} does not define sync()")

    def configure(self, settings: Any) -> None:
        """Take the operator's settings, once, before the first run.

        They are the component that `settings_name` names, or None where a person runs the
        connector by hand, who may do all that this user may.
        """

    def connections_with_files(self) -> Collection[UUID]:
        """Return the connections of which this host keeps files."""
        return ()

    def forget(self, connection_ids: Collection[UUID]) -> None:
        """Remove the files that this host keeps of connections that were deleted."""

    def why_not_for_tenants(self) -> str | None:
        """Return why tenants' keys may not use it in this process, whatever the settings say."""
        return None

    def http(
        self,
        connection: Connection,
        *,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        authentication: "Authentication | None" = None,
        errors: "ErrorMap | None" = None,
    ) -> "HttpClient":
        """Return a client for this run, to be used with `async with`.

        Credentials go to the origin of `base_url` (without one, of the first call) and nowhere
        else. `errors` may turn a failed answer into an error of its own.
        """
        from syncline.http import HttpClient, HttpEnvironment

        return HttpClient(
            self.http_environment or HttpEnvironment(),
            provider_slug=connection.provider_slug,
            credentials=connection.credentials,
            base_url=base_url,
            headers=headers,
            authentication=authentication,
            errors=errors,
        )

    def blocking_http(self, connection: Connection, **options: Any) -> "BlockingHttpClient":
        """Return the same client for a plain `def`, to be used with a plain `with`."""
        from syncline.http import BlockingHttpClient

        return BlockingHttpClient(self.http(connection, **options))
