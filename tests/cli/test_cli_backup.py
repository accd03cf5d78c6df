"""Backups of streams: each server's are restored by both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_outcome import Cli
from harness import ServerProcess
from tradewind.cli.frame.failures import EXIT_FAILED
from tradewind.client.core.message import Msg
from tradewind.sync import connect

MESSAGES = 300


@pytest.fixture
def other_server(js_server: ServerProcess, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of the other kind."""
    kind = "official" if js_server.kind == "tradewind" else "tradewind"
    flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(tmp_path / "other")]
    process = ServerProcess(kind, flags)
    try:
        yield process.wait_ready()
    finally:
        process.stop()


def fill(server: ServerProcess) -> None:
    with connect(f"nats://127.0.0.1:{server.port}") as connection:
        js = connection.jetstream()
        js.manager.streams.add(name="ORDERS", subjects=["orders.*"], description="kept")
        for number in range(MESSAGES):
            js.publish_async(f"orders.{number % 7}", bytes([number % 256]) * 3000)
        js.publish_async_completed()
        js.manager.streams.delete_message("ORDERS", 17)
        js.manager.consumers.add("ORDERS", durable_name="packer", ack_policy="explicit")
        for message in js.consumers.get("ORDERS", "packer").fetch(5):
            message.ack_sync()


def content(server: ServerProcess) -> tuple[object, ...]:
    with connect(f"nats://127.0.0.1:{server.port}") as connection:
        manager = connection.jetstream_manager()
        info = manager.streams.info("ORDERS", deleted_details=True)
        messages = [
            manager.streams.get_message("ORDERS", seq=seq)
            for seq in range(1, MESSAGES + 1)
            if seq != 17
        ]
        consumer = manager.consumers.info("ORDERS", "packer")
        return (
            info.state,
            info.config.description,
            [(each.seq, each.subject, each.data, each.time_ns) for each in messages],
            (consumer.ack_floor.stream_seq, consumer.num_pending),
        )


def test_a_backup_is_restored_by_either_server(
    cli: Cli, js_server: ServerProcess, other_server: ServerProcess, tmp_path: Path
) -> None:
    fill(js_server)
    saved = content(js_server)
    folder = tmp_path / "backup"
    made = cli("stream", "backup", "ORDERS", str(folder), "--check", "--chunk-size", "64KB").ok()
    assert "Starting backup of Stream 'ORDERS' with 299 messages" in made.out
    assert sorted(path.name for path in folder.iterdir()) == ["backup.json", "stream.tar.s2"]
    assert json.loads((folder / "backup.json").read_text())["config"]["name"] == "ORDERS"
    cli("stream", "rm", "ORDERS", "-f").ok()
    assert "Restored Stream 'ORDERS'" in cli("stream", "restore", str(folder)).ok().out
    assert content(js_server) == saved
    url = f"nats://127.0.0.1:{other_server.port}"
    cli("stream", "restore", str(folder), "-s", url).ok()
    assert content(other_server) == saved


def test_consumers_can_be_left_out_and_settings_changed(
    cli: Cli, js_server: ServerProcess, tmp_path: Path
) -> None:
    fill(js_server)
    folder, changed = tmp_path / "backup", tmp_path / "changed.json"
    cli("stream", "backup", "ORDERS", str(folder), "--no-consumers", "--no-progress").ok()
    config = json.loads((folder / "backup.json").read_text())["config"]
    changed.write_text(json.dumps({**config, "max_msgs": 1000}))
    cli("stream", "rm", "ORDERS", "-f").ok()
    cli("stream", "restore", str(folder), "--config", str(changed)).ok()
    info = cli("stream", "info", "ORDERS", "-j").ok().json
    assert info["config"]["max_msgs"] == 1000
    assert info["state"]["messages"] == MESSAGES - 1
    assert info["state"]["consumer_count"] == 0


def test_settings_of_a_newer_server_are_not_lost_on_the_way(
    cli: Cli, js_server: ServerProcess, tmp_path: Path
) -> None:
    fill(js_server)
    folder = tmp_path / "backup"
    cli("stream", "backup", "ORDERS", str(folder)).ok()
    cli("stream", "rm", "ORDERS", "-f").ok()
    document = json.loads((folder / "backup.json").read_text())
    document["config"]["from_the_future"] = True
    (folder / "backup.json").write_text(json.dumps(document))
    refused = cli("stream", "restore", str(folder))
    assert refused.code == EXIT_FAILED
    assert "from_the_future" in refused.err


