"""Which subscription patterns match which published subjects, seen through the wire."""

from __future__ import annotations

import pytest

from harness import Connect

LONG = "t" * 1500
DEEP = ".".join("abcdefghijklmnopqrstuvwxyz")

# pattern -> (subjects it matches, subjects it does not match)
MATCHES: dict[str, tuple[list[str], list[str]]] = {
    "foo": (["foo"], ["Foo", "FOO", "f", "fooo", "foo.bar", "bar", "bar.foo"]),
    "foo.bar": (["foo.bar"], ["foo", "bar", "foo.baz", "foo.bar.baz", "foobar", "foo.BAR"]),
    "*": (["foo", "x", "foo*", "é", LONG], ["foo.bar", "a.b.c"]),
    "*.*": (["foo.bar", "a.b"], ["foo", "a.b.c"]),
    "foo.*": (["foo.bar", "foo.x", "foo.*", "foo.>"], ["foo", "foo.a.b", "bar.foo", "f.bar"]),
    "*.foo": (["a.foo", "foo.foo"], ["foo", "a.b.foo", "a.foo.b"]),
    "foo.*.baz": (["foo.bar.baz", "foo.x.baz"], ["foo.baz", "foo.a.b.baz", "foo.bar.bat"]),
    "*.*.baz": (["a.b.baz"], ["a.baz", "a.b.c.baz", "a.b.bat"]),
    "foo.*.*": (["foo.a.b"], ["foo.a", "foo.a.b.c", "bar.a.b"]),
    ">": (["foo", "foo.bar", DEEP, "é.ü", "*", ">"], []),
    "foo.>": (["foo.bar", "foo.a.b.c", "foo.*", "foo.>"], ["foo", "fooo.a", "bar", "bar.foo"]),
    "foo.*.>": (["foo.a.b", "foo.a.b.c"], ["foo", "foo.a", "bar.a.b"]),
    "*.>": (["a.b", "a.b.c"], ["a"]),
    "*.bar.>": (["a.bar.b", "a.bar.b.c"], ["a.bar", "a.baz.b", "bar.b"]),
    "*.*.>": (["a.b.c", "a.b.c.d"], ["a.b", "a"]),
    "foo*": (["foo*"], ["foobar", "foo", "foo.bar", "foox"]),
    "*foo": (["*foo"], ["afoo", "foo", "a.foo"]),
    "f*o.bar": (["f*o.bar"], ["foo.bar", "f.bar"]),
    "foo>": (["foo>"], ["foo", "foo.bar", "foobar"]),
    "a>b": (["a>b"], ["a.b", "ab", "axb"]),
    "a.>b": (["a.>b"], ["a.b", "a.xb", "a.c.b"]),
    "a.**.c": (["a.**.c"], ["a.b.c", "a.bb.c"]),
    "**": (["**"], ["a", "ab", "a.b"]),
    ">>": ([">>"], ["a", "a.b"]),
    "*>": (["*>"], ["a", "a.b"]),
    "*.a*": (["x.a*"], ["x.ab", "a*"]),
    "é.*": (["é.ü", "é.漢字", "é.🚢"], ["e.ü", "é", "É.ü"]),
    "漢字.>": (["漢字.a", "漢字.b.c"], ["漢字", "漢.字"]),
    LONG: ([LONG], [LONG[:-1], LONG + "t", LONG[:-1] + "u"]),
    LONG + ".*": ([LONG + ".a"], [LONG, LONG[:-1] + ".a"]),
    DEEP: ([DEEP], [DEEP[:-2], DEEP + ".z", DEEP[:-1] + "y"]),
    "a.b.c.d.e.f.g.h.>": ([DEEP], ["a.b.c.d.e.f.g.h"]),
    "a.*.c.*.e.*.g": (["a.b.c.d.e.f.g"], ["a.b.c.d.e.f", "a.b.c.d.e.f.g.h", "a.b.x.d.e.f.g"]),
    "with-dash_and:colon/slash": (["with-dash_and:colon/slash"], ["with-dash_and:colon"]),
    '"quoted"\\': (['"quoted"\\'], ["quoted"]),
    "$dollar.*": (["$dollar.a"], ["dollar.a", "$dollar"]),
    "a\x00b": (["a\x00b"], ["a", "ab", "a\x00"]),
}
ALL_SUBJECTS = sorted({subject for yes, no in MATCHES.values() for subject in yes + no})


