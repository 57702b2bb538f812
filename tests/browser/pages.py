"""Every page of the dashboard, with an address at which it shows something."""

from urllib.parse import urlencode

from support.extreme_data import Subjects

OPEN = ("/login", "/docs")


def addresses(seen: Subjects) -> dict[str, tuple[str, ...]]:
    """Return addresses by the path of their route; a route that is missing here fails a test."""
    connection, job = f"/connections/{seen.connection}", f"/jobs/{seen.job}"
    return {
        "/": ("/", "/?period=90d"),
        "/connections": ("/connections", f"/connections?{urlencode({'tenant': seen.tenant})}"),
        "/connections/new": ("/connections/new", "/connections/new?provider=github"),
        "/connections/{connection_id}": (connection,),
        "/connections/{connection_id}/edit": (f"{connection}/edit",),
        "/connections/{connection_id}/reconnect": (f"{connection}/reconnect",),
        "/jobs": ("/jobs", f"/jobs?connection={seen.connection}"),
        "/jobs/{job_id}": (job,),
        "/signals": ("/signals", f"/signals?show={seen.signal}"),
        "/providers": ("/providers", "/providers?provider=github"),
        "/tenants": ("/tenants", f"/tenants?{urlencode({'tenant': seen.tenant})}"),
        "/search": ("/search", f"/search?{urlencode({'q': seen.tenant[:50]})}"),
        "/workers": ("/workers",),
        "/audit": ("/audit", f"/audit?connection={seen.connection}"),
        "/actions": ("/actions",),
        "/actions/new": (
            "/actions/new?action=pause",
            "/actions/new?action=set_interval",
            "/actions/new?action=retry&target=jobs&status=failed",
        ),
        "/actions/{action_id}": (f"/actions/{seen.action}",),
    }
