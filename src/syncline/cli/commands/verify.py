"""`syncline verify`: check the invariants, once or repeatedly."""

import asyncio
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.errors import Failure
from syncline.cli.interrupts import Interrupts, stopped_within
from syncline.cli.options import AsJson
from syncline.cli.output import print_json, print_table
from syncline.cli.session import perform, session_of

if TYPE_CHECKING:
    from syncline.app import Engine
    from syncline.model import Finding

commands = typer.Typer()


@commands.command(epilog="Example: syncline verify --watch --every 30")
def verify(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Check repeatedly until Ctrl-C.")] = False,
    every: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, help="With --watch: time between two checks."),
    ] = 10,
    json: AsJson = False,
) -> None:
    """Check the invariants. Exits with 1 if one is broken.

    An invariant that needs a running scheduler is "not judged" until one has ticked twice.
    """
    session = session_of(context)
    broken: set[str] = set()

    async def work(interrupts: Interrupts) -> int:
        async with session.engine() as engine:
            if not watch:
                findings = await engine.doctor.judge()
                _show(findings, json)
                broken.update(_broken(findings))
                return len(findings)
            return await _watch(engine, every, broken, interrupts, json)

    with session.logs():
        count = perform(work)
    if broken:
        when = "were broken" if watch else "are broken"
        raise Failure(f"{len(broken)} of {count} invariants {when}: {', '.join(sorted(broken))}")


async def _watch(
    engine: "Engine", seconds: float, broken: set[str], interrupts: Interrupts, json: bool
) -> int:
    """Check until a signal; show the first result, and every one that differs from the last."""
    stop = asyncio.Event()
    interrupts.react = stop.set
    shown: dict[str, str] = {}
    findings: list[Finding] = []
    while not stop.is_set():
        findings = await engine.doctor.judge()
        verdicts = {found.name: found.verdict for found in findings}
        if verdicts != shown:
            _show(findings, json)
            sys.stdout.flush()
            shown = verdicts
        broken.update(_broken(findings))
        await stopped_within(stop, seconds)
    return len(findings)


def _broken(findings: "list[Finding]") -> list[str]:
    return [found.name for found in findings if found.verdict == "broken"]


def _show(findings: "list[Finding]", json: bool) -> None:
    if json:
        held = {"ok": True, "broken": False}
        print_json([{**asdict(found), "ok": held.get(found.verdict)} for found in findings])
        return
    print_table(
        ("Invariant", "Verdict", "Rule"),
        [(found.name, found.verdict, found.sentence) for found in findings],
    )
    for found in findings:
        if found.rows:
            print(f"\n{found.name} is broken by these rows:")
            print_table(tuple(found.rows[0]), [tuple(row.values()) for row in found.rows])
