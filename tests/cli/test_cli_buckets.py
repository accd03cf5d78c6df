"""`tradewind kv` and `tradewind object`, against both servers."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from cli_outcome import Cli, Spawn, type_in


def rows(text: str) -> list[list[str]]:
    """The cells of a table, without its title and headings."""
    lines = [line for line in text.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines[2:]]


# ------------------------------------------------------------------ kv


def test_kv_add_shows_the_settings(cli: Cli) -> None:
    outcome = cli(
        *("kv", "add", "CFG", "--history", "5", "--ttl", "1h", "--max-value-size", "1KB"),
        *("--max-bucket-size", "1MB", "--storage", "memory", "--description", "Settings"),
        *("--metadata", "team=a"),
    ).ok()
    for text in (
        "Bucket Name: CFG",
        "History Kept: 5",
        "Values Stored: 0",
        "Compressed: false",
        "Maximum Bucket Size: 1.0 MiB",
        "Maximum Value Size: 1.0 KiB",
        "Maximum Age: 1h0m0s",
        "JetStream Stream: KV_CFG",
        "Storage: Memory",
        "Metadata: team: a",
    ):
        assert text in outcome.out
    config = cli("kv", "info", "CFG", "--json").ok().json["config"]
    assert (config["max_msgs_per_subject"], config["max_age"]) == (5, 3_600_000_000_000)


def test_kv_values_are_put_and_got(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("kv", "new", "CFG", "--storage", "memory").ok()
    assert cli("kv", "put", "CFG", "auth.user", "bob").ok().out == "bob\n"
    head, _, value = cli("kv", "get", "CFG", "auth.user").ok().out.partition("\n\n")
    assert head.startswith("CFG > auth.user revision: 1 created @ ")
    assert value == "bob\n"
    type_in(monkeypatch, b"from\nstdin")
    cli("kv", "put", "CFG", "auth.user").ok()
    got = cli("kv", "get", "CFG", "auth.user", "--json").ok().json
    assert (got["value"], got["revision"], got["operation"]) == ("from\nstdin", 2, "PUT")
    assert cli("kv", "get", "CFG", "auth.user", "--revision", "1").code == 1  # history is 1


def test_kv_raw_value_is_the_value_and_nothing_else(cli: Cli, process: Cli) -> None:
    cli("kv", "add", "CFG", "--storage", "memory").ok()
    cli("kv", "put", "CFG", "k", "no line end").ok()
    assert process("kv", "get", "CFG", "k", "--raw").ok().out == "no line end"


def test_kv_conflicts_are_refused(cli: Cli) -> None:
    cli("kv", "add", "CFG", "--storage", "memory").ok()
    cli("kv", "create", "CFG", "k", "1").ok()
    again = cli("kv", "create", "CFG", "k", "2")
    assert again.code == 1
    assert "has a value already" in again.err
    cli("kv", "update", "CFG", "k", "2", "1").ok()
    late = cli("kv", "update", "CFG", "k", "3", "1")
    assert late.code == 1
    assert "revision" in late.err
    assert cli("kv", "get", "CFG", "k", "--json").ok().json["value"] == "2"


def test_kv_history_and_revert(cli: Cli) -> None:
    cli("kv", "add", "CFG", "--history", "10", "--storage", "memory").ok()
    for value in ("one", "two"):
        cli("kv", "put", "CFG", "k", value).ok()
    cli("kv", "del", "CFG", "k", "-f").ok()
    cells = rows(cli("kv", "history", "CFG", "k").ok().out)
    assert [(row[1], row[2], row[5]) for row in cells] == [
        ("1", "PUT", "one"),
        ("2", "PUT", "two"),
        ("3", "DELETE", ""),
    ]
    cli("kv", "revert", "CFG", "k", "1", "--force").ok()
    assert cli("kv", "get", "CFG", "k", "--json").ok().json["value"] == "one"
    missing = cli("kv", "revert", "CFG", "k", "99", "-f")
    assert missing.code == 1
    assert "available: 1, 2, 4" in missing.err
    cli("kv", "purge", "CFG", "k", "-f").ok()
    documents = cli("kv", "history", "CFG", "k", "--json").ok().json
    assert [each["operation"] for each in documents] == ["PURGE"]


def test_kv_listing(cli: Cli) -> None:
    assert cli("kv", "ls").ok().out == "No Key-Value buckets found\n"
    cli("kv", "add", "B", "--storage", "memory").ok()
    assert cli("kv", "ls", "B").ok().out == "No keys found in bucket\n"
    for key in ("z", "a"):
        cli("kv", "put", "B", key, f"value of {key}").ok()
    assert cli("kv", "ls", "B").ok().out == "a\nz\n"
    assert cli("kv", "ls", "B", "--json").ok().json == ["a", "z"]
    cells = rows(cli("kv", "ls", "B", "-v", "--display-value").ok().out)
    assert [(row[0], row[3], row[4]) for row in cells] == [
        ("a", "2", "value of a"),
        ("z", "1", "value of z"),
    ]
    assert cli("kv", "ls", "-n").ok().out == "B\n"
    assert [row[0] for row in rows(cli("kv", "ls").ok().out)] == ["B"]


def test_kv_watch_shows_changes(cli: Cli) -> None:
    cli("kv", "add", "B", "--history", "5", "--storage", "memory").ok()
    cli("kv", "put", "B", "a.1", "one").ok()
    cli("kv", "put", "B", "b.1", "other").ok()
    cli("kv", "put", "B", "a.1", "two").ok()
    cli("kv", "rm", "B", "b.1", "-f").ok()

    def changes(*args: str, count: int) -> list[str]:
        lines = cli("kv", "watch", "B", *args, "--count", str(count)).ok().out.splitlines()
        return [line.partition("] ")[2] for line in lines]

    assert changes(count=2) == ["PUT B > a.1: two", "DELETE B > b.1"]
    assert changes("a.*", "--history", count=2) == ["PUT B > a.1: one", "PUT B > a.1: two"]
    assert changes("--no-deletes", count=1) == ["PUT B > a.1: two"]
    assert changes("--revision", "3", count=2) == ["PUT B > a.1: two", "DELETE B > b.1"]
    assert cli("kv", "watch", "B", "--count", "1", "--json").ok().json["value"] == "two"


def test_kv_edit_changes_what_is_given(cli: Cli) -> None:
    cli("kv", "add", "B", "--history", "3", "--description", "x", "--storage", "memory").ok()
    cli("kv", "edit", "B", "--history", "7", "-f").ok()
    config = cli("kv", "status", "B", "--json").ok().json["config"]
    assert (config["max_msgs_per_subject"], config["description"]) == (7, "x")
    nothing = cli("kv", "edit", "B")
    assert nothing.code == 1
    assert "nothing to change: no settings given" in nothing.err


def test_kv_compact_removes_deleted_keys(cli: Cli) -> None:
    cli("kv", "add", "B", "--storage", "memory").ok()
    for key in ("a", "b"):
        cli("kv", "put", "B", key, "x").ok()
    cli("kv", "del", "B", "a", "-f").ok()
    outcome = cli("kv", "compact", "B", "-f", "--older-than", "0s").ok()
    assert outcome.out == "Removed 1 deleted keys from bucket B\n"
    assert cli("kv", "info", "B", "--json").ok().json["state"]["messages"] == 1


def test_kv_bucket_is_deleted_only_with_a_yes(cli: Cli) -> None:
    cli("kv", "add", "B", "--storage", "memory").ok()
    refused = cli("kv", "del", "B")
    assert refused.code == 2
    assert "Delete bucket B" in refused.err
    cli("kv", "del", "B", "--force").ok()
    assert cli("kv", "info", "B").code == 1


def test_kv_unknown_names_get_help(cli: Cli) -> None:
    cli("kv", "add", "CONFIG", "--storage", "memory").ok()
    bucket = cli("kv", "get", "CONFGI", "k")
    assert bucket.code == 1
    assert "did you mean 'CONFIG'?" in bucket.err
    assert "tradewind kv add CONFGI" in bucket.err
    key = cli("kv", "get", "CONFIG", "k")
    assert key.code == 1
    assert "key 'k' of bucket 'CONFIG' has no value" in key.err
    wrong = cli("kv", "add", "X", "--history", "65")
    assert wrong.code == 2
    assert "--history must be from 1 to 64, not 65" in wrong.err


# ------------------------------------------------------------------ object


def test_object_goes_in_and_out_unchanged(cli: Cli, tmp_path: Path) -> None:
    data = os.urandom(300_000)
    source, target = tmp_path / "film.bin", tmp_path / "copy.bin"
    source.write_bytes(data)
    cli("object", "add", "FILES", "--storage", "memory", "--description", "Films").ok()
    stored = cli(
        "obj", "put", "FILES", str(source), "--name", "film", "-H", "Kind:x", "--description", "d"
    ).ok()
    assert "Object information for FILES > film" in stored.out
    assert "Size: 293 KiB" in stored.out
    assert f"Digest: SHA-256 {hashlib.sha256(data).hexdigest()}" in stored.out
    assert "Headers: Kind: x" in stored.out
    outcome = cli("obj", "get", "FILES", "film", "-O", str(target)).ok()
    assert target.read_bytes() == data
    assert outcome.out.startswith(f"Wrote: 293 KiB to {target} in ")
    described = cli("obj", "info", "FILES", "film", "--json").ok().json
    assert (described["size"], described["chunks"], described["description"]) == (300_000, 3, "d")


def test_object_from_the_input_and_to_the_output(
    cli: Cli, process: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("obj", "add", "FILES", "--storage", "memory").ok()
    type_in(monkeypatch, b"some text")
    nameless = cli("obj", "put", "FILES")
    assert nameless.code == 2
    assert "--name" in nameless.err
    cli("obj", "put", "FILES", "--name", "note").ok()
    assert process("obj", "get", "FILES", "note", "-O", "-").ok().out == "some text"
    assert process("kv", "ls").ok().out == "No Key-Value buckets found\n"


def test_object_is_replaced_only_with_a_yes(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("one")
    cli("obj", "add", "FILES", "--storage", "memory").ok()
    cli("obj", "put", "FILES", str(file), "--name", "f").ok()
    assert cli("obj", "put", "FILES", str(file), "--name", "f").code == 2
    file.write_text("two!")
    assert cli("obj", "get", "FILES", "f", "-O", str(file)).code == 2
    assert file.read_text() == "two!"
    cli("obj", "put", "FILES", str(file), "--name", "f", "-f").ok()
    assert cli("obj", "info", "FILES", "f", "--json").ok().json["size"] == 4


def test_object_listing_and_deleting(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("one")
    assert cli("obj", "ls").ok().out == "No Object Store buckets found\n"
    cli("obj", "add", "FILES", "--storage", "memory").ok()
    assert cli("obj", "ls", "FILES").ok().out == "No entries found\n"
    for name in ("b", "a"):
        cli("obj", "put", "FILES", str(file), "--name", name).ok()
    assert [row[:2] for row in rows(cli("obj", "ls", "FILES").ok().out)] == [
        ["a", "3 B"],
        ["b", "3 B"],
    ]
    lines = cli("obj", "watch", "FILES", "--count", "2").ok().out.splitlines()
    assert [line.partition("] ")[2] for line in lines] == [
        "PUT FILES > b: 3 B in 1 chunks",
        "PUT FILES > a: 3 B in 1 chunks",
    ]
    assert "Removed FILES > a" in cli("obj", "rm", "FILES", "a", "-f").ok().out
    assert cli("obj", "ls", "FILES", "-n").ok().out == "b\n"
    assert cli("obj", "ls", "--names").ok().out == "FILES\n"
    missing = cli("obj", "get", "FILES", "c")
    assert missing.code == 1
    assert "has no object 'c'" in missing.err
    cli("obj", "del", "FILES", "-f").ok()
    assert "bucket 'FILES' does not exist" in cli("obj", "info", "FILES").err


def test_object_store_is_sealed(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("one")
    cli("obj", "add", "FILES", "--storage", "memory").ok()
    assert "Sealed: true" in cli("obj", "seal", "FILES", "-f").ok().out
    refused = cli("obj", "put", "FILES", str(file))
    assert refused.code == 1
    assert "sealed" in refused.err


def test_object_edit_changes_the_store(cli: Cli) -> None:
    cli("obj", "add", "FILES", "--storage", "memory").ok()
    cli("obj", "edit", "FILES", "--description", "new", "--max-bucket-size", "1GB", "-f").ok()
    config = cli("obj", "info", "FILES", "--json").ok().json["config"]
    assert (config["description"], config["max_bytes"]) == ("new", 1 << 30)


# ------------------------------------------------------------------ kv: expiry, numbers and locks


def test_kv_values_expire_as_the_flags_say(cli: Cli) -> None:
    cli("kv", "add", "CFG", "--history", "5", "--allow-ttl", "--storage", "memory").ok()
    cli("kv", "put", "CFG", "k", "1").ok()
    assert "ttl" not in cli("kv", "get", "CFG", "k", "--json").ok().json
    assert cli("kv", "put", "CFG", "k", "2", "--ttl", "1h").ok().out == "2\n"
    assert " ttl: 1h0m0s\n" in cli("kv", "get", "CFG", "k").ok().out
    assert len(rows(cli("kv", "history", "CFG", "k").ok().out)) == 1
    shown = cli("kv", "touch", "CFG", "k", "2h").ok().out
    assert shown == "CFG > k expires in 2h, revision: 3\n"
    cli("kv", "update", "CFG", "k", "3", "3", "--ttl", "keep").ok()
    kept = cli("kv", "get", "CFG", "k", "--json", "--renew", "2h").ok().json
    assert 7000 < kept["ttl"] <= 7200
    cli("kv", "update", "CFG", "k", "3", str(kept["revision"])).ok()
    assert "ttl" not in cli("kv", "get", "CFG", "k", "--json").ok().json
    error = cli("kv", "touch", "CFG", "absent", "2h").err
    assert "key 'absent' of bucket 'CFG' has no value" in error
    assert "ttl must be at least 1 second" in cli("kv", "touch", "CFG", "k", "5ms").err


def test_kv_without_ttl_says_how_to_allow_it(cli: Cli) -> None:
    cli("kv", "add", "CFG", "--storage", "memory").ok()
    error = cli("kv", "put", "CFG", "k", "1", "--ttl", "1h").err
    assert "allow_ttl" in error
    cli("kv", "edit", "CFG", "--allow-ttl", "-f").ok()
    cli("kv", "put", "CFG", "k", "1", "--ttl", "1h").ok()


def test_kv_increment_prints_the_result(cli: Cli) -> None:
    cli("kv", "add", "CFG", "--storage", "memory").ok()
    assert cli("kv", "increment", "CFG", "hits").ok().out == "1\n"
    assert cli("kv", "incr", "CFG", "hits", "41").ok().out == "42\n"
    assert cli("kv", "incr", "CFG", "hits", "--", "-2").ok().out == "40\n"
    cli("kv", "put", "CFG", "name", "bob").ok()
    assert "must hold a whole number" in cli("kv", "incr", "CFG", "name").err
    assert cli("kv", "incr", "CFG", "hits", "1.5").code == 2
    assert "does not fit" in cli("kv", "incr", "CFG", "hits", str((1 << 63) - 1)).err


def test_kv_lock_runs_a_command_alone(cli: Cli, process: Cli) -> None:
    cli("kv", "add", "CFG", "--allow-ttl", "--storage", "memory").ok()
    show = ("sh", "-c", "echo $TRADEWIND_LOCK_TOKEN")
    first, second = (process("kv", "lock", "CFG", "l", "--", *show).ok() for _ in range(2))
    assert 0 < int(first.out) < int(second.out)
    assert process("kv", "lock", "CFG", "l", "--", "sh", "-c", "exit 7").code == 7
    assert process("kv", "lock", "CFG", "l", "--", "sh", "-c", "kill -9 $$").code == 128 + 9
    missing = process("kv", "lock", "CFG", "l", "--", "no-such-command-here")
    assert missing.code == 127
    assert "cannot run no-such-command-here: No such file" in missing.err
    assert "Traceback" not in missing.err
    assert cli("kv", "get", "CFG", "l").code == 1  # free after each of them


def test_kv_lock_of_another_holder_is_named(cli: Cli, process: Cli) -> None:
    cli("kv", "add", "CFG", "--allow-ttl", "--storage", "memory").ok()
    cli("kv", "put", "CFG", "l", "the night job").ok()
    outcome = process("kv", "lock", "CFG", "l", "--wait", "0s", "--", "true")
    assert outcome.code == 1
    assert "lock 'l' of bucket 'CFG' is held by 'the night job'" in outcome.err


@pytest.mark.parametrize("end", ["lost", "terminated"])
def test_kv_lock_stops_its_command_when_it_ends_early(cli: Cli, spawn: Spawn, end: str) -> None:
    cli("kv", "add", "CFG", "--allow-ttl", "--storage", "memory").ok()
    text = "trap 'echo stopped >&2; exit 3' TERM; echo up >&2; while :; do sleep 0.05; done"
    flags = ("kv", "lock", "CFG", "l", "--ttl", "1s", "--", "sh", "-c", text)
    running = spawn(*flags, until="up")
    if end == "lost":
        cli("kv", "put", "CFG", "l", "somebody else").ok()
    else:
        running.terminate()
    _, notes = running.communicate(timeout=60)
    assert "stopped" in notes
    assert running.returncode
    assert ("was lost" in notes) == (end == "lost")
    assert "Traceback" not in notes
    assert cli("kv", "get", "CFG", "l").code == (0 if end == "lost" else 1)
