"""`tradewind backup` on both servers: what it prints, and what it says when something is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli_outcome import Cli


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "place")


def make_stream(cli: Cli, name: str = "ORDERS") -> None:
    assert cli("stream", "add", name, "--subjects", f"{name.lower()}.>").code == 0
    assert cli("pub", f"{name.lower()}.new", "order {{Count}}", "--count", "3").code == 0


def test_a_backup_is_made_listed_verified_restored_and_pruned(cli: Cli, place: str) -> None:
    make_stream(cli)
    cli("consumer", "add", "ORDERS", "packer", "--pull")
    made = cli("backup", "create", place, "--comment", "before the change")
    assert made.code == 0, made.err
    assert re.fullmatch(r"Backup \S+: 1 stream with 3 messages, [\d.]+ \S+ added\n", made.out), (
        made.out
    )
    cli("pub", "orders.new", "one more")
    cli("backup", "create", place)
    listed = cli("backup", "ls", place)
    assert len(listed.out.splitlines()) == 8
    records = json.loads(cli("backup", "ls", place, "--json").out)["backups"]
    first, second = (record["id"] for record in records)
    assert [record.get("comment", "") for record in records] == ["before the change", ""]
    assert [record["streams"][0]["messages"] for record in records] == [3, 4]
    verified = cli("backup", "verify", place)
    assert (verified.code, verified.err) == (0, "")
    assert verified.out.startswith("2 backups, 4 messages in 2 objects")
    shown = cli("backup", "info", place, first)
    assert "ORDERS" in shown.out
    assert "each stream as it was between" in shown.out or "all streams as they were" in shown.out
    refused = cli("backup", "restore", place)
    assert (refused.code, "ORDERS" in refused.err) == (1, True)
    assert "--rename OLD=NEW" in refused.err
    restored = cli("backup", "restore", place, first, "--rename", "ORDERS=EARLIER")
    assert restored.code == 0, restored.err
    assert "ORDERS as EARLIER: 3 messages, 1 consumer" in restored.out
    trial = cli("backup", "prune", place, "--keep-last", "1", "--dry-run")
    assert f"would remove {first}" in trial.out
    assert cli("backup", "ls", place).out == listed.out
    pruned = cli("backup", "prune", place, "--keep-last", "1", "--force")
    assert f"removed {first}" in pruned.out
    assert "1 backup kept" in pruned.out
    assert [
        each["id"] for each in json.loads(cli("backup", "ls", place, "--json").out)["backups"]
    ] == [second]


def test_a_time_names_the_last_backup_before_it(cli: Cli, place: str) -> None:
    make_stream(cli)
    cli("backup", "create", place)
    assert cli("backup", "info", place, "--at", "0s").code == 0
    early = cli("backup", "info", place, "--at", "2020-01-01T00:00:00Z")
    assert (early.code, "no backup is from before 2020-01-01" in early.err) == (1, True)
    both = cli("backup", "info", place, "x", "--at", "1h")
    assert (both.code, "use only one" in both.err) == (2, True)


def test_a_damaged_file_is_named_and_fails_the_command(cli: Cli, place: str) -> None:
    make_stream(cli)
    cli("backup", "create", place)
    for path in Path(place, "objects").rglob("*"):
        if path.is_file():
            path.write_bytes(b"x")
    verified = cli("backup", "verify", place)
    assert verified.code == 1
    assert re.search(r"ORDERS: objects/\S+: damaged, its digest does not match", verified.err)
    restored = cli("backup", "restore", place, "--rename", "ORDERS=COPY")
    assert (restored.code, "ORDERS: not restored: objects/" in restored.err) == (1, True)
    Path(place, "backups", "broken.json").write_text("{")
    listed = cli("backup", "ls", place)
    assert (listed.code, "broken.json: not a backup" in listed.err) == (1, True)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("verify", "PLACE", "nothing"), "there are no backups"),
        (("restore", "PLACE"), "there are no backups"),
        (("restore", "PLACE", "--rename", "A"), "--rename must be OLD=NEW"),
        (("restore", "PLACE", "--since", "soon"), "--since"),
        (("prune", "PLACE"), "name one of --keep-last"),
        (("ls", "/proc/self/cmdline"), "Not a directory"),
        (("ls", "nosuch://bucket"), "nosuch"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    offline: Cli, place: str, args: tuple[str, ...], text: str
) -> None:
    outcome = offline("backup", *(place if arg == "PLACE" else arg for arg in args))
    assert outcome.code in (1, 2)
    assert text in outcome.err
    assert "Traceback" not in outcome.err


def test_an_empty_place_has_no_backups(offline: Cli, place: str) -> None:
    assert offline("backup", "ls", place).out == "No backups\n"
