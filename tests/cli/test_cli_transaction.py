"""`tradewind transaction`."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from cli_outcome import Cli, type_in

only_tradewind = pytest.mark.parametrize("js_server", ["tradewind"], indirect=True)


def prepare(cli: Cli) -> None:
    for name in ("BILLS", "BOOKS", "DRAFTS"):
        cli("stream", "add", name, "--subjects", f"{name.lower()}.>", "--defaults").ok()
    cli("pub", "-J", "drafts.17", "draft").ok()


@only_tradewind
def test_flags_and_a_file_are_committed_together(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(cli)
    payload = base64.b64encode(b"two apples").decode()
    request = {
        "publishes": [
            {"subject": "bills.1", "payload": payload, "headers": {"Colour": ["red", "blue"]}}
        ]
    }
    path = tmp_path / "transaction.json"
    path.write_text(json.dumps(request))
    words = ("--publish", "books.1=a=b", "--delete", "DRAFTS:1")
    assert cli("transaction", str(path), *words).ok().out == (
        "Published bills.1: message 1 of BILLS\nPublished books.1: message 1 of BOOKS\nDeleted: 1\n"
    )
    shown = cli("stream", "get", "BILLS", "1").ok().out
    assert "two apples" in shown
    assert "red" in shown
    assert "blue" in shown
    assert cli("stream", "get", "BOOKS", "1").ok().out.rstrip().endswith("a=b")
    type_in(monkeypatch, json.dumps(request).encode())
    answer = cli("transaction", "-", "--json").ok().json
    assert answer["publishes"] == [{"stream": "BILLS", "seq": 2}]
    cli("consumer", "add", "BOOKS", "c", "--pull", "--ack", "explicit", "--defaults").ok()
    cli("consumer", "next", "BOOKS", "c", "--ack").ok()
    path.write_text('{"revivals": [{"stream": "BOOKS", "consumer": "c", "seq": 1}]}')
    assert cli("transaction", str(path)).ok().out == "Delivered again: 1\n"
    assert "a=b" in cli("consumer", "next", "BOOKS", "c", "--ack").ok().out


@only_tradewind
def test_a_refusal_names_the_member_and_nothing_happens(cli: Cli) -> None:
    prepare(cli)
    refused = cli("transaction", "--publish", "bills.1=x", "--delete", "DRAFTS:9")
    assert refused.code == 1
    assert "deletes[0]" in refused.err
    assert "BILLS" in cli("stream", "ls").ok().out
    assert cli("stream", "info", "BILLS", "--json").ok().json["state"]["messages"] == 0
    gone = cli("transaction", "--ack", "$JS.ACK.DRAFTS.c.1.1.1.0.0")
    assert gone.code == 1
    assert "acks[0]" in gone.err


def test_what_cannot_be_right_is_refused_before_anything_is_sent(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"publish": []}')
    for words, text in (
        ((), "the transaction is empty"),
        (("--publish", "bills.1"), "--publish 'bills.1': write SUBJECT=DATA"),
        (("--publish", "a b=x"), "subject 'a b'"),
        (("--delete", "DRAFTS"), "--delete 'DRAFTS': write STREAM:SEQUENCE"),
        (("--delete", "DRAFTS:0"), "--delete 'DRAFTS:0': write STREAM:SEQUENCE"),
        (("--ack", "me"), "ack: only messages that a consumer has delivered"),
        ((str(path),), f"{path}: "),
        ((str(tmp_path / "none"),), "No such file"),
    ):
        refused = cli("transaction", *words)
        assert refused.code != 0
        assert text in refused.err, (words, refused.err)


@pytest.mark.parametrize("js_server", ["official"], indirect=True)
def test_another_server_is_named_as_the_reason(cli: Cli) -> None:
    refused = cli("transaction", "--publish", "bills.1=x")
    assert refused.code == 1
    assert "transactions need a Tradewind server" in refused.err
