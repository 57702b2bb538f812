"""`syncline budgets`: list, set, clear."""

from support.commands import CommandLine


def test_a_budget_is_set_listed_and_cleared(syncline: CommandLine) -> None:
    said = syncline("budgets", "set", "google", "--calls", "10000", "--provider", "mail")
    listed = syncline("budgets", "list")
    [found] = syncline.json("budgets", "list")
    shown = syncline("providers", "show", "mail")
    cleared = syncline("budgets", "clear", "google")
    again = syncline("budgets", "clear", "google")

    assert "google may make 10000 calls in any 1 h. Calls of mail count." in said.output
    assert "google" in listed.stdout
    assert (found["calls"], found["per_seconds"], found["room"]) == (10_000, 3600, 100)
    assert "The budget google allows 10000 calls in 3600 s (0 used)." in shown.output
    assert "The budget of google is removed" in cleared.output
    assert "google had no budget" in again.output
    assert syncline.json("budgets", "list") == []


def test_wrong_budgets_are_refused_in_one_line(syncline: CommandLine) -> None:
    none = syncline("budgets", "set", "google", "--calls", "0")
    text = syncline("budgets", "set", "google", "--calls", "many")
    span = syncline("budgets", "set", "google", "--calls", "5", "--per", "soon")

    assert "to make no calls, pause the provider" in none.output
    assert "must be a number or unlimited" in text.output
    assert 'must be a time span such as "1h"' in span.output
    assert {none.exit_code, text.exit_code, span.exit_code} <= {1, 2}
