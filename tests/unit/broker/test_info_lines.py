"""The INFO lines of connections, whose common part is encoded once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tradewind.broker.info import FRAMES_MAX, CommonInfo, encode_info

OWN = {"client_id": 7, "client_ip": "10.0.0.1", "nonce": "abc"}


def fields_of(line: bytes) -> dict[str, Any]:
    assert line.startswith(b"INFO ")
    assert line.endswith(b" \r\n")
    fields: dict[str, Any] = json.loads(line[5:])
    return fields


def common() -> CommonInfo:
    info = CommonInfo("ID", "name")
    info.listener("STANDARD").host = "0.0.0.0"
    return info


def test_a_line_is_what_encoding_all_of_its_fields_at_once_gives() -> None:
    info = common()
    for own in (OWN, {**OWN, "nonce": "", "client_ip": ""}, {"client_id": 2**63, "nonce": "<&>"}):
        line = info.line("STANDARD", own, auth_required=True, max_payload=5, ldm=False)
        assert line == encode_info(fields_of(line))
        shown = {name: value for name, value in own.items() if value}
        assert shown.items() <= fields_of(line).items()


@pytest.mark.parametrize(
    ("holder", "name", "value"),
    [
        ("common", "server_id", "OTHER"),
        ("common", "server_name", "other"),
        ("common", "headers", False),
        ("common", "jetstream", True),
        ("common", "domain", "hub"),
        ("common", "xkey", "X"),
        ("listener", "host", "::"),
        ("listener", "port", 4222),
        ("listener", "tls_required", True),
        ("listener", "tls_verify", True),
        ("listener", "tls_available", True),
        ("listener", "connect_urls", ("a:1",)),
    ],
)
def test_the_next_line_shows_what_has_changed(holder: str, name: str, value: object) -> None:
    info = common()
    before = info.line("STANDARD", OWN, max_payload=5)
    setattr(info if holder == "common" else info.listener("STANDARD"), name, value)
    after = fields_of(info.line("STANDARD", OWN, max_payload=5))
    assert after[name] == (list(value) if isinstance(value, tuple) else value)
    assert fields_of(before).get(name) != after[name]


def test_lines_of_listeners_and_of_connections_differ() -> None:
    info = common()
    info.listener("WEBSOCKET").port = 9
    first = fields_of(info.line("STANDARD", {"client_id": 1}, max_payload=5))
    assert fields_of(info.line("WEBSOCKET", {"client_id": 1}, max_payload=5)) == {
        **first,
        "host": "",
        "port": 9,
    }
    again = fields_of(info.line("STANDARD", {"client_id": 2}, max_payload=6, ldm=True))
    assert again == {**first, "client_id": 2, "max_payload": 6, "ldm": True}


def test_values_that_look_like_fields_of_a_connection_stay_values() -> None:
    info = common()
    name = 'A "client_id":-9007199254740992'
    line = info.line("STANDARD", OWN, max_payload=5, connect_info=True, remote_account=name)
    assert line == encode_info(fields_of(line))
    assert fields_of(line)["remote_account"] == name


def test_lines_for_very_many_accounts_are_not_all_kept() -> None:
    info = common()
    for number in range(3 * FRAMES_MAX):
        line = info.line("STANDARD", OWN, max_payload=5, remote_account=f"A{number}")
        assert fields_of(line)["remote_account"] == f"A{number}"
    assert len(info.frames) <= FRAMES_MAX