def test_a_stream_that_exists_is_not_replaced(
    cli: Cli, js_server: ServerProcess, tmp_path: Path
) -> None:
    fill(js_server)
    folder = tmp_path / "backup"
    cli("stream", "backup", "ORDERS", str(folder)).ok()
    refused = cli("stream", "restore", str(folder))
    assert refused.code == EXIT_FAILED
    assert "already in use" in refused.err


def test_no_backup_is_written_over_something(cli: Cli, tmp_path: Path) -> None:
    cli("stream", "add", "A", "--subjects", "a").ok()
    (tmp_path / "mine.txt").write_text("keep")
    refused = cli("stream", "backup", "A", str(tmp_path))
    assert refused.code == EXIT_FAILED
    assert "is not an empty folder" in refused.err


def test_what_is_no_backup_is_named(offline: Cli, tmp_path: Path) -> None:
    (tmp_path / "stream.tar.s2").write_bytes(b"half")
    outcome = offline("stream", "restore", str(tmp_path))
    assert outcome.code == EXIT_FAILED
    assert "backup.json: not found" in outcome.err


def test_a_damaged_backup_is_refused_by_the_server(
    cli: Cli, js_server: ServerProcess, tmp_path: Path
) -> None:
    fill(js_server)
    folder = tmp_path / "backup"
    cli("stream", "backup", "ORDERS", str(folder)).ok()
    cli("stream", "rm", "ORDERS", "-f").ok()
    data = folder / "stream.tar.s2"
    data.write_bytes(data.read_bytes()[:-2000])
    outcome = cli("stream", "restore", str(folder))
    assert outcome.code == EXIT_FAILED
    assert "restore failed" in outcome.err
    assert "tradewind stream info ORDERS" in outcome.err


def test_an_account_is_saved_and_restored_as_a_whole(
    cli: Cli, js_server: ServerProcess, tmp_path: Path
) -> None:
    fill(js_server)
    with connect(f"nats://127.0.0.1:{js_server.port}") as connection:
        connection.jetstream().kv.create("settings").put("colour", b"blue")
    folder = tmp_path / "all"
    made = cli("account", "backup", str(folder)).ok()
    assert "Starting backup of 2 Streams" in made.out
    assert sorted(path.name for path in folder.iterdir()) == ["KV_settings", "ORDERS"]
    cli("stream", "rm", "ORDERS", "-f").ok()
    half = cli("account", "restore", str(folder))
    assert half.code == EXIT_FAILED
    assert "not restored: KV_settings" in half.err
    assert "ORDERS: 299 messages" in half.out
    for name in ("ORDERS", "KV_settings"):
        cli("stream", "rm", name, "-f").ok()
    cli("account", "restore", str(folder)).ok()
    with connect(f"nats://127.0.0.1:{js_server.port}") as connection:
        entry = connection.jetstream().kv.open("settings").get("colour")
        assert entry is not None
        assert entry.value == b"blue"
    assert "no backup of an account" in cli("account", "restore", str(tmp_path / "none")).err


@pytest.mark.parametrize("name", ["../escaped", "{outside}", "a/b", "..", ".", "a\0b", ""])
def test_names_of_a_server_never_lead_out_of_the_folder_of_a_backup(
    cli: Cli, js_server: ServerProcess, tmp_path: Path, name: str
) -> None:
    """Whoever answers the API may send any name; here a client of the server does."""
    outside = tmp_path / "outside"
    config = {"name": name.format(outside=outside), "subjects": ["x"]}
    stream = {"config": config, "state": {}, "created": "2026-01-01T00:00:00Z"}
    page = {"total": 1, "offset": 0, "limit": 256, "streams": [stream]}
    target = tmp_path / "backups" / "here"
    with connect(f"nats://127.0.0.1:{js_server.port}") as connection:

        def answer(message: Msg) -> None:
            if message.subject.endswith("STREAM.LIST"):
                connection.publish(message.reply, json.dumps(page).encode())

        connection.subscribe("EVIL.API.>", callback=answer)
        connection.flush()
        outcome = cli("account", "backup", str(target), "--js-api-prefix", "EVIL.API")
    assert outcome.code == EXIT_FAILED
    assert "cannot be the name of a folder" in outcome.err
    assert "not saved" in outcome.err
    assert not outside.exists()
    assert not list(tmp_path.rglob("*.s2"))
