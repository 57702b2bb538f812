"""`syncline doctor`: what is wrong, and what to do about it."""

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from syncline.cli.errors import Failure
from syncline.cli.options import AsJson
from syncline.cli.output import print_json, print_table
from syncline.cli.session import session_of
from syncline.text import one_line

if TYPE_CHECKING:
    from syncline.policy.doctor import Diagnosis

commands = typer.Typer()


@commands.command(epilog="Example: syncline doctor")
def doctor(context: typer.Context, json: AsJson = False) -> None:
    """Find problems and say what to do. Exits with 1 if something is bad.

    It checks the database's version, limits and settings, the role's rights, clocks, workers,
    scheduler, queue, tables, old snapshots, and keys that expire soon.
    """
    found = session_of(context).call(lambda engine: engine.doctor.diagnose())
    if json:
        print_json([asdict(one) for one in found])
    else:
        _show(found)
    bad = [one.name for one in found if one.verdict == "bad"]
    if bad:
        raise Failure(f"bad: {', '.join(bad)}; the advice is above")


def _show(found: "list[Diagnosis]") -> None:
    print_table(
        ("Check", "Verdict", "Found"), [(one.name, one.verdict, one.found) for one in found]
    )
    for one in found:
        if one.advice:
            print()
            print(textwrap.fill(f"{one.name}: {one_line(one.advice)}", 100))
