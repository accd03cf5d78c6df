"""Random permission rules, subscriptions and publishes, and a plain model of who gets what.

The model compares tokens one by one and knows no trie, cache or flag. It also says where
nats-server decides otherwise (`OFFICIAL`); each such difference has a test of its own in
tests/conformance/test_permissions_random.py and a row in docs/COMPATIBILITY.md.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from tradewind.route.permission_rules import PermissionRules

TOKENS = ("a", "b", "c")
QUEUES = ("q", "r", "q.x", "q.y", "q.x.y")
# Legal names of a queue that a pattern of a rule must not be fooled by.
ODD_QUEUES = ("*", ">", "q.*", "q.>")
QUEUE_PATTERNS = ("q", "r", "*", ">", "q.*", "q.>", "*.x")


@dataclass(frozen=True)
class Dialect:
    """How one server reads a wildcard in a subscription that a rule is compared with."""

    tail_is_token: bool  # in allow rules: `a.*` allows a subscription to `a.>`
    queue_is_text: bool  # in deny rules: `*` covers a queue whose name is `>`


OURS = Dialect(tail_is_token=False, queue_is_text=True)
OFFICIAL = Dialect(tail_is_token=True, queue_is_text=False)
DIALECTS = {"tradewind": OURS, "official": OFFICIAL}


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern covers a text; what looks like a wildcard in the text is ordinary."""
    wanted, given = pattern.split("."), text.split(".")
    for index, token in enumerate(wanted):
        if index == len(given):
            return False
        if token == ">":
            return True
        if token not in ("*", given[index]):
            return False
    return len(wanted) == len(given)


def includes(wide: str, narrow: str) -> bool:
    """Whether a pattern covers all that another one covers."""
    if narrow.split(".")[-1] != ">":
        return matches(wide, narrow)
    before = len(narrow.split(".")) - 1
    tail = wide.split(".")[-1] == ">" and len(wide.split(".")) <= before + 1
    return tail and matches(wide, narrow)


def entries(rules: tuple[str, ...] | None) -> list[tuple[str, str]]:
    return [(entry.split()[0], " ".join(entry.split()[1:])) for entry in rules or ()]


def queue_is_denied(pattern: str, queue: str, dialect: Dialect) -> bool:
    return matches(pattern, queue) if dialect.queue_is_text else includes(pattern, queue)


def may_subscribe(
    rules: PermissionRules, subject: str, queue: str, dialect: Dialect = OURS
) -> bool:
    """Whether a subscription is accepted."""
    for denied, denied_queue in entries(rules.subscribe_deny):
        concerns = not denied_queue or (queue and queue_is_denied(denied_queue, queue, dialect))
        if concerns and matches(denied, subject):
            return False
    if rules.subscribe_allow is None:
        return True
    covering = matches if dialect.tail_is_token else includes
    found = [name for allowed, name in entries(rules.subscribe_allow) if covering(allowed, subject)]
    named = [name for name in found if name]
    if queue and named:
        return any(includes(name, queue) for name in named)
    return "" in found


def may_receive(rules: PermissionRules, subject: str, queue: str, dialect: Dialect = OURS) -> bool:
    """Whether a message may reach a subscription that was accepted and matches it."""
    return not any(
        matches(denied, subject)
        and (not denied_queue or bool(queue and queue_is_denied(denied_queue, queue, dialect)))
        for denied, denied_queue in entries(rules.subscribe_deny)
    )


def may_publish(rules: PermissionRules, subject: str) -> bool:
    if any(matches(denied, subject) for denied in rules.publish_deny):
        return False
    return rules.publish_allow is None or any(
        matches(allowed, subject) for allowed in rules.publish_allow
    )


@dataclass
class Receiver:
    """A connection with what it subscribes to: sids are the positions in the list."""

    rules: PermissionRules
    subscriptions: list[tuple[str, str]]


@dataclass
class PermissionCase:
    """Some connections of one account, and what another one publishes."""

    publisher: PermissionRules
    receivers: list[Receiver]
    subjects: list[str]


