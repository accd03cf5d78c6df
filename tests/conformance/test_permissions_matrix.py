"""A matrix of allow and deny lists against subjects, on one server, checked by a small matcher.

Left out are subscriptions ending in `>` against a rule ending in `*`: there the official server
takes the `>` for a plain token and lets through more than the rule says.
"""

from __future__ import annotations

import itertools

import pytest
from helpers_ops import login, publish, replies, shared_server

from harness import ServerProcess

RULES = ["a", "b.b", "a.b.c", "a.*", "*.b", "*.*", "a.*.c", "a.>", "*", ">"]
LITERALS = ["a", "b", "a.b", "a.c", "b.b", "c.d", "a.b.c", "a.x.c", "b.b.c", "a.b.c.d"]
WILDCARDS = ["*", "a.*", "*.b", "b.*", "*.*", "a.>", "b.>", ">", "a.*.c", "*.b.c"]
ALLOWS: list[tuple[str, ...] | None] = [None, *((rule,) for rule in RULES), ("a", "*.b", "a.b.>")]
DENIES: list[tuple[str, ...]] = [(), *((rule,) for rule in RULES), ("a.b", "b.*", "a.*.c")]
CASES = {f"u{number}": case for number, case in enumerate(itertools.product(ALLOWS, DENIES))}


def matches(rule: str, subject: str) -> bool:
    """Whether every literal subject that `subject` stands for is matched by `rule`."""
    rule_tokens, tokens = rule.split("."), subject.split(".")
    for index, token in enumerate(rule_tokens):
        if token == ">":
            return len(tokens) > index
        if index >= len(tokens) or tokens[index] == ">":
            return False
        if token not in ("*", tokens[index]):
            return False
    return len(tokens) == len(rule_tokens)


def is_allowed(allow: tuple[str, ...] | None, deny: tuple[str, ...], subject: str) -> bool:
    in_allow = allow is None or any(matches(rule, subject) for rule in allow)
    return in_allow and not any(matches(rule, subject) for rule in deny)


def is_disputed(rules: tuple[str, ...], subject: str) -> bool:
    """Whether a rule decides differently when the subject's `>` is taken for a token."""
    literal = subject.replace(">", "token")
    return any(matches(rule, subject) != matches(rule, literal) for rule in rules)


def quoted(rules: tuple[str, ...]) -> str:
    return ", ".join(f'"{rule}"' for rule in rules)


def user_entry(name: str, allow: tuple[str, ...] | None, deny: tuple[str, ...]) -> str:
    lists = [f"allow: [{quoted(allow)}]"] if allow else []
    lists += [f"deny: [{quoted(deny)}]"] if deny else []
    rules = "{ " + ", ".join(lists) + " }"
    is_plain = not any(" " in rule for rule in (*(allow or ()), *deny))
    publishing = f"publish: {rules}, " if is_plain else ""
    permissions = f", permissions: {{ {publishing}subscribe: {rules} }}" if lists else ""
    return f"{{ user: {name}, password: pw{permissions} }}"


server = shared_server(
    "accounts { A { users: [\n"
    + "\n".join(user_entry(name, *case) for name, case in CASES.items())
    + "\n{ user: free, password: pw } ] } }\n"
)

by_allow_list = pytest.mark.parametrize(
    "names",
    [[name for name, (allow, _) in CASES.items() if allow == wanted] for wanted in ALLOWS],
    ids=["+".join(allow) if allow else "none" for allow in ALLOWS],
)


@by_allow_list
def test_publishing(server: ServerProcess, names: list[str]) -> None:
    for name in names:
        expected = [
            f"-ERR 'Permissions Violation for Publish to \"{subject}\"'".encode()
            for subject in LITERALS
            if not is_allowed(*CASES[name], subject)
        ]
        with login(server, name, "pw") as client:
            answers = replies(client, "".join(publish(subject, "x") for subject in LITERALS))
        assert answers == expected, CASES[name]


