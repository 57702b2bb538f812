"""The dashboard and the alert rules use metrics and labels that exist."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.telemetry_events import EVENTS
from syncline.settings.secret_files import SETTINGS as SECRET_SETTINGS
from syncline.telemetry.engine import Telemetry

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))
ALERTS = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text("utf-8"))
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
GUIDE = (ROOT / "docs/guide/operating.md").read_text("utf-8")
SELECTOR = re.compile(r"\b(sync_[a-z_]+)(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\bby \(([^)]*)\)")
OF_PROMETHEUS = {"le", "job", "instance"}


@pytest.fixture(scope="module")
def samples() -> dict[str, set[str]]:
    """Every sample that an engine exposes, with its labels."""
    telemetry = Telemetry()
    for happen in EVENTS.values():
        happen(telemetry)
    found: dict[str, set[str]] = {}
    for family in telemetry.registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions() -> Iterator[tuple[str, str]]:
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text("utf-8"))["panels"]:
            for target in panel.get("targets", ()):
                yield panel["title"], target["expr"]


@pytest.mark.parametrize(("title", "expression"), list(expressions()))
def test_every_metric_and_label_exists(
    title: str, expression: str, samples: dict[str, set[str]]
) -> None:
    used = SELECTOR.findall(expression)
    known: set[str] = set(OF_PROMETHEUS)
    assert used, title
    for name, matchers in used:
        assert name in samples, f"{title}: there is no metric {name}"
        known |= samples[name]
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
            assert label in samples[name] | OF_PROMETHEUS, f"{title}: {name} has no label {label}"
    for labels in GROUPING.findall(expression):
        assert {label.strip() for label in labels.split(",")} <= known, title


def test_parentheses_match() -> None:
    for title, expression in expressions():
        assert expression.count("(") == expression.count(")"), title
        assert expression.count("{") == expression.count("}"), title


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_every_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"].keys() == {"summary", "action"}
    assert f"`{rule['alert']}`" in GUIDE, "docs/guide/operating.md does not name it"


def test_panels_do_not_overlap() -> None:
    for path in DASHBOARDS:
        cells: set[tuple[int, int]] = set()
        for panel in json.loads(path.read_text("utf-8"))["panels"]:
            place = panel["gridPos"]
            own = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & own, panel["title"]
            assert place["x"] + place["w"] <= 24
            cells |= own


def test_the_systemd_unit_sets_known_variables_and_passes_secrets_as_files() -> None:
    unit = (ROOT / "deploy/systemd/syncline.service").read_text("utf-8")
    known = {f"SYNCLINE_{name.upper()}_FILE" for name in SECRET_SETTINGS} | {"SYNCLINE_HOME"}
    variables = dict(re.findall(r"^Environment=(\w+)=(.*)$", unit, re.MULTILINE))

    assert set(variables) <= known
    handed_over = re.findall(r"^LoadCredential=(\w+):", unit, re.MULTILINE)
    assert sorted(variables.values())[:-1] == [f"%d/{name}" for name in sorted(handed_over)]
