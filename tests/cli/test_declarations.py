"""Connections that the commands refuse by what their connectors declare."""

from support.commands import CommandLine

NO_URL = '{"page_size": 5}'


def test_add_refuses_a_bad_config_with_its_field(syncline: CommandLine) -> None:
    refused = syncline("connections", "add", "acme", "feed", "news", "--config", NO_URL)

    assert refused.exit_code == 1
    assert "config.url is missing" in refused.output
    forced = syncline("connections", "add", "acme", "feed", "news", "--config", NO_URL, "--force")
    assert forced.exit_code == 0


def test_add_refuses_an_unknown_provider_with_the_nearest(syncline: CommandLine) -> None:
    refused = syncline("connections", "add", "acme", "gitub", "site")

    assert refused.exit_code == 1
    assert "did you mean 'github'?" in refused.output
    assert "--force" in refused.output
    assert syncline("connections", "add", "acme", "gitub", "site", "--force").exit_code == 0


def test_add_with_sync_queues_a_job(syncline: CommandLine) -> None:
    added = syncline.json("connections", "add", "acme", "demo", "desk", "--sync")

    jobs = syncline.json("jobs", "list")
    assert [job["connection_id"] for job in jobs] == [added["id"]]


def test_set_config_replaces_the_config_and_checks_it(syncline: CommandLine) -> None:
    added = syncline.add()

    changed = syncline.json("connections", "set-config", added, '{"personality": "busy"}')
    refused = syncline("connections", "set-config", added, '{"personality": "odd"}')

    assert changed["config"] == {"personality": "busy"}
    assert refused.exit_code == 1
    assert "config.personality is none of" in refused.output


def test_import_rejects_lines_that_connectors_refuse(syncline: CommandLine) -> None:
    file = syncline.folder / "new.csv"
    file.write_text("tenant,provider,external_id\nacme,demo,a\nacme,dmeo,b\nacme,feed,c\n")

    result = syncline("connections", "import", str(file))

    assert result.exit_code == 1
    rejected = (syncline.folder / "new.csv.rejected").read_text()
    assert "did you mean 'demo'?" in rejected
    assert "config.url is missing" in rejected
    assert len(syncline.json("connections", "list")) == 1


def test_a_provider_is_shown_with_its_schema(syncline: CommandLine) -> None:
    found = syncline.json("providers", "show", "feed")

    assert found["title"].startswith("Feed")
    assert "token" in found["auth"]
    assert found["config_schema"]["required"] == ["url"]
