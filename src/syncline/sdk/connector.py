"""`Connector`, the class that connector authors extend."""

from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from syncline.children.limits import ChildLimits
from syncline.model import Connection, SyncResult
from syncline.sdk.limits import Limit

if TYPE_CHECKING:  # importing it takes 0.1 s, and many connectors never use it
    from pydantic import BaseModel

    from syncline.http import Authentication, BlockingHttpClient, HttpClient, HttpEnvironment
    from syncline.http.status_errors import ErrorMap


class Connector:
    """Syncs one provider: cursor in, page out.

    Set `provider` and override `sync`. It may be

    - an `async def` that returns one page,
    - a plain `def` that returns one page; it runs in a thread,
    - an `async def` that yields pages; each page is stored, with its cursor, before `sync`
      continues after the `yield`,
    - an `async def` that returns such an iterator of pages only if there is more than one page. A
      page that is returned is stored together with those of other runs, at a fraction of the cost.

    If there is no page, raise `RateLimited`, `Unauthorized`, `Transient` or `Permanent`. The
    engine retries after any other exception, with backoff.
    """

    provider: str = ""
    title: str = ""  # as people write it; the slug if it is empty
    auth: Sequence[str] | None = None  # kinds of credentials that it takes; None: not declared
    # What a config may hold: a pydantic model, or a JSON Schema.
    config_schema: "type[BaseModel] | Mapping[str, Any] | None" = None
    local: ClassVar[bool] = False  # set True if it runs a program or reads files of this host
    runs_programs: ClassVar[bool] = False  # set True if runs start programs, which need cores
    limits: ClassVar[Sequence[Limit]] = ()  # of the provider; operators can set others
    settings_name: ClassVar[str | None] = None  # the settings component passed to `configure`
    # The engine sets these before the first run.
    http_environment: "HttpEnvironment | None" = None
    child_limits: ChildLimits = ChildLimits()  # for each process that the connector starts
    sandboxed: bool = True  # whether third-party programs run in a sandbox
    state_folder: Path | None = None  # for files that outlive a run

    def sync(
        self, connection: Connection, cursor: Any
    ) -> SyncResult | Awaitable[SyncResult | AsyncIterator[SyncResult]] | AsyncIterator[SyncResult]:
        """Return the page after `cursor`, or yield pages. `cursor` is None on the first run."""
        raise NotImplementedError(f"{type(self).__name__} does not define sync()")

    def configure(self, settings: Any) -> None:
        """Receive the operator's settings; called once, before the first run.

        `settings` is the component that `settings_name` names. It is None when a person runs the
        connector by hand; the connector may then do everything that this user may do.
        """

    def connections_with_files(self) -> Collection[UUID]:
        """Return the ids of connections that have files on this host."""
        return ()

    def forget(self, connection_ids: Collection[UUID]) -> None:
        """Remove the files of deleted connections from this host."""

    def why_not_for_tenants(self) -> str | None:
        """Return why tenants may never use this connector in this process, or None if they may."""
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
        """Return an HTTP client for this run; use it with `async with`.

        It sends the connection's credentials to one origin only: that of `base_url`, or that of
        the first request if there is no `base_url`. `errors` is called with each failed response
        and may return an error to raise instead of the usual one.
        """
        from syncline.http import HttpClient, HttpEnvironment
        from syncline.http.budgets import Spender

        run = vars(connection).get("_run")  # of the engine, while it runs
        calls = run.call_log if run else None
        return HttpClient(
            self.http_environment or HttpEnvironment(),
            spender=Spender(connection.provider_slug, connection.tenant_id, connection.id, calls),
            credentials=connection.credentials,
            base_url=base_url,
            headers=headers,
            authentication=authentication,
            errors=errors,
        )

    def blocking_http(self, connection: Connection, **options: Any) -> "BlockingHttpClient":
        """Return the same client with blocking methods, for a plain `def`; use it with `with`."""
        from syncline.http import BlockingHttpClient

        return BlockingHttpClient(self.http(connection, **options))
