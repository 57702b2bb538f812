"""`syncline explain`: why a connection is, or is not, running now."""

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from syncline.cli.options import AsJson, ConnectionId
from syncline.cli.output import print_fields, print_json
from syncline.cli.session import session_of
from syncline.text import one_line

if TYPE_CHECKING:
    from syncline.policy.evidence import Explanation

commands = typer.Typer()
WIDTH = 100


@commands.command(epilog="Example: syncline explain 01993f8e-5c1e-7d3a-9c55-0f4be16bd1a0")
def explain(context: typer.Context, connection: ConnectionId, json: AsJson = False) -> None:
    """Explain why a connection is, or is not, running now.

    Prints a paragraph, then the reason as one word and the evidence for it.
    """
    found = session_of(context).call(lambda engine: engine.explain(connection))
    if json:
        print_json(asdict(found))
    else:
        _show(found)


def _show(found: "Explanation") -> None:
    print(textwrap.fill(one_line(found.summary), WIDTH))
    print()
    evidence = found.evidence
    jobs = [f"{job['job_type']} {job['id']}: {job['status']}" for job in evidence["pending"]]
    alive = [worker for worker in evidence["workers"] if worker["status"] == "alive"]
    able = [worker for worker in alive if worker["knows_provider"]]
    slots, busy = sum(w["slots"] for w in able), sum(w["busy"] for w in able)
    print_fields(
        {
            "Reason": found.reason,
            "Due": found.due_at,
            "Waits until": found.waits_until,
            "Waits for job": found.waits_for_job,
            "Status": evidence["status"],
            "Every": f"{evidence['interval_seconds']:.0f} s",
            "Last finished": evidence["last_finished_at"],
            "Last success": evidence["last_succeeded_at"],
            "Last tick": evidence["last_tick_at"],
            "Pending": "; ".join(jobs) or None,
            "Workers": f"{len(alive)} alive, {len(able)} of them know the provider, "
            f"{busy} of their {slots} slots busy",
        }
    )