@dataclass
class Expected:
    """The expected behaviour of the servers: `refused` are (receiver, sid). A delivery is
    (receiver, sid, subject); each of `certain` happens, and one of each of `choices`.
    """

    refused: set[tuple[int, int]] = field(default_factory=set)
    unpublished: list[str] = field(default_factory=list)
    certain: Counter[tuple[int, int, str]] = field(default_factory=Counter)
    choices: list[set[tuple[int, int, str]]] = field(default_factory=list)


def expected_of(case: PermissionCase, dialect: Dialect) -> Expected:
    result = Expected()
    open_ones = []
    for number, receiver in enumerate(case.receivers):
        for sid, (subject, queue) in enumerate(receiver.subscriptions):
            if may_subscribe(receiver.rules, subject, queue, dialect):
                open_ones.append((number, sid, subject, queue, receiver.rules))
            else:
                result.refused.add((number, sid))
    for subject in case.subjects:
        if not may_publish(case.publisher, subject):
            result.unpublished.append(subject)
            continue
        groups: dict[str, set[tuple[int, int, str]]] = {}
        for number, sid, pattern, queue, rules in open_ones:
            if not matches(pattern, subject) or not may_receive(rules, subject, queue, dialect):
                continue
            if queue:
                groups.setdefault(queue, set()).add((number, sid, subject))
            else:
                result.certain[number, sid, subject] += 1
        result.choices += groups.values()
    return result


def check_deliveries(got: Counter[tuple[int, int, str]], expected: Expected) -> None:
    """Exactly the expected deliveries were made; subjects of a case are all different."""
    left = Counter(got)
    for delivery in expected.certain:
        assert left.pop(delivery, 0) == 1, f"{delivery} is missing, or came twice"
    for choice in expected.choices:
        made = [delivery for delivery in choice if left.pop(delivery, 0)]
        assert len(made) == 1, f"one of {choice} instead of {made}"
    assert not left, f"these must not happen: {dict(left)}"


# ---------------------------------------------------------------- random cases


def random_pattern(source: random.Random) -> str:
    tokens = [source.choice((*TOKENS, "*")) for _ in range(source.randint(1, 3))]
    if source.random() < 0.35:
        tokens[-1] = ">"
    return ".".join(tokens)


def random_subjects(source: random.Random, count: int) -> list[str]:
    """So many different subjects that messages can have."""
    found: dict[str, None] = {}
    while len(found) < count:
        found[".".join(source.choice(TOKENS) for _ in range(source.randint(1, 3)))] = None
    return list(found)


def random_rules(source: random.Random) -> PermissionRules:
    """Few rules, so that much of what they cover is also asked for."""

    def some(count_max: int, queue_share: float = 0.0) -> tuple[str, ...]:
        found = []
        for _ in range(source.randint(1, count_max)):
            queue = f" {source.choice(QUEUE_PATTERNS)}" if source.random() < queue_share else ""
            found.append(random_pattern(source) + queue)
        return tuple(found)

    return PermissionRules(
        publish_allow=some(3) if source.random() < 0.3 else None,
        publish_deny=some(2) if source.random() < 0.4 else (),
        subscribe_allow=(*some(3, 0.3), ">") if source.random() < 0.4 else None,
        subscribe_deny=some(3, 0.5) if source.random() < 0.8 else (),
    )


def random_case(
    source: random.Random, publisher: PermissionRules, users: list[PermissionRules]
) -> PermissionCase:
    """Connections of these users with subscriptions, many of them in the same queues."""

    def queue() -> str:
        chance = source.random()
        if chance < 0.4:
            return ""
        return source.choice(ODD_QUEUES if chance > 0.92 else QUEUES)

    receivers = [
        Receiver(rules, [(random_pattern(source), queue()) for _ in range(source.randint(1, 4))])
        for rules in users
    ]
    return PermissionCase(publisher, receivers, random_subjects(source, 12))
