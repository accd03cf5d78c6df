"""`tradewind errors` and `tradewind schema`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cli_outcome import Cli
from sweeps import sweep
from tradewind.api.errors import ERROR_KINDS
from tradewind.cli.frame.failures import EXIT_FAILED
from tradewind.cli.reference.schema import schemas


def test_an_error_code_is_explained(offline: Cli) -> None:
    shown = offline("errors", "lookup", "10059").ok().out
    assert "NATS Error Code: 10059" in shown
    assert "Description: stream not found" in shown
    assert "HTTP Code: 404" in shown
    assert "What to do:" in shown
    both = offline("err", "lookup", "10059", "10014", "--json").ok().json
    assert [each["error_code"] for each in both] == [10059, 10014]


def test_error_codes_are_listed_and_searched(offline: Cli) -> None:
    assert len(offline("errors", "ls", "-j").ok().json) == len(ERROR_KINDS)
    found = offline("errors", "ls", "stream not found").ok().out
    assert "│ 10059     │ 404             │ stream not found │" in found
    assert offline("errors", "ls", "no such thing").ok().out == "No errors match no such thing\n"


@pytest.mark.parametrize("code", ["42", "nonsense"])
def test_an_unknown_error_code_is_one_line(offline: Cli, code: str) -> None:
    outcome = offline("errors", "lookup", code)
    assert outcome.code == EXIT_FAILED
    assert f"error code {code!r} does not exist" in outcome.err


@sweep("name", sorted(schemas()))
def test_every_schema_can_be_shown(offline: Cli, name: str) -> None:
    assert offline("schema", "info", name).ok().json["title"] == name


def test_schemas_are_searched(offline: Cli) -> None:
    names = offline("schema", "search", "purge", "-j").ok().json
    assert names == [
        "io.nats.jetstream.api.v1.stream_purge_request",
        "io.nats.jetstream.api.v1.stream_purge_response",
    ]
    assert "$JS.API.STREAM.PURGE.*" in offline("schema", "ls", "purge").ok().out
    unknown = offline("schema", "info", "stream_purge_requst")
    assert unknown.code == EXIT_FAILED
    assert "did you mean 'stream_purge_request'?" in unknown.err


def test_our_own_requests_have_schemas(offline: Cli) -> None:
    shown = offline("schema", "ls", "truncate|transaction").ok().out
    assert "io.tradewind.api.v1.stream_truncate_request  │ $TW.API.STREAM.TRUNCATE.*" in shown
    assert "io.tradewind.api.v1.transaction_request" in shown
    title = offline("schema", "info", "template_put_request").ok().json["title"]
    assert title == "io.tradewind.api.v1.template_put_request"


def test_documents_are_checked_as_the_server_does(offline: Cli, tmp_path: Path) -> None:
    path = tmp_path / "stream.json"
    path.write_text('{"name": "A", "subjects": ["a"], "storage": "file"}')
    assert (
        "validates against"
        in offline("schema", "validate", "stream_configuration", str(path)).ok().out
    )
    path.write_text('{"name": "A", "subject": ["a"]}')
    outcome = offline("schema", "validate", "stream_configuration", str(path))
    assert outcome.code == EXIT_FAILED
    assert 'unknown field "subject"' in outcome.err
    machine = offline("schema", "validate", "stream_configuration", str(path), "--json")
    assert machine.code == EXIT_FAILED
    assert machine.json["valid"] is False


def test_answers_of_the_server_fit_their_schemas(cli: Cli) -> None:
    assert "is a valid" in cli("schema", "req", "$JS.API.INFO").ok().out
    config = msgspec.json.encode({"name": "A", "subjects": ["a"]}).decode()
    assert (
        "stream_create_response" in cli("schema", "req", "$JS.API.STREAM.CREATE.A", config).ok().out
    )
    refused = cli("schema", "req", "$JS.API.STREAM.INFO.NONE")
    assert refused.code == EXIT_FAILED
    assert "stream not found" in refused.err
