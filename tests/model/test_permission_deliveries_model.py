"""Random rules, subscriptions and publishes on the server in this process: exactly the deliveries
and refusals of a plain model.
"""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from permission_cases import (
    OURS,
    PermissionCase,
    Receiver,
    check_deliveries,
    expected_of,
    random_case,
    random_rules,
)
from thoroughness import some
from tradewind.options import ServerOptions
from tradewind.route.permission_rules import PermissionRules
from tradewind.testing import FakeConnection, InProcessServer, User, UserGate

CASES = some(400, 20_000)
FREE = PermissionRules()
MESSAGE = re.compile(rb"MSG (\S+) (\d+) 1\r\nx\r\n")
REFUSED = re.compile(rb"-ERR 'Permissions Violation for Subscription to")


def connect(server: InProcessServer, name: str) -> FakeConnection:
    return server.connect(
        b'CONNECT {"user":"%b","pass":"pw","verbose":false,"pedantic":false}\r\n' % name.encode()
    )


def run(case: PermissionCase) -> None:
    names = [f"user{number}" for number in range(len(case.receivers))]
    users = [
        User(name, "pw", "$G", receiver.rules)
        for name, receiver in zip(names, case.receivers, strict=True)
    ]
    server = InProcessServer(
        ServerOptions(ping_interval_ns=10**18),
        gate=UserGate([*users, User("publisher", "pw", "$G", case.publisher)]),
    )
    expected = expected_of(case, OURS)
    connections = [connect(server, name) for name in names]
    refused = set()
    for number, (connection, receiver) in enumerate(zip(connections, case.receivers, strict=True)):
        connection.take()
        for sid, (subject, queue) in enumerate(receiver.subscriptions):
            words = " ".join(word for word in ("SUB", subject, queue, str(sid)) if word)
            connection.send(words.encode() + b"\r\n")
            if REFUSED.match(connection.take()):
                refused.add((number, sid))
    assert refused == expected.refused, case
    publisher = connect(server, "publisher")
    publisher.take()
    publisher.send("".join(f"PUB {subject} 1\r\nx\r\n" for subject in case.subjects).encode())
    assert publisher.take().count(b"-ERR") == len(expected.unpublished), case
    got: Counter[tuple[int, int, str]] = Counter()
    for number, connection in enumerate(connections):
        for subject, sid in MESSAGE.findall(connection.take()):
            got[number, int(sid), subject.decode()] += 1
    try:
        check_deliveries(got, expected)
    except AssertionError as error:
        raise AssertionError(f"{error} in {case}") from None


@pytest.mark.slow
def test_deliveries_are_those_of_the_model() -> None:
    source = random.Random(7)
    for _ in range(CASES):
        users = [random_rules(source) for _ in range(3)]
        run(random_case(source, random_rules(source), users))


@pytest.mark.parametrize(
    ("deny", "subscription", "delivered"),
    [
        ("secret bad", "> bad", {"a", "a.b", "a.c"}),
        ("secret bad", "* bad", {"a"}),
        ("secret *", "> any", {"a", "a.b", "a.c"}),
        ("secret >", "> any.name", {"a", "a.b", "a.c"}),
        ("a.> bad", "> bad", {"secret", "a"}),
        ("a.> bad", "*.b bad", set()),
        ("a.* bad", "*.* bad", set()),
        ("a.b b.*", "a.* b.x", {"a.c"}),
        ("secret *", "> >", {"a", "a.b", "a.c"}),
        ("secret bad", "> good", {"secret", "a", "a.b", "a.c"}),
        ("secret bad", ">", {"secret", "a", "a.b", "a.c"}),
    ],
)
def test_denied_queue_does_not_receive_through_a_wider_pattern(
    deny: str, subscription: str, delivered: set[str]
) -> None:
    subject, _, queue = subscription.partition(" ")
    rules = PermissionRules(subscribe_deny=(deny,))
    subjects = ["secret", "a", "a.b", "a.c"]
    case = PermissionCase(FREE, [Receiver(rules, [(subject, queue)])], subjects)
    expected = expected_of(case, OURS)
    assert {name for choice in expected.choices for _, _, name in choice} | {
        name for _, _, name in expected.certain
    } == delivered
    run(case)


def test_message_goes_to_a_member_that_may_receive_it() -> None:
    """The members that may not are passed over, wherever the choice begins."""
    denied = Receiver(PermissionRules(subscribe_deny=("secret bad",)), [("*", "bad")] * 3)
    free = Receiver(FREE, [(">", "bad")])
    for _ in range(20):
        run(PermissionCase(FREE, [denied, free, denied], ["secret"]))