@by_allow_list
def test_subscribing(server: ServerProcess, names: list[str]) -> None:
    for name in names:
        allow, deny = CASES[name]
        subjects = [
            subject
            for subject in [*LITERALS, *WILDCARDS]
            if not is_disputed((*(allow or ()), *deny), subject)
        ]
        expected = [
            f"-ERR 'Permissions Violation for Subscription to \"{subject}\"'".encode()
            for subject in subjects
            if not is_allowed(allow, deny, subject)
        ]
        with login(server, name, "pw") as client:
            lines = [f"SUB {subject} {sid}\r\n" for sid, subject in enumerate(subjects)]
            assert replies(client, "".join(lines)) == expected, CASES[name]


@by_allow_list
def test_denied_subjects_are_filtered_at_delivery(server: ServerProcess, names: list[str]) -> None:
    with login(server, "free", "pw") as publisher:
        for name in names:
            allow, deny = CASES[name]
            accepted = [
                subject
                for subject in WILDCARDS
                if is_allowed(allow, deny, subject)
                and not is_disputed((*(allow or ()), *deny), subject)
            ]
            expected = {
                f"MSG {subject} {accepted.index(pattern)} 1".encode()
                for subject in LITERALS
                for pattern in accepted
                if matches(pattern, subject) and not any(matches(rule, subject) for rule in deny)
            }
            with login(server, name, "pw") as client:
                lines = [f"SUB {subject} {sid}\r\n" for sid, subject in enumerate(accepted)]
                assert replies(client, "".join(lines)) == []
                assert replies(publisher, "".join(publish(each, "x") for each in LITERALS)) == []
                received = [line for line in replies(client, "") if line != b"x"]
            assert set(received) == expected, CASES[name]
            assert len(received) == len(expected), CASES[name]


# Queue entries: (subject rule, queue rule or "")

QUEUE_ALLOWS: list[tuple[str, ...]] = [
    (),
    ("a v1",),
    ("a v1", "a v2"),
    ("a v.*",),
    ("a v.>",),
    ("a",),
    ("a", "a v1"),
    ("*", "a v1"),
    ("> v1",),
    ("a.* v.*", "b"),
    ("a *",),
]
QUEUE_DENIES: list[tuple[str, ...]] = [(), ("a v1",), ("a v.*",), ("> v.>",), ("b",)]
QUEUE_SUBJECTS = ["a", "b", "a.b"]
QUEUES = ["", "v1", "v2", "v", "v.x", "v.x.y"]
QUEUE_CASES = {
    f"q{number}": case for number, case in enumerate(itertools.product(QUEUE_ALLOWS, QUEUE_DENIES))
}

queue_server = shared_server(
    "accounts { A { users: [\n"
    + "\n".join(
        user_entry(name, allow or None, deny) for name, (allow, deny) in QUEUE_CASES.items()
    )
    + "\n] } }\n"
)


def queue_verdict(rules: tuple[str, ...], subject: str, queue: str) -> bool:
    """Whether the list holds this subscription: fitting queue entries decide for a queue."""
    entries = [rule.partition(" ") for rule in rules]
    fitting = [entry_queue for rule, _, entry_queue in entries if matches(rule, subject)]
    queue_rules = [rule for rule in fitting if rule]
    if queue and queue_rules:
        return any(matches(rule, queue) for rule in queue_rules)
    return "" in fitting


@pytest.mark.parametrize("name", QUEUE_CASES, ids=lambda name: str(QUEUE_CASES[name]))
def test_queue_entries(queue_server: ServerProcess, name: str) -> None:
    allow, deny = QUEUE_CASES[name]
    lines, expected = [], []
    for sid, (subject, queue) in enumerate(itertools.product(QUEUE_SUBJECTS, QUEUES)):
        lines.append(f"SUB {subject} {queue} {sid}\r\n")
        in_allow = not allow or queue_verdict(allow, subject, queue)
        if not in_allow or queue_verdict(deny, subject, queue):
            using = f' using queue "{queue}"' if queue else ""
            text = f"-ERR 'Permissions Violation for Subscription to \"{subject}\"{using}'"
            expected.append(text.encode())
    with login(queue_server, name, "pw") as client:
        assert replies(client, "".join(lines)) == expected
