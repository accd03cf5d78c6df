"""Random rules, subscriptions and publishes on both servers: who gets which message.

The model is in tests/kits/permission_cases.py. It names two differences, which are intended: where
nats-server takes a wildcard of a subscription for a token of a subject, or the name of a queue for
a pattern, it gives more than the rule says. Each has a test below.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from helpers_ops import login, publish, replies, shared_server

from harness import RawClient, ServerProcess
from permission_cases import (
    DIALECTS,
    PermissionCase,
    Receiver,
    check_deliveries,
    expected_of,
    random_case,
    random_rules,
)
from thoroughness import some
from tradewind.route.permission_rules import PermissionRules

USERS = some(60, 400)
CASES = some(300, 6_000)
SOURCE = random.Random(11)
RULES = {f"r{number}": random_rules(SOURCE) for number in range(USERS)}
FREE = PermissionRules()


def listed(allow: tuple[str, ...] | None, deny: tuple[str, ...]) -> str:
    lists = []
    if allow is not None:
        lists.append("allow: [" + ", ".join(f'"{rule}"' for rule in allow) + "]")
    if deny:
        lists.append("deny: [" + ", ".join(f'"{rule}"' for rule in deny) + "]")
    return "{ " + ", ".join(lists) + " }" if lists else ""


def user_entry(name: str, rules: PermissionRules) -> str:
    parts = {
        "publish": listed(rules.publish_allow, rules.publish_deny),
        "subscribe": listed(rules.subscribe_allow, rules.subscribe_deny),
    }
    permissions = ", ".join(f"{key}: {value}" for key, value in parts.items() if value)
    known = f", permissions: {{ {permissions} }}" if permissions else ""
    return f"{{ user: {name}, password: pw{known} }}\n"


NAMED = {
    "free": FREE,
    "star": PermissionRules(subscribe_allow=("a.*",)),
    "starless": PermissionRules(subscribe_deny=("a.*",)),
    "queueless": PermissionRules(subscribe_deny=("secret *",)),
    "badless": PermissionRules(subscribe_deny=("secret bad",)),
}

server = shared_server(
    "accounts { A { users: [\n"
    + "".join(user_entry(name, rules) for name, rules in {**RULES, **NAMED}.items())
    + "] } }\n"
)


def deliveries(number: int, client: RawClient) -> Counter[tuple[int, int, str]]:
    """What a connection was sent, up to the answer to a PING."""
    found: Counter[tuple[int, int, str]] = Counter()
    for line in replies(client, ""):
        if line.startswith(b"MSG "):
            words = line.decode().split()
            found[number, int(words[2]), words[1]] += 1
    return found


def run(server: ServerProcess, case: PermissionCase, names: list[str], publisher: str) -> None:
    expected = expected_of(case, DIALECTS[server.kind])
    clients = [login(server, name, "pw") for name in names]
    got: Counter[tuple[int, int, str]] = Counter()
    try:
        refused = set()
        for number, (client, receiver) in enumerate(zip(clients, case.receivers, strict=True)):
            lines = ""
            for sid, (subject, queue) in enumerate(receiver.subscriptions):
                words = [word for word in ("SUB", subject, queue, str(sid)) if word]
                lines += " ".join(words) + "\r\n"
            answers = Counter(replies(client, lines))
            for sid, (subject, queue) in enumerate(receiver.subscriptions):
                using = f' using queue "{queue}"' if queue else ""
                text = f"-ERR 'Permissions Violation for Subscription to \"{subject}\"{using}'"
                if answers[text.encode()]:
                    refused.add((number, sid))
        assert refused == expected.refused, case
        with login(server, publisher, "pw") as speaker:
            lines = "".join(publish(subject, "x") for subject in case.subjects)
            assert replies(speaker, lines) == [
                f"-ERR 'Permissions Violation for Publish to \"{subject}\"'".encode()
                for subject in expected.unpublished
            ], case
        for number, client in enumerate(clients):
            got += deliveries(number, client)
    finally:
        for client in clients:
            # The next case must not meet what this one has subscribed to.
            replies(client, "".join(f"UNSUB {sid}\r\n" for sid in range(4)))
            client.close()
    try:
        check_deliveries(got, expected)
    except AssertionError as error:
        raise AssertionError(f"{error} in {case}") from None


@pytest.mark.slow
def test_deliveries_are_those_of_the_model(server: ServerProcess) -> None:
    source = random.Random(13)
    for _ in range(CASES):
        names = source.sample(sorted(RULES), 3)
        publisher = source.choice([*sorted(RULES), *["free"] * USERS])
        rules = RULES.get(publisher, FREE)
        case = random_case(source, rules, [RULES[name] for name in names])
        run(server, case, names, publisher)


def received(server: ServerProcess, user: str, subscription: str, *subjects: str) -> set[str]:
    """Which of the subjects reach the only subscription of a user; empty if it is refused."""
    with login(server, user, "pw") as client, login(server, "free", "pw") as speaker:
        if replies(client, f"SUB {subscription} 1\r\n"):
            return set()
        assert replies(speaker, "".join(publish(subject, "x") for subject in subjects)) == []
        found = {subject for _, _, subject in deliveries(0, client)}
        replies(client, "UNSUB 1\r\n")
        return found


def test_allowed_star_does_not_allow_a_tail(server: ServerProcess) -> None:
    """Intended difference: with `allow: a.*`, nats-server accepts `a.>` and delivers `a.b.c`."""
    expected = {"a.b", "a.b.c"} if server.kind == "official" else set()
    assert received(server, "star", "a.>", "a.b", "a.b.c") == expected


def test_denied_star_refuses_a_tail(server: ServerProcess) -> None:
    assert received(server, "starless", "a.>", "a.b", "a.b.c") == set()


def test_name_of_a_queue_is_text(server: ServerProcess) -> None:
    """Intended difference: with `deny: secret *`, nats-server gives `secret` to the queue `>`."""
    expected = {"secret", "a"} if server.kind == "official" else {"a"}
    assert received(server, "queueless", "> >", "secret", "a") == expected
    assert received(server, "queueless", "> any", "secret", "a") == {"a"}


def test_denied_queue_does_not_receive_through_a_wider_pattern(server: ServerProcess) -> None:
    assert received(server, "badless", "> bad", "secret", "a", "a.b") == {"a", "a.b"}
    assert received(server, "badless", "* bad", "secret", "a") == {"a"}
    assert received(server, "badless", "> good", "secret", "a") == {"secret", "a"}
    assert received(server, "badless", ">", "secret", "a") == {"secret", "a"}


def test_another_member_receives_what_one_must_not(server: ServerProcess) -> None:
    for _ in range(10):
        members = [Receiver(NAMED["badless"], [(">", "bad")]), Receiver(FREE, [("*", "bad")])]
        run(server, PermissionCase(FREE, members, ["secret"]), ["badless", "free"], "free")
