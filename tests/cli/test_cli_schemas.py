"""`tradewind schema add|ls|show|check|evolve|rm`, beside the schemas of the API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_outcome import Cli

ORDER = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}


@pytest.fixture
def order(tmp_path: Path) -> Path:
    path = tmp_path / "order.json"
    path.write_text(json.dumps(ORDER))
    return path


def test_a_schema_lives_from_add_to_rm(cli: Cli, order: Path, tmp_path: Path) -> None:
    assert "No Schemas of payloads defined" in cli("schema", "ls", "--payloads").ok().out
    added = cli("schema", "add", "order", str(order), "--subject", "orders.*")
    assert added.ok().out.strip() == "Schema order version 1 was added for orders.*"
    payload = tmp_path / "payload"
    payload.write_text('{"id":"x"}')
    wrong = cli("schema", "check", "order", str(payload))
    assert wrong.code == 1
    assert 'does not obey order.1: /id: "x" is not of type "integer"' in wrong.err
    machine = cli("schema", "check", "order", str(payload), "--json")
    assert machine.json == {
        "schema": "order.1",
        "valid": False,
        "errors": ['/id: "x" is not of type "integer"'],
    }
    payload.write_text('{"id":1}')
    assert "obeys Schema order" in cli("schema", "check", "order", str(payload)).ok().out
    order.write_text(json.dumps({**ORDER, "required": ["id", "note"]}))
    refused = cli("schema", "evolve", "order", str(order))
    assert refused.code == 1
    assert "/note: is required now, and was not before" in refused.err
    order.write_text(json.dumps({**ORDER, "required": []}))
    tried = cli("schema", "evolve", "order", str(order), "--dry-run").ok().out
    assert "may become version 2 (backward)" in tried
    cli("schema", "evolve", "order", str(order)).ok()
    listed = cli("schema", "ls", "--payloads", "--json").ok().json
    assert [(each["name"], each["versions"]) for each in listed] == [("order", [1, 2])]
    assert cli("schema", "show", "order", "--version", "1", "--json").ok().json["schema"] == ORDER
    both = cli("schema", "ls").ok().out
    assert "Schemas of payloads" in both
    assert "stream_purge_request" in both
    assert "Removed 1 version" in cli("schema", "rm", "order", "--version", "1", "-f").ok().out
    assert "Removed 1 version" in cli("schema", "rm", "order", "-f").ok().out
    assert "does not exist" in cli("schema", "rm", "order", "-f").err


def test_what_is_no_schema_is_refused_in_one_line(cli: Cli, order: Path, tmp_path: Path) -> None:
    named = cli("schema", "add", "stream_configuration", str(order), "--subject", "x")
    assert "is the name of a schema of the JetStream API" in named.err
    source = tmp_path / "order.proto"
    source.write_text("message Order {}")
    assert (
        "protoc --include_imports" in cli("schema", "add", "o", str(source), "--subject", "x").err
    )
    missing = cli("schema", "add", "o", str(tmp_path / "none.json"), "--subject", "x")
    assert "cannot be read: No such file" in missing.err
    order.write_text("{")
    assert "not JSON" in cli("schema", "add", "o", str(order), "--subject", "x").err
    order.write_text('{"type": "foo"}')
    foo = cli("schema", "add", "o", str(order), "--subject", "x")
    assert foo.code == 1
    assert "not a JSON Schema: #/type" in foo.err
    assert foo.err.count("\n") == 1


def test_formats_are_told_by_the_name_of_the_file(cli: Cli, tmp_path: Path) -> None:
    avro = tmp_path / "reading.avsc"
    avro.write_text('{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}')
    cli("schema", "add", "reading", str(avro), "--subject", "readings").ok()
    written = tmp_path / "thing.yaml"
    written.write_text("type: object\nrequired: [id]\n")
    cli("schema", "add", "thing", str(written), "--subject", "things").ok()
    found = {e["name"]: e["format"] for e in cli("schema", "ls", "--payloads", "-j").ok().json}
    assert (found["reading"], found["thing"]) == ("avro", "json")
    cli("kv", "rm", "TW_SCHEMAS", "-f").ok()


def test_bodies_are_shown_by_the_schema_of_their_subject(cli: Cli, tmp_path: Path) -> None:
    avro = tmp_path / "reading.avsc"
    avro.write_text('{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}')
    cli("schema", "add", "reading", str(avro), "--subject", "shown.*").ok()
    cli("stream", "add", "SHOWN", "--subjects", "shown.>", "--defaults").ok()
    for subject, body in (("shown.a", "\x0e"), ("shown.a.b", "plain"), ("shown.c", "\x0e\x0e")):
        cli("pub", subject, body, "--no-templates").ok()
    shown = cli("sub", "--stream", "SHOWN", "--count", "3", "--raw", "--decode").ok()
    assert shown.out.split("\n")[-4:] == ['{"id":7}', "plain", "\x0e\x0e", ""]
    assert "shown.c: 1 bytes follow the record" in shown.err
    lines = cli("sub", "--stream", "SHOWN", "--count", "2", "--json", "--decode").ok().out
    found = [json.loads(one) for one in lines.splitlines() if one.startswith("{")]
    assert [one.get("value") for one in found] == [{"id": 7}, None]
    cli("stream", "rm", "SHOWN", "-f").ok()
    cli("kv", "rm", "TW_SCHEMAS", "-f").ok()
