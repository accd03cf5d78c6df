"""`tradewind stream` on both servers: what it makes, shows, changes and removes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli_outcome import Cli
from harness import ServerProcess
from tradewind.api.stream_types import StreamInfo
from tradewind.cli.frame.failures import EXIT_FAILED, EXIT_USAGE
from tradewind.cli.streams.stream_details import show_stream
from tradewind.sync import connect


def publish(server: ServerProcess, *subjects: str, data: str = "hello") -> None:
    with connect(f"nats://127.0.0.1:{server.port}") as connection:
        js = connection.jetstream()
        for subject in subjects:
            js.publish(subject, data, headers={"Trace": subject})


def config_of(cli: Cli, name: str) -> dict[str, Any]:
    config: dict[str, Any] = cli("stream", "info", name, "--json").ok().json["config"]
    return config


def test_the_stream_of_document_004_can_be_made_listed_and_removed(cli: Cli) -> None:
    made = cli("stream", "add", "ORDERS", "--subjects", "orders.*").ok()
    assert "Stream ORDERS was created" in made.out
    assert "Information for Stream ORDERS created" in made.out
    assert "│ ORDERS │" in cli("stream", "ls").ok().out
    cli("stream", "rm", "ORDERS", "-f").ok()
    assert cli("stream", "ls").ok().out == "No Streams defined\n"


def test_defaults_of_a_stream_are_those_of_nats(cli: Cli) -> None:
    cli("str", "add", "ORDERS", "--subjects", "orders.*,refunds.*").ok()
    config = config_of(cli, "ORDERS")
    assert config["subjects"] == ["orders.*", "refunds.*"]
    assert config["storage"] == "file"
    assert config["retention"] == "limits"
    assert config["discard"] == "old"
    assert config["allow_direct"] is True
    assert config["duplicate_window"] == 120_000_000_000
    for name in ("max_msgs", "max_bytes", "max_consumers", "max_msgs_per_subject"):
        assert config[name] == -1
    assert config["num_replicas"] == 1


def test_flags_of_document_003_reach_the_server(cli: Cli) -> None:
    flags = ["--subjects", "logs.>", "--storage", "file", "--retention", "limits", "--max-msgs=-1"]
    more = ["--max-bytes=-1", "--max-age", "1d", "--max-msg-size=-1"]
    shown = cli("str", "add", "LOGS", *flags, *more).ok().out
    assert "             Maximum Age: 1d0h0m0s" in shown
    assert config_of(cli, "LOGS")["max_age"] == 86_400_000_000_000


def test_every_flag_has_its_member(offline: Cli, tmp_path: Path) -> None:
    path = tmp_path / "full.json"
    offline(
        *("stream", "add", "FULL", "--subjects", "full.>", "--description", "all of it"),
        *("--storage", "memory", "--retention", "work", "--discard-per-subject"),
        *("--max-msgs", "1000", "--max-msgs-per-subject", "10", "--max-bytes", "1MB"),
        *("--max-msg-size", "1KB", "--max-consumers", "5", "--dupe-window", "1m"),
        *("--first-sequence", "100", "--allow-rollup", "--no-allow-direct", "--no-ack"),
        *("--allow-msg-ttl", "--subject-del-markers-ttl", "2m", "--allow-batch"),
        *("--republish-source", "full.>", "--republish-destination", "copy.>"),
        *("--republish-headers", "--metadata", "team=blue", "--metadata", "tier=1"),
        *("--limit-consumer-inactive", "1h", "--limit-consumer-max-pending", "50"),
        *("--allow-fast", "--allow-counter", "--allow-schedules", "--deny-delete", "--deny-purge"),
        *("--compression", "s2", "--replicas", "3", "--tag", "ssd", "--cluster", "east"),
        *("--transform-source", "full.*", "--transform-destination", "done.{{wildcard(1)}}"),
        *("--source", "X", "--source", '{"name": "Y", "filter_subject": "y.>"}'),
        *("--allow-mirror-direct", "--persist-mode", "async", "--output", str(path)),
    ).ok()
    config = json.loads(path.read_text())
    expected = {
        "description": "all of it",
        "storage": "memory",
        "retention": "workqueue",
        "discard": "new",
        "discard_new_per_subject": True,
        "max_msgs": 1000,
        "max_msgs_per_subject": 10,
        "max_bytes": 1 << 20,
        "max_msg_size": 1024,
        "max_consumers": 5,
        "duplicate_window": 60_000_000_000,
        "first_seq": 100,
        "allow_rollup_hdrs": True,
        "allow_direct": False,
        "no_ack": True,
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": 120_000_000_000,
        "allow_atomic": True,
        "republish": {"src": "full.>", "dest": "copy.>", "headers_only": True},
        "allow_batched": True,
        "allow_msg_counter": True,
        "allow_msg_schedules": True,
        "deny_delete": True,
        "deny_purge": True,
        "mirror_direct": True,
        "compression": "s2",
        "num_replicas": 3,
        "placement": {"cluster": "east", "tags": ["ssd"]},
        "subject_transform": {"src": "full.*", "dest": "done.{{wildcard(1)}}"},
        "sources": [{"name": "X"}, {"name": "Y", "filter_subject": "y.>"}],
        "persist_mode": "async",
        "metadata": {"team": "blue", "tier": "1"},
        "consumer_limits": {"inactive_threshold": 3_600_000_000_000, "max_ack_pending": 50},
    }
    assert {name: config.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--max-age", "soon"], "--max-age must be a duration such as"),
        (["--max-bytes", "1 parsec"], "--max-bytes must be a size such as"),
        (["--storage", "tape"], "--storage must be one of file, memory, not 'tape'"),
        (["--metadata", "alone"], "--metadata: KEY=VALUE"),
        (
            ["--transform-source", "a"],
            "--transform-source and --transform-destination: specify both",
        ),
        (["--mirror", "{"], "--mirror: "),
        (["--origin-prefix", "a"], "--origin-prefix requires --mirror or --source"),
        (["--mirror", "X", "--origin-deliver", "a"], "--origin-deliver: needs --origin-prefix"),
    ],
)
def test_a_wrong_flag_is_named(offline: Cli, flags: list[str], text: str) -> None:
    outcome = offline("stream", "add", "X", "--subjects", "x", *flags)
    assert outcome.code in (EXIT_FAILED, EXIT_USAGE)
    assert text in outcome.err


def test_missing_subjects_are_an_error_without_a_terminal(offline: Cli) -> None:
    outcome = offline("stream", "add", "ORDERS")
    assert outcome.code == EXIT_USAGE
    assert "use --subjects" in outcome.err


def test_the_configuration_of_document_002_makes_a_stream(cli: Cli, tmp_path: Path) -> None:
    document = {
        "name": "AnotherStream",
        "subjects": ["xyz.*"],
        "retention": "limits",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msg_size": -1,
        "storage": "file",
        "discard": "old",
        "num_replicas": 1,
        "duplicate_window": 120000000000,
    }
    path = tmp_path / "jetstream-stream.json"
    path.write_text(json.dumps(document))
    cli("str", "add", f"--config={path}").ok()
    config = config_of(cli, "AnotherStream")
    assert {name: config[name] for name in document} == document


def test_output_and_info_can_be_given_back_as_configuration(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    cli("stream", "add", "A", "--subjects", "a", "--max-age", "2h", "--output", str(path)).ok()
    assert cli("stream", "ls", "-n").ok().out == ""
    cli("stream", "add", "--config", str(path)).ok()
    path.write_text(cli("stream", "info", "A", "-j").ok().out)
    cli("stream", "rm", "A", "-f").ok()
    cli("stream", "add", "--config", str(path)).ok()
    assert config_of(cli, "A")["max_age"] == 7_200_000_000_000


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('{"name": "A", "subject": ["a"]}', "no member 'subject'; did you mean 'subjects'?"),
        ('{"name": "A", "max_msgs": "many"}', "Expected `int`, got `str` - at `$.max_msgs`"),
        ("[1]", "expected a JSON object"),
        ("{", "stream.json: "),
    ],
)
def test_a_wrong_file_is_named(offline: Cli, tmp_path: Path, content: str, text: str) -> None:
    path = tmp_path / "stream.json"
    path.write_text(content)
    outcome = offline("stream", "add", "--config", str(path))
    assert outcome.code == EXIT_FAILED
    assert text in outcome.err


def test_a_missing_file_is_one_line(offline: Cli, tmp_path: Path) -> None:
    outcome = offline("stream", "add", "--config", str(tmp_path / "none.json"))
    assert outcome.code == EXIT_FAILED
    assert "none.json: No such file or directory" in outcome.err


def test_validate_needs_no_server(offline: Cli) -> None:
    valid = offline("stream", "add", "A", "--subjects", "a.>", "--validate").ok()
    assert valid.out == "Configuration is valid\n"
    wrong = offline("stream", "add", "A", "--subjects", "a.>", "--replicas", "9", "--validate")
    assert wrong.code == EXIT_FAILED
    assert "maximum replicas is 5" in wrong.err


def test_the_edit_of_document_003_shows_the_difference(cli: Cli, tmp_path: Path) -> None:
    cli("stream", "add", "LOGS", "--subjects", "logs.>", "--max-age", "1d").ok()
    path = tmp_path / "LOGS.json"
    config = config_of(cli, "LOGS")
    path.write_text(json.dumps({**config, "max_bytes": 10737418240}))
    edited = cli("stream", "edit", "LOGS", "--config", str(path), "--force").ok().out
    assert "Differences (-old +new):" in edited
    assert "-       max_bytes:            -1,\n+       max_bytes:            10737418240," in edited
    assert 'max_age:              "24h0m0s",' in edited
    assert "Stream LOGS was updated" in edited
    assert "Maximum Bytes: 10 GiB" in edited
    again = cli("stream", "edit", "LOGS", "--config", str(path)).ok()
    assert again.out == "No difference in configuration\n"


def test_edit_by_flags_changes_only_what_is_given(cli: Cli) -> None:
    cli("stream", "add", "A", "--subjects", "a", "--metadata", "k=v", "--max-age", "1h").ok()
    before = config_of(cli, "A")
    cli("stream", "edit", "A", "--subjects", "a,b", "--max-msgs", "7", "-f").ok()
    after = config_of(cli, "A")
    assert after == {**before, "subjects": ["a", "b"], "max_msgs": 7}


def test_a_file_that_leaves_out_the_duplicate_window_does_not_change_it(
    cli: Cli, tmp_path: Path
) -> None:
    cli("stream", "add", "A", "--subjects", "a", "--dupe-window", "30s").ok()
    path = tmp_path / "short.json"
    path.write_text('{"name": "A", "subjects": ["a", "b"], "allow_direct": true}')
    assert (
        "duplicate_window" not in cli("stream", "edit", "A", "--config", str(path), "-f").ok().out
    )
    assert config_of(cli, "A")["duplicate_window"] == 30_000_000_000


def test_a_file_that_leaves_out_defaults_makes_no_difference(cli: Cli, tmp_path: Path) -> None:
    cli("stream", "add", "A", "--subjects", "a").ok()
    path = tmp_path / "short.json"
    path.write_text('{"name": "A", "subjects": ["a"], "allow_direct": true}')
    shown = cli("stream", "edit", "A", "--config", str(path)).ok().out
    assert shown == "No difference in configuration\n"


def test_dry_run_changes_nothing(cli: Cli) -> None:
    cli("stream", "add", "A", "--subjects", "a").ok()
    before = config_of(cli, "A")
    assert (
        "+       max_msgs:" in cli("stream", "edit", "A", "--max-msgs", "7", "--dry-run").ok().out
    )
    assert config_of(cli, "A") == before


def test_edit_without_a_terminal_wants_force(cli: Cli) -> None:
    cli("stream", "add", "A", "--subjects", "a").ok()
    outcome = cli("stream", "edit", "A", "--max-msgs", "7")
    assert outcome.code == EXIT_USAGE
    assert "Really edit Stream A" in outcome.err
    assert config_of(cli, "A")["max_msgs"] == -1


def test_edit_in_an_editor(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("stream", "add", "A", "--subjects", "a").ok()
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\nsed -i \'s/"max_msgs": -1/"max_msgs": 12/\' "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("EDITOR", str(editor))
    cli("stream", "edit", "A", "-i", "-f").ok()
    assert config_of(cli, "A")["max_msgs"] == 12
    monkeypatch.setenv("EDITOR", "false")
    assert "nothing was changed" in cli("stream", "edit", "A", "-i", "-f").err


def test_copy_takes_the_configuration(cli: Cli) -> None:
    cli("stream", "add", "A", "--subjects", "a", "--max-msgs", "5", "--metadata", "k=v").ok()
    cli("stream", "cp", "A", "B", "--subjects", "b").ok()
    config = config_of(cli, "B")
    assert (config["subjects"], config["max_msgs"]) == (["b"], 5)
    assert config["metadata"]["k"] == "v"


def test_an_unknown_stream_gets_near_names(cli: Cli) -> None:
    none = cli("stream", "info", "LOGS")
    assert none.code == EXIT_FAILED
    assert "could not pick a Stream to operate on: no Streams are defined" in none.err
    cli("stream", "add", "ORDERS", "--subjects", "orders.*").ok()
    for command in ("info", "state", "view", "subjects"):
        assert "did you mean 'ORDERS'?" in cli("stream", command, "ordres").err
    for command in ("rm", "purge", "seal"):
        assert "did you mean 'ORDERS'?" in cli("stream", command, "ordres", "-f").err
    assert "available: ORDERS" in cli("stream", "info").err


def test_the_server_is_quoted_with_what_to_type(cli: Cli) -> None:
    cli("stream", "add", "A", "--subjects", "a").ok()
    overlap = cli("stream", "add", "B", "--subjects", "a")
    assert overlap.code == EXIT_FAILED
    assert "subjects overlap with an existing stream (10065)" in overlap.err
    assert "tradewind stream ls --subject" in overlap.err
    taken = cli("stream", "add", "A", "--subjects", "z")
    assert "tradewind stream edit" in taken.err
    assert cli("stream", "ls", "--subject", "a", "-n").ok().out == "A\n"


def test_buckets_are_listed_only_if_asked_for(cli: Cli, js_server: ServerProcess) -> None:
    with connect(f"nats://127.0.0.1:{js_server.port}") as connection:
        connection.jetstream().kv.create("settings")
    assert "pass -a" in cli("stream", "ls").ok().out
    assert cli("stream", "ls", "-a", "-n").ok().out == "KV_settings\n"
    assert [info["config"]["name"] for info in cli("stream", "ls", "-a", "-j").ok().json] == [
        "KV_settings"
    ]


def test_messages_can_be_viewed_gotten_and_removed(cli: Cli, js_server: ServerProcess) -> None:
    cli("stream", "add", "A", "--subjects", "a.*").ok()
    assert cli("stream", "view", "A").ok().out == "No messages\n"
    publish(js_server, "a.1", "a.2", "a.1")
    page = cli("stream", "view", "A", "2").ok().out
    assert "[1] Subject: a.1 Received: " in page
    assert "[2] Subject: a.2 Received: " in page
    assert "[3]" not in page
    assert cli("stream", "view", "A", "--raw", "--subject", "a.2").ok().out == "hello\n"
    rest = cli("stream", "view", "A", "--id", "3").ok().out
    assert rest.startswith("[3]")
    assert rest.endswith("Reached apparent end of data\n")
    assert "  Trace: a.1" in rest
    lines = cli("stream", "view", "A", "--json").ok().out.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [1, 2, 3]
    assert json.loads(lines[0])["hdrs"] == {"Trace": ["a.1"]}
    assert cli("stream", "view", "A", "--since", "1h", "--raw").ok().out == "hello\n" * 3
    shown = cli("stream", "get", "A", "2").ok().out
    assert shown.startswith("Item: A#2 received ")
    assert shown.endswith(" on Subject a.2\n\n  Trace: a.2\n\nhello\n\n")
    last = cli("stream", "get", "A", "-S", "a.1", "--json").ok().json
    assert (last["seq"], last["subject"], last["data"]) == (3, "a.1", "aGVsbG8=")
    assert "HELLO" in cli("stream", "get", "A", "2", "--translate", "tr a-z A-Z").ok().out
    cli("stream", "rmm", "A", "2", "-f").ok()
    missing = cli("stream", "get", "A", "2")
    assert missing.code == EXIT_FAILED
    assert "Stream A has no message 2; it holds 1 to 3" in missing.err
    assert cli("stream", "rmm", "A", "2", "-f").code == EXIT_FAILED
    assert cli("stream", "state", "A", "-j").ok().json["messages"] == 2


def test_subjects_are_counted(cli: Cli, js_server: ServerProcess) -> None:
    cli("stream", "add", "A", "--subjects", "a.*").ok()
    assert cli("stream", "subjects", "A").ok().out == "No subjects found matching >\n"
    publish(js_server, "a.1", "a.2", "a.1")
    shown = cli("stream", "subjects", "A").ok().out
    assert "2 Subjects in stream A" in shown
    assert cli("stream", "subj", "A", "a.2", "-j").ok().json == {"a.2": 1}
    assert (
        cli("stream", "subjects", "A", "--names", "--sort", "name", "-R").ok().out == "a.2\na.1\n"
    )


def test_purge_says_how_many_were_removed(cli: Cli, js_server: ServerProcess) -> None:
    cli("stream", "add", "A", "--subjects", "a.*").ok()
    publish(js_server, *["a.1"] * 4, *["a.2"] * 6)
    one = cli("stream", "purge", "A", "--subject", "a.1", "--keep", "1", "-f").ok()
    assert one.out.startswith("3 messages were removed from Stream A\n")
    assert cli("stream", "purge", "A", "--seq", "7", "-f", "-j").ok().json["first_seq"] == 7
    assert cli("stream", "purge", "A", "-f").ok().out.startswith("4 messages")
    both = cli("stream", "purge", "A", "--seq", "7", "--keep", "1", "-f")
    assert both.code == EXIT_USAGE


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--keep", "2"],
        ["--keep", "20"],
        ["--seq", "5"],
        ["--seq", "100"],
        ["--subject", "a.1"],
        ["--subject", "a.*", "--keep", "3"],
        ["--subject", "a.1", "--seq", "3"],
    ],
)
def test_a_dry_purge_says_what_a_purge_would_remove(
    cli: Cli, js_server: ServerProcess, flags: list[str]
) -> None:
    cli("stream", "add", "A", "--subjects", "a.*").ok()
    publish(js_server, *["a.1"] * 4, *["a.2"] * 6)
    cli("stream", "rmm", "A", "2", "-f").ok()
    before = cli("stream", "info", "A", "-j").ok().json["state"]
    said = cli("stream", "purge", "A", "--dry-run", *flags).ok().out
    state = cli("stream", "info", "A", "-j").ok().json["state"]
    assert (state["messages"], state["consumer_count"]) == (before["messages"], 0)
    done = cli("stream", "purge", "A", "-f", *flags).ok().out
    assert said.split()[0] == done.split()[0]


def test_a_truncation_says_what_goes_asks_and_can_be_undone(
    cli: Cli, js_server: ServerProcess
) -> None:
    cli("stream", "add", "A", "--subjects", "a.*", "--storage", "file").ok()
    publish(js_server, *["a.1"] * 4, *["a.2"] * 6)
    flags = ("stream", "truncate", "A", "--newest", "3", "--keep-for", "1h")
    if js_server.kind == "official":
        assert "requires a tradewind-server" in cli(*flags, "--yes").err
        return
    assert cli("stream", "truncate", "A").code == EXIT_USAGE
    tried = cli(*flags, "--dry-run").ok().out
    assert tried.startswith("3 messages (")
    assert "would be removed from Stream A: sequences 8 to 10, stored" in tried
    refused = cli(*flags)
    assert refused.code == EXIT_USAGE
    assert "sequences 8 to 10" in refused.err
    assert cli("stream", "info", "A", "-j").ok().json["state"]["messages"] == 10
    done = cli(*flags, "--yes").ok().out
    assert "3 messages" in done
    assert "tradewind stream undo A " in done
    assert cli("stream", "truncate", "A", "--header", "Kind=x", "-y").ok().out.startswith("0 mess")
    (window,) = cli("stream", "undo", "A", "--list", "-j").ok().json
    assert (window["messages"], window["id"]) == (3, done.split()[-1])
    assert window["id"] in cli("stream", "undo", "A", "--list", "--wide").ok().out
    undone = cli("stream", "undo", "A", "--yes").ok().out
    assert undone == "3 messages restored to Stream A\n"
    assert "has no truncation that can be undone" in cli("stream", "undo", "A", "--yes").err


def test_templates_are_made_shown_tried_and_removed(cli: Cli, js_server: ServerProcess) -> None:
    flags = ("template", "add", "T", "--match", "t.*.>", "--stream", "T_{1}")
    if js_server.kind == "official":
        assert "requires a tradewind-server" in cli(*flags).err
        return
    assert "plain token" in cli("template", "add", "T", "--match", "*.>", "--stream", "T_{1}").err
    assert cli(*flags, "--dry-run").ok().out == "Template T is valid\n"
    assert cli("template", "ls").ok().out == "No Templates defined\n"
    cli(*flags, "--max-streams", "2", "--idle", "1h", "--max-msgs", "5").ok()
    assert "t.*.>" in cli("template", "ls").ok().out
    (listed,) = cli("template", "ls", "-j").ok().json
    assert (listed["template"]["config"]["max_msgs"], listed["streams"]) == (5, 0)
    tried = cli("template", "try", "t.web.x").ok().out
    assert tried == "Template T would create Stream T_web for t.web.>\n"
    assert "no template matches this subject" in cli("template", "try", "u.web").err
    publish(js_server, "t.web.x", "t.web.y")
    assert cli("stream", "info", "T_web", "-j").ok().json["state"]["messages"] == 2
    assert cli("template", "rm", "T").code == EXIT_USAGE
    cli("template", "rm", "T", "-f").ok()
    assert cli("template", "ls", "-j").ok().json == []


def test_report_and_find_compare_streams(cli: Cli, js_server: ServerProcess) -> None:
    cli("stream", "add", "FULL", "--subjects", "full").ok()
    cli("stream", "add", "EMPTY", "--subjects", "empty", "--storage", "memory").ok()
    publish(js_server, "full", "full")
    assert "Stream Report" in cli("stream", "report").ok().out
    by_messages = cli("stream", "report", "-m", "-j").ok().json
    assert [info["config"]["name"] for info in by_messages] == ["EMPTY", "FULL"]
    assert cli("stream", "find", "--empty", "-n").ok().out == "EMPTY\n"
    assert cli("stream", "find", "--empty", "--invert", "-n").ok().out == "FULL\n"
    assert cli("stream", "find", "--created", "1h").ok().out == "No Streams match\n"
    assert cli("stream", "find", "--idle", "1h").ok().out == "No Streams match\n"
    assert cli("stream", "find", "--subject", "full", "-n").ok().out == "FULL\n"
    assert cli("stream", "find", "--consumers", "1", "--replicas", "1", "-j").ok().json


def test_origins_elsewhere_reach_the_server_and_are_shown(cli: Cli) -> None:
    elsewhere = ["--origin-prefix", "$JS.hub.API", "--origin-deliver", "far"]
    shown = cli("stream", "add", "FAR", "--mirror", "ORDERS", *elsewhere).ok().out
    assert "ORDERS, API prefix $JS.hub.API, delivery prefix far" in shown
    external = {"api": "$JS.hub.API", "deliver": "far"}
    assert config_of(cli, "FAR")["mirror"] == {"name": "ORDERS", "external": external}
    given = {"name": "Y", "consumer": {"name": "c", "deliver_subject": "d"}}
    other = {"name": "Z", "external": {"api": "$JS.west.API", "deliver": ""}}
    sources = [
        item for each in ("X", json.dumps(given), json.dumps(other)) for item in ("--source", each)
    ]
    shown = cli("stream", "add", "ALL", *sources, *elsewhere).ok().out
    assert "Y, API prefix $JS.hub.API, delivery prefix far, consumer c on d" in shown
    found = config_of(cli, "ALL")["sources"]
    assert [each["external"]["api"] for each in found] == [
        "$JS.hub.API",
        "$JS.hub.API",
        "$JS.west.API",
    ]
    cli("stream", "rm", "FAR", "-f").ok()
    cli("stream", "rm", "ALL", "-f").ok()


def test_mirrors_sources_and_clusters_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    info = msgspec.convert(
        {
            "config": {
                "name": "COPY",
                "mirror": {"name": "FULL", "filter_subject": "full.>", "opt_start_seq": 7},
            },
            "mirror": {"name": "FULL", "lag": 12, "active": 1_500_000_000},
            "sources": [{"name": "X", "active": -1, "error": {"description": "gone"}}],
            "state": {"lost": {"msgs": [1, 2], "bytes": 2048}},
            "cluster": {
                "name": "east",
                "leader": "n1",
                "replicas": [{"name": "n2", "current": True, "active": 10**9, "lag": 3}],
            },
        },
        StreamInfo,
    )
    show_stream(info)
    shown = capsys.readouterr().out
    for text in (
        "Mirror: FULL, from sequence 7, only full.>",
        "Lag: 12",
        "Last Seen: 1.50s",
        "Last Seen: never",
        "Error: gone",
        "Leader: n1",
        "Replica: n2, current, seen 1.00s ago, 3 operations behind",
        "Lost Messages: 2 (2.0 KiB)",
    ):
        assert text in shown


def test_gaps_are_shown_as_ranges(cli: Cli, js_server: ServerProcess) -> None:
    cli("stream", "add", "A", "--subjects", "a").ok()
    publish(js_server, *["a"] * 9)
    assert cli("stream", "gaps", "A").ok().out == "No deleted messages in A\n"
    for sequence in ("3", "4", "5", "7"):
        cli("stream", "rmm", "A", sequence, "-f").ok()
    assert cli("stream", "gaps", "A", "-j").ok().json == [[3, 5], [7, 7]]
    assert "2 gaps in Stream A" in cli("stream", "gaps", "A").ok().out


def test_a_sealed_stream_takes_nothing_more(cli: Cli, js_server: ServerProcess) -> None:
    cli("stream", "add", "A", "--subjects", "a").ok()
    publish(js_server, "a")
    assert "Sealed: true" in cli("stream", "seal", "A", "-f").ok().out
    assert cli("stream", "purge", "A", "-f").code == EXIT_FAILED
    assert cli("stream", "rmm", "A", "1", "-f").code == EXIT_FAILED


def test_names_can_be_completed(cli: Cli, process: Cli) -> None:
    cli("stream", "add", "ORDERS", "--subjects", "orders.*").ok()
    cli("stream", "add", "OTHERS", "--subjects", "others.*").ok()
    outcome = process(
        env={
            "_TRADEWIND_COMPLETE": "complete_bash",
            "COMP_WORDS": "tradewind stream info OR",
            "COMP_CWORD": "3",
        }
    )
    assert outcome.out.split() == ["ORDERS"]
