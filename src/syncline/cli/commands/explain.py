"""`syncline explain`: why a connection is, or is not, running now."""

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING
from uuid import UUID

import typer

from syncline.cli.named import ConnectionId, call_for
from syncline.cli.options import AsJson
from syncline.cli.output import print_fields, print_json
from syncline.cli.views.rows import name_of
from syncline.connection_name import ConnectionName
from syncline.text import one_line

if TYPE_CHECKING:
    from syncline.app import Engine
    from syncline.policy.evidence import Explanation

commands = typer.Typer()
WIDTH = 100


@commands.command(epilog="Example: syncline explain acme/github/octo/hello")
def explain(context: typer.Context, connection: ConnectionId, json: AsJson = False) -> None:
    """Explain why a connection is, or is not, running now.

    Prints a paragraph, then the reason as one word and the evidence for it.
    """

    async def read(engine: "Engine", id_: UUID) -> tuple["Explanation", ConnectionName]:
        return await engine.explain(id_), name_of(await engine.connections.get(id_))

    found, name = call_for(context, connection, read)
    if json:
        print_json(asdict(found) | {"connection": str(name)})
    else:
        _show(found, name)


def _show(found: "Explanation", name: ConnectionName) -> None:
    print(textwrap.fill(one_line(found.summary), WIDTH))
    print()
    evidence = found.evidence
    jobs = [f"{job['job_type']} {job['id']}: {job['status']}" for job in evidence["pending"]]
    alive = [worker for worker in evidence["workers"] if worker["status"] == "alive"]
    able = [worker for worker in alive if worker["knows_provider"]]
    slots, busy = sum(w["slots"] for w in able), sum(w["busy"] for w in able)
    print_fields(
        {
            "Connection": f"{name} ({evidence['connection_id']})",
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
