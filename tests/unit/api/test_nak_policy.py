"""The grammar of NAK policies, and how long they say to wait."""

from __future__ import annotations

import pytest

from tradewind.api.consumer_rules import check_consumer_config
from tradewind.api.consumer_types import AckPolicy, ConsumerConfig
from tradewind.api.errors import ApiError
from tradewind.api.limits import ServerLimits
from tradewind.api.nak_policy import CLASSES_MAX, NakPolicyError, nak_policy_of, reason_of
from tradewind.api.responses import JetStreamAccountLimits
from tradewind.api.stream_types import StreamConfig

SECOND = 1_000_000_000
DELAY = "tradewind.nak.delay"


def waits(text: str, deliveries: list[int], chance: float = 0.0) -> list[float]:
    policy = nak_policy_of({DELAY: text})
    assert policy is not None
    return [policy.wait_ns("", count, (), lambda: chance) / SECOND for count in deliveries]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5s", [5, 5, 5, 5]),
        ("0s", [0, 0, 0, 0]),
        (" 1s, 10s ,1m ", [1, 10, 60, 60]),
        ("exponential 1s x2 max 5s", [1, 2, 4, 5]),
        ("exponential 100ms x1.5 max 1h", [0.1, 0.15, 0.225, 0.3375]),
        ("exponential 1s x1 max 1s jitter 0%", [1, 1, 1, 1]),
    ],
)
def test_the_wait_follows_the_number_of_deliveries(text: str, expected: list[float]) -> None:
    assert waits(text, [1, 2, 3, 4]) == expected


def test_however_often_a_message_was_delivered_the_wait_has_its_end() -> None:
    assert waits("exponential 1s x100 max 5m", [1000, 2**63]) == [300, 300]
    assert waits("1s,2s", [2**63]) == [2]


def test_jitter_takes_off_and_never_adds() -> None:
    assert waits("10s jitter 10%", [1], chance=0.0) == [10]
    assert waits("10s jitter 10%", [1], chance=0.5) == [9.5]
    assert waits("exponential 1s x2 max 4s jitter 50%", [9], chance=0.999_999) == [
        pytest.approx(2, abs=1e-4)
    ]


def test_a_reason_has_its_own_rule_and_others_the_default() -> None:
    policy = nak_policy_of({DELAY: "5s", f"{DELAY}.busy": "1s,2s", "team": "shop"})
    assert policy is not None
    assert policy.wait_ns("busy", 2, (), lambda: 0.0) == 2 * SECOND
    assert policy.wait_ns("other", 2, (), lambda: 0.0) == 5 * SECOND
    assert str(policy) == "5s; busy: 1s,2s"


def test_backoff_counts_for_refusals_where_asked() -> None:
    policy = nak_policy_of({"tradewind.nak.backoff": "true", f"{DELAY}.busy": "9s"})
    assert policy is not None
    assert [policy.wait_ns("", n, [1, 2], lambda: 0.0) for n in (1, 2, 3)] == [1, 2, 2]
    assert policy.wait_ns("busy", 1, [1, 2], lambda: 0.0) == 9 * SECOND
    assert nak_policy_of({"team": "shop"}) is None


@pytest.mark.parametrize(
    "header",
    [
        b"NATS/1.0\r\nTradewind-Nak-Reason: busy\r\n\r\n",
        b"NATS/1.0\r\nA: b\r\ntradewind-nak-reason:busy  \r\n\r\n",
    ],
)
def test_the_reason_is_found_in_the_header(header: bytes) -> None:
    assert reason_of(header) == "busy"


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"NATS/1.0\r\n\r\n",
        b"NATS/1.0\r\nTradewind-Nak-Reason: not one word\r\n\r\n",
        b"NATS/1.0\r\nTradewind-Nak-Reason: " + b"x" * 33 + b"\r\n\r\n",
        b"NATS/1.0\r\nX-Tradewind-Nak-Reason: busy\r\n\r\n",
        b"NATS/1.0\r\nTradewind-Nak-Reason: \xff\r\n\r\n",
        b"NATS/1.0\r\nTradewind-Nak-Reason:",
    ],
)
def test_what_no_key_can_name_is_no_reason(header: bytes) -> None:
    assert reason_of(header) == ""


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({DELAY: ""}, 'tradewind.nak.delay must be "5s", "1s,10s,1m" or'),
        ({DELAY: "soon"}, "not 'soon'"),
        ({DELAY: "1s,,2s"}, "not '1s,,2s'"),
        ({DELAY: "-1s"}, "delay must be 0s to 73 years, not '-1s'"),
        ({DELAY: "1000000h"}, "delay must be 0s to 73 years"),
        ({DELAY: "9" * 300 + "h"}, "not '9999"),
        ({DELAY: ",".join(["1s"] * 101)}, "at most 100 durations, not 101"),
        ({DELAY: "5s jitter 101%"}, "jitter must be 0% to 100%, not 101%"),
        ({DELAY: "exponential 1s x2"}, 'exponential 1s x2 max 5m"'),
        ({DELAY: "exponential 1s x0.5 max 1m"}, "factor must be x1 to x100, not x0.5"),
        ({DELAY: "exponential 0s x2 max 1m"}, "the first delay must be above 0"),
        ({DELAY: "exponential 2m x2 max 1m"}, "above 0 and at most max"),
        ({f"{DELAY}.a b": "1s"}, "a class has 1 to 32 letters"),
        ({f"{DELAY}.": "1s"}, "a class has 1 to 32 letters"),
        ({f"{DELAY}.busy": "x"}, "tradewind.nak.delay.busy must be "),
        ({"tradewind.nak.backoff": "yes"}, '"true" or "false", not \'yes\''),
        ({"tradewind.nak.delays": "1s"}, "is unknown; valid keys: tradewind.nak.delay,"),
        ({"tradewind.nak.backoff": "true", DELAY: "1s"}, "use only one of them"),
        ({f"{DELAY}.c{n}": "1s" for n in range(CLASSES_MAX + 1)}, "at most 100 classes"),
    ],
    ids=range(19),
)
def test_what_is_wrong_is_named_with_what_would_be_right(
    metadata: dict[str, str], text: str
) -> None:
    with pytest.raises(NakPolicyError) as raised:
        nak_policy_of(metadata)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "metadata", "text"),
    [
        ({"ack_policy": AckPolicy.NONE}, {DELAY: "1s"}, "requires the ack policy explicit or all"),
        ({}, {"tradewind.nak.backoff": "true"}, "tradewind.nak.backoff: requires a consumer with"),
        ({}, {DELAY: "x"}, "tradewind.nak.delay must be "),
    ],
)
def test_a_consumer_that_cannot_follow_its_policy_is_refused(
    settings: dict[str, object], metadata: dict[str, str], text: str
) -> None:
    config = ConsumerConfig(
        **{"ack_policy": AckPolicy.EXPLICIT, "max_deliver": -1, "metadata": metadata, **settings}
    )
    stream = StreamConfig(name="S", subjects=["s"])
    with pytest.raises(ApiError) as raised:
        check_consumer_config(config, stream, ServerLimits(), JetStreamAccountLimits())
    assert raised.value.err_code == 10094
    assert text in raised.value.description
