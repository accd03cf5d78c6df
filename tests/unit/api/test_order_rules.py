"""The grammar of order per key, and what the rest of a configuration must be."""

from __future__ import annotations

import pytest

from tradewind.api.consumer_rules import check_consumer_config
from tradewind.api.consumer_types import AckPolicy, ConsumerConfig, ReplayPolicy
from tradewind.api.errors import ApiError
from tradewind.api.limits import ServerLimits
from tradewind.api.order_rules import (
    IN_FLIGHT_KEY,
    IN_FLIGHT_MAX,
    ORDER_BY_KEY,
    TOKEN_MAX,
    WINDOW_DEFAULT,
    WINDOW_KEY,
    WINDOW_MAX,
    OrderError,
    OrderSettings,
    check_order,
    described_order,
    order_of,
)
from tradewind.api.responses import JetStreamAccountLimits
from tradewind.api.stream_types import StreamConfig


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({ORDER_BY_KEY: "subject"}, OrderSettings("subject")),
        ({ORDER_BY_KEY: "token:2"}, OrderSettings("token", 2)),
        ({ORDER_BY_KEY: f"token:{TOKEN_MAX}"}, OrderSettings("token", TOKEN_MAX)),
        ({ORDER_BY_KEY: "header:Customer"}, OrderSettings("header", header="Customer")),
        (
            {ORDER_BY_KEY: "subject", IN_FLIGHT_KEY: "3", WINDOW_KEY: str(WINDOW_MAX)},
            OrderSettings("subject", in_flight=3, window=WINDOW_MAX),
        ),
    ],
)
def test_settings_are_read(metadata: dict[str, str], expected: OrderSettings) -> None:
    assert order_of({"team": "shop"} | metadata) == expected


def test_other_metadata_is_no_order() -> None:
    assert order_of(None) is None
    assert order_of({"team": "shop", "tradewind.nak.delay": "1s"}) is None


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({ORDER_BY_KEY: ""}, 'tradewind.order_by must be "subject", "token:N"'),
        ({ORDER_BY_KEY: "subject:1"}, "not 'subject:1'"),
        ({ORDER_BY_KEY: "token"}, "not 'token'"),
        ({ORDER_BY_KEY: "token:0"}, f"a token from 1 to {TOKEN_MAX}, not '0'"),
        ({ORDER_BY_KEY: f"token:{TOKEN_MAX + 1}"}, f"not '{TOKEN_MAX + 1}'"),
        ({ORDER_BY_KEY: "token:1e3"}, "not '1e3'"),
        ({ORDER_BY_KEY: "token:\u0661"}, "a token from 1"),
        ({ORDER_BY_KEY: "header:"}, "a header name has 1 to 128"),
        ({ORDER_BY_KEY: "header:a b"}, "not 'a b'"),
        ({ORDER_BY_KEY: "header:a:b"}, "not 'a:b'"),
        ({ORDER_BY_KEY: "header:" + "x" * 129}, "a header name has 1 to 128"),
        ({ORDER_BY_KEY: "subject", IN_FLIGHT_KEY: "0"}, f"{IN_FLIGHT_KEY}: a number from 1"),
        ({ORDER_BY_KEY: "subject", IN_FLIGHT_KEY: str(IN_FLIGHT_MAX + 1)}, "a number from 1"),
        ({ORDER_BY_KEY: "subject", IN_FLIGHT_KEY: "9" * 5000}, "a number from 1"),
        ({ORDER_BY_KEY: "subject", WINDOW_KEY: "-1"}, f"{WINDOW_KEY}: a number from 1"),
        ({IN_FLIGHT_KEY: "2"}, f"{IN_FLIGHT_KEY}: requires {ORDER_BY_KEY}"),
        ({ORDER_BY_KEY: "subject", "tradewind.order_bye": "x"}, "is unknown; valid keys: "),
    ],
)
def test_an_error_names_the_key_and_what_is_right(metadata: dict[str, str], text: str) -> None:
    with pytest.raises(OrderError) as raised:
        order_of(metadata)
    assert text in str(raised.value)
    assert len(str(raised.value)) < 250
    assert "\n" not in str(raised.value)
    assert described_order(metadata) == ""


@pytest.mark.parametrize(
    ("setting", "subject", "headers", "key"),
    [
        ("subject", "a.b", {}, "a.b"),
        ("token:1", "a.b", {}, "a"),
        ("token:2", "a.b", {}, "b"),
        ("token:3", "a.b", {}, ""),
        ("header:K", "a", {"K": "7"}, "7"),
        ("header:K", "a", {}, ""),
    ],
)
def test_the_key_is_a_part_of_the_message(
    setting: str, subject: str, headers: dict[str, str], key: str
) -> None:
    order = order_of({ORDER_BY_KEY: setting})
    assert order is not None
    assert order.key_of(subject, headers) == key


def config(**fields: object) -> ConsumerConfig:
    values: dict[str, object] = {
        "name": "C",
        "durable_name": "C",
        "ack_policy": AckPolicy.EXPLICIT,
        "max_waiting": 512,
        "metadata": {ORDER_BY_KEY: "subject"},
    }
    return ConsumerConfig(**(values | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"ack_policy": AckPolicy.NONE}, "requires ack_policy explicit, not none"),
        ({"ack_policy": AckPolicy.ALL}, "requires ack_policy explicit, not all"),
        ({"replay_policy": ReplayPolicy.ORIGINAL}, "requires replay_policy instant"),
        ({"metadata": {ORDER_BY_KEY: "x"}}, "must be"),
    ],
)
def test_what_cannot_keep_order_is_refused(fields: dict[str, object], text: str) -> None:
    stream = StreamConfig(name="S", subjects=["s"])
    given = config(**fields)
    with pytest.raises(ApiError) as raised:
        check_consumer_config(given, stream, ServerLimits(), JetStreamAccountLimits())
    assert ORDER_BY_KEY in str(raised.value)
    assert text in str(raised.value)


def test_an_update_may_change_the_numbers_and_not_the_key() -> None:
    old = config()
    check_order(config(metadata={ORDER_BY_KEY: "subject", IN_FLIGHT_KEY: "5"}), old)
    for metadata in ({}, {ORDER_BY_KEY: "token:1"}):
        with pytest.raises(ApiError, match="cannot change from 'subject' to"):
            check_order(config(metadata=metadata), old)
    with pytest.raises(ApiError, match="cannot change from none to 'subject'"):
        check_order(config(), config(metadata={}))


def test_the_order_is_described() -> None:
    assert described_order(None) == ""
    assert described_order({ORDER_BY_KEY: "token:2"}) == (
        "by token 2 of the subject, 1 in flight per key"
    )
    assert order_of({ORDER_BY_KEY: "subject"}) == OrderSettings("subject", window=WINDOW_DEFAULT)
