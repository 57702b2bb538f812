"""Trial runs of a connector: its pages, and the HTTP calls behind them."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from syncline.cli.output import print_fields, print_json, print_table
from syncline.engine.secrets.vault import without_secrets
from syncline.errors import ContractError, SyncError
from syncline.http.credentials import Credentials
from syncline.sdk.connector import Connector
from syncline.testing.recorder import Call, Masker, Recorder, save_calls
from syncline.testing.trial import TrialPage, prepare_trial, take_pages, trial_connection, walk


@dataclass
class Trial:
    """One trial run: its input and its result."""

    connector: Connector
    config: dict[str, Any]
    cursor: Any
    credentials: Any
    most_pages: int
    is_recorded: bool = False
    pages: list[TrialPage] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def has_more(self) -> bool:
        return bool(self.pages) and self.pages[-1].has_more

    @property
    def final_cursor(self) -> Any:
        return self.pages[-1].next_cursor if self.pages else self.cursor

    async def run(self) -> None:
        """Take pages until the end, the limit or an error. The error is kept, not raised."""
        masker = Masker(self.credentials)
        prepare_trial(self.connector, Recorder(self.calls, masker))
        connection = trial_connection(self.connector, self.config, self.credentials)
        try:
            async with aclosing(walk(self.connector, connection, self.cursor)) as pages:
                await self._take(pages)
            if self.is_recorded and not self.has_more:
                # Record the next run too: a replay continues from the end.
                await take_pages(
                    self.connector,
                    self.config,
                    credentials=self.credentials,
                    cursor=self.final_cursor,
                )
        except Exception as error:
            clean = without_secrets(error, Credentials(self.credentials or {}))
            self.error = clean.with_traceback(error.__traceback__)

    async def _take(self, pages: AsyncIterator[TrialPage]) -> None:
        async for page in pages:
            self.pages.append(page)
            if len(self.pages) == self.most_pages:
                return

    @property
    def failure(self) -> str | None:
        """Why it failed, in a sentence; None if it did not."""
        if self.error is None:
            return None
        is_meant = isinstance(self.error, SyncError | ContractError)
        where = "" if is_meant else " (`--debug` shows where)"
        return f"{type(self.error).__name__}: {self.error}{where}"

    def save(self, path: Path) -> None:
        save_calls(path, self.calls)


def show_trial(trial: Trial, *, json: bool) -> None:
    """Print the signals, the cursor and the HTTP calls."""
    if json:
        print_json(_as_json(trial))
        return
    if trial.calls:
        print_table(
            ("Call", "URL", "Status", "Bytes"),
            [(c.method, c.url, c.status or c.error, len(c.content)) for c in trial.calls],
        )
        print()
    print_table(
        ("Page", "Kind", "Occurred", "Dedupe key", "Payload"),
        [
            (number, signal.kind, signal.occurred_at, signal.dedupe_key, dict(signal.payload))
            for number, page in enumerate(trial.pages, 1)
            for signal in page.signals
        ],
    )
    print()
    print_fields(
        {
            "Pages": len(trial.pages),
            "Signals": sum(len(page.signals) for page in trial.pages),
            "HTTP calls": len(trial.calls),
            "Cursor": trial.final_cursor,
            "More waiting": "yes" if trial.has_more else "no",
        }
    )


def _as_json(trial: Trial) -> dict[str, Any]:
    error = trial.error
    return {
        "pages": [
            asdict(page) | {"signals": [_signal_as_json(signal) for signal in page.signals]}
            for page in trial.pages
        ],
        "cursor": trial.final_cursor,
        "has_more": trial.has_more,
        "calls": [
            {
                "method": call.method,
                "url": call.url,
                "status": call.status,
                "bytes": len(call.content),
                "error": call.error,
            }
            for call in trial.calls
        ],
        "error": error and {"class": type(error).__name__, "message": str(error)},
    }


def _signal_as_json(signal: Any) -> dict[str, Any]:
    return {
        "kind": signal.kind,
        "occurred_at": signal.occurred_at,
        "payload": dict(signal.payload),
        "dedupe_key": signal.dedupe_key,
    }
