"""Compiled permission rules against their meaning."""

from __future__ import annotations

import random

from permission_model import (
    PATTERNS,
    QUEUE_PATTERNS,
    QUEUES,
    SUBJECTS,
    denials,
    meaning,
    publish_allowed,
    subscribe_allowed,
)

from thoroughness import some
from tradewind.route.permission_rules import PermissionRules
from tradewind.route.permissions import Permissions

CASES = some(40_000, 2_000_000)
CASES_PER_RULES = 50


def random_rules(source: random.Random) -> PermissionRules:
    def some(count_max: int, *, with_queues: bool = False) -> tuple[str, ...]:
        entries = source.choices(PATTERNS, k=source.randint(0, count_max))
        if with_queues:
            entries = [
                f"{entry} {source.choice(QUEUE_PATTERNS)}" if source.random() < 0.4 else entry
                for entry in entries
            ]
        return tuple(entries)

    return PermissionRules(
        publish_allow=some(3) if source.random() < 0.7 else None,
        publish_deny=some(2),
        subscribe_allow=some(4, with_queues=True) if source.random() < 0.7 else None,
        subscribe_deny=some(2, with_queues=True),
    )


def check_one(rules: PermissionRules, compiled: Permissions, source: random.Random) -> None:
    subject, pattern = source.choice(SUBJECTS), source.choice(PATTERNS)
    queue = source.choice(QUEUES)
    context = (rules, subject, pattern, queue)
    assert compiled.may_publish(subject.encode()) == publish_allowed(rules, subject), context
    denied = denials(rules, queue)
    delivered = compiled.may_deliver(subject.encode(), queue.encode())
    assert delivered == (subject not in denied), context
    allowed, filtered = compiled.may_subscribe(pattern, queue)
    assert allowed == subscribe_allowed(rules, pattern, queue), context
    # An unfiltered subscription must not reach a single denied subject.
    assert filtered == (allowed and not meaning(pattern).isdisjoint(denied)), context


def test_rules_mean_the_same_compiled() -> None:
    source = random.Random(20240229)
    for _ in range(CASES // CASES_PER_RULES):
        rules = random_rules(source)
        compiled = Permissions(rules, 1)
        for _ in range(CASES_PER_RULES):
            check_one(rules, compiled, source)


def test_no_rules_allow_everything_and_empty_lists_allow_nothing() -> None:
    everything = Permissions(PermissionRules(), 1)
    assert everything.may_publish(b"a")
    assert everything.may_subscribe(">", "q") == (True, False)
    nothing = Permissions(PermissionRules(publish_allow=(), subscribe_allow=()), 1)
    assert not nothing.may_publish(b"a")
    assert nothing.may_subscribe("a") == (False, False)
