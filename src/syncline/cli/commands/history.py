"""`syncline history`: what happened over a period, as the charts of the overview show it."""

from dataclasses import asdict
from typing import Annotated

import typer

from syncline.cli.options import AsJson
from syncline.cli.output import print_json, print_table
from syncline.cli.session import session_of

commands = typer.Typer()


@commands.command(epilog="Example: syncline history --period 24h --provider github")
def history(
    context: typer.Context,
    period: Annotated[str, typer.Option(help="1h, 24h, 7d or 90d.")] = "1h",
    provider: Annotated[
        str | None, typer.Option(metavar="PROVIDER", help="Only of this provider.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Show runs, signals, durations, delays and backlog over a period."""
    from syncline.policy.figures import SUCCEEDED

    found = session_of(context).call(
        lambda engine: engine.stats.history(period, provider_slug=provider)
    )
    if json:
        print_json(asdict(found))
        return
    print_table(
        (
            *("From", "Succeeded", "Failed", "Signals", "Due at most"),
            *("Took p50, s", "Took p95, s", "Late p50, s", "Late p95, s"),
        ),
        [
            (
                point.at,
                point.outcomes.get(SUCCEEDED, 0),
                sum(point.outcomes.values()) - point.outcomes.get(SUCCEEDED, 0),
                point.signals,
                point.backlog,
                *map(
                    _seconds,
                    (point.duration_p50, point.duration_p95, point.delay_p50, point.delay_p95),
                ),
            )
            for point in found.points
        ],
        dispensable=("Late p50, s", "Took p50, s", "Signals"),
    )


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
