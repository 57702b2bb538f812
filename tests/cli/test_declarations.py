"""What `syncline providers show` says about a connector."""

from support.commands import CommandLine


def test_a_provider_is_shown_with_its_schema(syncline: CommandLine) -> None:
    found = syncline.json("providers", "show", "feed")

    assert found["title"].startswith("Feed")
    assert "token" in found["auth"]
    assert found["config_schema"]["required"] == ["url"]
