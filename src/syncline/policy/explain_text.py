"""Times, errors and evidence, put into words and into JSON for an explanation."""

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from syncline.policy.evidence import Evidence
from syncline.redaction import mask_secrets
from syncline.text import rfc3339, span

LONGEST_LINE = 300


def moment(instant: datetime, now: datetime) -> str:
    """Return when something happens: `at`, an instant, and how far from now it is."""
    return f"at {instant_text(instant, now)}"


def instant_text(instant: datetime, now: datetime) -> str:
    """Return an instant, and how far from now it is, to stand after `since` or `at`."""
    shown = instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if instant > now:
        return f"{shown} (in {span(instant - now)})"
    return f"{shown} ({span(now - instant)} ago)"


def error_line(error: Any) -> str:
    """Return a job's error in a line, whatever somebody may have written there."""
    if isinstance(error, dict) and "message" in error:
        kind, message = error.get("class"), error["message"]
        return _line(f"{kind}: {message}" if kind else str(message))
    return "" if error is None else _line(str(error))


def reason_line(reason: Any) -> str:
    """Return why a connection has its status, by whom and since when, as far as it was told."""
    if not isinstance(reason, dict):
        return "" if reason is None else _line(str(reason))
    told = [str(reason["why"])] if reason.get("why") else []
    told += [f"by {reason['by']}"] if reason.get("by") else []
    told += [f"since {reason['since']}"] if reason.get("since") else []
    return _line(", ".join(told))


def describe(evidence: Evidence) -> dict[str, Any]:
    """Return the evidence as values that JSON can hold."""
    shown = {field.name: getattr(evidence, field.name) for field in fields(evidence)}
    workers = shown.pop("workers")
    for name in ("interval", "tick_interval", "lookahead"):
        shown[f"{name}_seconds"] = shown.pop(name).total_seconds()
    return {
        **{name: as_json(value) for name, value in shown.items()},
        "workers": [
            {
                "host": worker.host,
                "pid": worker.pid,
                "status": worker.status,
                "roles": list(worker.roles),
                "knows_provider": evidence.provider_slug in worker.providers,
                "slots": worker.slots,
                "busy": worker.busy,
                "beat_at": as_json(worker.beat_at),
            }
            for worker in workers
        ],
    }


def as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    return value


def _line(text: str) -> str:
    line = " ".join(mask_secrets(text, 10 * LONGEST_LINE).split())
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"
