"""Take the pictures of docs/images: python -m browser.screenshots [FOLDER]."""

import sys
from pathlib import Path
from typing import Any

from support.dashboard_browser import FLAGS, Dashboard, find_chromium
from syncline.testing.database import TemporaryServer

CONNECTIONS = 5_000
FOLDER = Path(__file__).parents[2] / "docs" / "images"
WIDE = {"viewport": {"width": 1280, "height": 860}}
PHONE = {"viewport": {"width": 390, "height": 844}}
LATEST = """
    SELECT (SELECT s.id FROM {schema}.signals s WHERE s.kind = 'pull_request_merged'
             ORDER BY s.received_at DESC LIMIT 1) AS signal,
           (SELECT j.connection_id FROM {schema}.sync_jobs j
             WHERE j.status = 'queued' AND j.error ->> 'class' = 'Transient'
             ORDER BY j.attempts DESC, j.id LIMIT 1) AS connection
"""

# What the runs of the sample would have left in the figures: more by day than by night, and a
# provider that has limited us for twenty minutes.
FIGURES = """
    INSERT INTO {schema}.figures
           (span, provider_slug, starts_at, outcomes, signals, durations, delays, backlog)
    SELECT span, slug, at,
           jsonb_build_object('succeeded', runs, 'Transient', (runs * swing / 25)::int,
               'RateLimited', CASE WHEN slug = 'mailbox' AND now() - at < interval '21 minutes'
                                   THEN runs / 6 ELSE 0 END),
           (runs * swing * 0.6)::bigint, ARRAY[5, (runs * swing / 2)::int, runs / 3, runs / 9, 1],
           ARRAY[2, runs / 2, (runs * swing / 4)::int, runs / 40],
           (runs * swing / 12)::int
      FROM (VALUES ('minute', interval '1 minute', interval '2 hours'),
                   ('hour', interval '1 hour', interval '7 days'),
                   ('day', interval '1 day', interval '90 days')) AS spans (span, length, kept)
     CROSS JOIN LATERAL generate_series(date_trunc(span, now(), 'UTC') - kept,
                                        date_trunc(span, now(), 'UTC') - length, length) AS at
     CROSS JOIN (VALUES ('github', 40), ('calendar', 22), ('mailbox', 16), ('helpdesk', 12),
                        ('feed', 8)) AS share (slug, count)
     CROSS JOIN LATERAL (
           SELECT 1 + (hashtext(slug || at::text) & 255) / 400.0 AS swing) AS chance
     CROSS JOIN LATERAL (
           SELECT ceil(share.count * swing * extract(epoch FROM length) / 20.0
                       * (1 + 0.3 * sin(extract(epoch FROM at) / 13_750)))::int AS runs) AS planned
"""


def pages(dashboard: Dashboard) -> dict[str, str]:
    [found] = dashboard.sql(LATEST)
    return {
        "overview": "/",
        "connections": "/connections?tenant=bluebird&order=staleness",
        "connection": f"/connections/{found['connection']}",
        "jobs": "/jobs",
        "signals": f"/signals?show={found['signal']}",
        "providers": "/providers",
        "workers": "/workers",
    }


def shoot(browser: Any, dashboard: Dashboard, folder: Path) -> None:
    """Take every page in light mode, some in dark mode, and some on a phone."""
    for suffix, window, chosen in (
        ("", {**WIDE, "color_scheme": "light"}, None),
        ("-dark", {**WIDE, "color_scheme": "dark"}, ("overview", "connection", "signals")),
        ("-phone", {**PHONE, "color_scheme": "light"}, ("overview", "connections", "connection")),
    ):
        context = browser.new_context(timezone_id="UTC", **window)
        page = context.new_page()
        for name, path in pages(dashboard).items():
            if chosen is not None and name not in chosen:
                continue
            page.goto(dashboard.url + path)
            page.wait_for_timeout(300)
            page.screenshot(path=folder / f"{name}{suffix}.png")
        context.close()


def main() -> None:
    from playwright.sync_api import sync_playwright

    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryServer() as server:
        dashboard = Dashboard(server.create_database(), connections=CONNECTIONS)
        with dashboard.open(), sync_playwright() as playwright:
            dashboard.sql(FIGURES)
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
            shoot(browser, dashboard, folder)
            browser.close()


if __name__ == "__main__":
    main()