def token_match(pattern: str, subject: str) -> bool:
    """The rule of the protocol, token by token."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        return len(given) >= len(wanted) and token_match(
            ".".join(["", *wanted[:-1]]), ".".join(["", *given[: len(wanted) - 1]])
        )
    return len(wanted) == len(given) and all(
        want in ("*", token) for want, token in zip(wanted, given, strict=True)
    )


@pytest.mark.parametrize("pattern", MATCHES, ids=lambda text: ascii(text[:20]))
def test_pattern_matches_exactly_its_subjects(wire: Connect, pattern: str) -> None:
    matching, others = MATCHES[pattern]
    client = wire()
    client.send(f"SUB {pattern} 1\r\n")
    client.send("".join(f"PUB {subject} 0\r\n\r\n" for subject in others + matching) + "PING\r\n")
    client.expect_bytes("".join(f"MSG {subject} 1 0\r\n\r\n" for subject in matching) + "PONG\r\n")


def test_all_patterns_together_each_get_what_they_match(wire: Connect) -> None:
    subscriber, publisher = wire(), wire()
    patterns = list(MATCHES)
    subscriber.send("".join(f"SUB {pattern} {sid}\r\n" for sid, pattern in enumerate(patterns)))
    subscriber.ping()
    for subject in ALL_SUBJECTS:
        publisher.send(f"PUB {subject} 0\r\n\r\n")
        publisher.ping()
        wanted = [sid for sid, pattern in enumerate(patterns) if token_match(pattern, subject)]
        got = [subscriber.read_message()[0] for _ in wanted]
        assert sorted(got) == sorted(f"MSG {subject} {sid} 0" for sid in wanted)
        subscriber.ping()


def test_each_removed_pattern_stops_matching_and_the_rest_go_on(wire: Connect) -> None:
    client = wire()
    patterns = ["a.b", "a.*", "*.b", "a.>", ">", "*.*"]
    client.send("".join(f"SUB {pattern} {sid}\r\n" for sid, pattern in enumerate(patterns)))
    for removed in range(len(patterns)):
        client.send("PUB a.b 0\r\n\r\n")
        got = {client.read_message()[0].split(" ")[2] for _ in patterns[removed:]}
        assert got == {str(sid) for sid in range(removed, len(patterns))}
        client.send(f"UNSUB {removed}\r\n")
        client.ping()
    client.send("PUB a.b 0\r\n\r\n")
    client.ping()


@pytest.mark.parametrize("subject", ["foo.", ".foo", "foo..bar", ".", "..", "foo.bar."])
def test_subject_with_an_empty_token_reaches_nobody(wire: Connect, subject: str) -> None:
    client = wire()
    patterns = [">", "*", "*.*", "*.*.*", "foo.*", "foo.>", "*.foo", "foo.*.bar"]
    client.send("".join(f"SUB {pattern} {sid}\r\n" for sid, pattern in enumerate(patterns)))
    client.send(f"PUB {subject} 0\r\n\r\nPING\r\n")
    client.expect_bytes("PONG\r\n")


@pytest.mark.parametrize(
    ("target", "reached"),
    [
        ("foo.*", {">", "*.*", "foo.*", "foo.>"}),
        ("foo.>", {">", "*.*", "foo.*", "foo.>"}),
        ("*", {">", "*"}),
        (">", {">", "*"}),
        ("*.bar", {">", "*.*"}),
        ("foo.*.baz", {">", "foo.>", "foo.*.baz"}),
    ],
)
def test_publish_to_a_wildcard_is_taken_as_a_literal_subject(
    wire: Connect, target: str, reached: set[str]
) -> None:
    client = wire()
    patterns = [">", "*", "foo", "foo.bar", "foo.*", "foo.>", "*.*", "foo.*.baz", "foo.bar.baz"]
    client.send("".join(f"SUB {pattern} {pattern}\r\n" for pattern in patterns))
    client.send(f"PUB {target} 0\r\n\r\n")
    got = {client.read_message()[0].split(" ")[2] for _ in reached}
    client.ping()
    assert got == reached


def test_subject_bytes_that_are_not_utf_8_are_passed_on(wire: Connect) -> None:
    client = wire()
    client.send(b"SUB \xff.\xfe\x80 1\r\nPUB \xff.\xfe\x80 \xc3 0\r\n\r\nPING\r\n")
    client.expect_bytes(b"MSG \xff.\xfe\x80 1 \xc3 0\r\n\r\nPONG\r\n")


def test_many_subjects_below_one_wildcard(wire: Connect, subject: str) -> None:
    client = wire()
    subjects = [f"{subject}.{number}.x" for number in range(3000)]
    client.send(f"SUB {subject}.*.x 1\r\n")
    client.send("".join(f"PUB {target} 0\r\n\r\n" for target in subjects))
    client.expect_bytes("".join(f"MSG {target} 1 0\r\n\r\n" for target in subjects))


def test_subscription_made_after_a_publish_to_the_same_subject_matches(
    wire: Connect, subject: str
) -> None:
    # A server that remembers match results must forget them when subscriptions change.
    client = wire()
    for sid, pattern in enumerate([f"{subject}.a", f"{subject}.*", f"{subject}.>", "*.a"]):
        client.send(f"PUB {subject}.a 0\r\n\r\nSUB {pattern} {sid}\r\nPUB {subject}.a 0\r\n\r\n")
        client.send("PING\r\n")
        wanted = [*range(sid), *range(sid + 1)]
        got = [int(client.read_message()[0].split(" ")[2]) for _ in wanted]
        client.expect_bytes("PONG\r\n")
        assert sorted(got) == sorted(wanted)
