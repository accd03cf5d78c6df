"""The meaning of permission rules, over the literal subjects that match each pattern."""

from __future__ import annotations

from functools import cache

from subject_model import all_patterns, all_subjects, matches

from tradewind.route.permission_rules import PermissionRules

SUBJECTS = all_subjects("ab", 4)
PATTERNS = all_patterns("ab", 3)
QUEUES = ["", "", "q", "q.a", "b"]
QUEUE_PATTERNS = ["q", "q.*", "*", ">", "b"]


@cache
def meaning(pattern: str) -> frozenset[str]:
    """The subjects (or queue names) that a pattern stands for."""
    return frozenset(name for name in [*SUBJECTS, *QUEUES] if matches(pattern, name))


@cache
def covers(wide: str, narrow: str) -> bool:
    return meaning(narrow) <= meaning(wide)


def parts(entry: str) -> tuple[str, str]:
    subject, _, queue = entry.partition(" ")
    return subject, queue


def publish_allowed(rules: PermissionRules, subject: str) -> bool:
    if any(matches(denied, subject) for denied in rules.publish_deny):
        return False
    allow = rules.publish_allow
    return allow is None or any(matches(allowed, subject) for allowed in allow)


def subscribe_allowed(rules: PermissionRules, subject: str, queue: str) -> bool:
    """Deny wins, and takes a `>` for a token. Where allow entries for the subject name queues, the
    queue must be one of them.
    """
    for denied, denied_queue in map(parts, rules.subscribe_deny):
        hits_queue = not denied_queue or (queue and matches(denied_queue, queue))
        if matches(denied, subject) and hits_queue:
            return False
    if rules.subscribe_allow is None:
        return True
    relevant = [
        allowed_queue
        for allowed, allowed_queue in map(parts, rules.subscribe_allow)
        if covers(allowed, subject)
    ]
    named = [name for name in relevant if name]
    if queue and named:
        return any(covers(name, queue) for name in named)
    return "" in relevant


def denials(rules: PermissionRules, queue: str) -> frozenset[str]:
    """The subjects that no subscription in this queue, however wide, may receive."""
    denied = [
        subject
        for subject, denied_queue in map(parts, rules.subscribe_deny)
        if not denied_queue or (queue and matches(denied_queue, queue))
    ]
    return frozenset().union(*map(meaning, denied))
