"""Which publishes may be sent again because the stream would store them once."""

from __future__ import annotations

import pytest

from tradewind.client.jetstream import has_message_id, publish_block


@pytest.mark.parametrize(
    ("headers", "options", "expected"),
    [
        (None, {}, False),
        (None, {"msg_id": "a"}, True),
        (None, {"msg_id": ""}, False),  # no id at all for a server, which stores each of them
        ({"Nats-Msg-Id": "a"}, {}, True),
        ({"Nats-Msg-Id": ""}, {}, False),
        ({"Other": "1", "Nats-Msg-Id": "a"}, {}, True),
        ({"nats-msg-id": "a"}, {}, False),  # servers look for it as it is written
        ({"X-Nats-Msg-Id": "a"}, {}, False),
        ({"Nats-Expected-Last-Msg-Id": "a"}, {}, False),
        ({"Text": "Nats-Msg-Id: a"}, {}, False),
        (b"NATS/1.0\r\nNats-Msg-Id:a\r\n\r\n", {}, True),
        (b"NATS/1.0\r\nNats-Msg-Id: \t\r\nA: b\r\n\r\n", {}, False),
    ],
)
def test_an_id_is_known_however_it_was_given(
    headers: dict[str, str] | bytes | None, options: dict[str, str], expected: bool
) -> None:
    assert has_message_id(publish_block(headers, options)) is expected
