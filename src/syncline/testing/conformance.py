"""The conformance suite: checks your connector for everything that the engine relies on.

    class TestTickets(ConnectorConformance):
        connector = Tickets
        config = {"url": "https://desk.example"}
        recording = Path(__file__).with_name("tickets.json")

The tests need only pytest. A fixture that starts a server can set `self.config`.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import SkipTest

from syncline.errors import ContractError
from syncline.sdk.connector import Connector
from syncline.testing import checks, fault_checks
from syncline.testing.checks import Skipped, Subject
from syncline.testing.replay import answers_from


@dataclass(frozen=True, slots=True)
class Check:
    """A check, and a pattern for the page errors that belong to it."""

    run: Callable[[Subject], Awaitable[None]]
    about: str = "$^"

    @property
    def name(self) -> str:
        return self.run.__name__

    @property
    def sentence(self) -> str:
        return (self.run.__doc__ or "").strip()


CHECKS = (
    Check(checks.pages_end, about=""),
    Check(checks.cursor_advances, about=r"next_cursor|has_more"),
    Check(checks.same_cursor_same_page),
    Check(checks.goes_on_from_the_end),
    Check(checks.times_have_zones, about="occurred_at"),
    Check(checks.dedupe_keys_are_stable, about="dedupe_key"),
    Check(checks.keeps_its_hands_off),
    Check(checks.serves_many_at_once),
    Check(fault_checks.errors_are_mapped),
    Check(fault_checks.nonsense_is_an_error),
    Check(fault_checks.errors_hold_no_secrets),
    Check(fault_checks.can_be_cancelled),
)


async def run_check(check: Check, subject: Subject) -> None:
    """Raise AssertionError if the connector fails, Skipped if the check does not apply."""
    try:
        await check.run(subject)
    except ContractError as error:
        if not re.search(check.about, str(error)):
            raise Skipped(f"a page cannot be stored: {error}") from None
        raise AssertionError(str(error)) from None


async def examine(check: Check, subject: Subject) -> dict[str, Any]:
    """Return the result of a check as fields, with the reason if it failed or was skipped."""
    result, why = "ok", None
    try:
        await run_check(check, subject)
    except Skipped as reason:
        result, why = "skipped", str(reason)
    except AssertionError as failure:
        result, why = "failed", str(failure)
    except Exception as error:
        result, why = "failed", f"{type(error).__name__}: {error}"
    return {"check": check.name, "sentence": check.sentence, "result": result, "why": why}


class ConnectorConformance:
    """Subclass it in a test module and set `connector`; pytest then runs every check.

    `recording` answers HTTP requests from a file. Without one they go to the provider, or to a
    server that your own fixture started. Use made-up `credentials`.
    """

    connector: Callable[[], Connector]
    config: dict[str, Any] = {}  # noqa: RUF012  (a subclass or a fixture sets its own)
    credentials: Any = None
    recording: str | Path | None = None
    max_pages: int = 100

    def subject(self) -> Subject:
        """Return the subject of the checks; override it for a connector that needs arguments."""
        return Subject(
            make=type(self).connector,
            config=self.config,
            credentials=self.credentials,
            max_pages=self.max_pages,
            answers=answers_from(self.recording, self.credentials) if self.recording else None,
        )

    def check(self, check: Check) -> None:
        try:
            asyncio.run(run_check(check, self.subject()))
        except Skipped as reason:
            raise SkipTest(str(reason)) from None


def _test(check: Check) -> Callable[[ConnectorConformance], None]:
    def test(self: ConnectorConformance) -> None:
        self.check(check)

    test.__name__, test.__doc__ = f"test_{check.name}", check.sentence
    return test


for _check in CHECKS:
    setattr(ConnectorConformance, f"test_{_check.name}", _test(_check))
