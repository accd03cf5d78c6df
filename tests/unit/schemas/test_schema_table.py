"""Which schema a subject has, whatever is in the bucket."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps import sweep
from thoroughness import some
from tradewind.schemas.schema_documents import VERSIONS_MAX, SchemaVersion
from tradewind.schemas.schema_table import Outcome, SchemaTable
from tradewind.subjects import is_subset


def entry(subject: str, number: int = 1, schema: Any = True, **fields: Any) -> bytes:
    return msgspec.json.encode(
        SchemaVersion(
            **({"subject": subject, "format": "json", "version": number, "schema": schema} | fields)
        )
    )


def table_of(**patterns: str) -> SchemaTable:
    table = SchemaTable()
    for name, subject in patterns.items():
        table.apply(f"{name}.1", entry(subject))
    return table


@sweep(
    ("subject", "name"),
    [
        ("orders.new", "exact"),
        ("orders.old", "one"),
        ("orders.old.eu", "rest"),
        ("bills.new", "new"),
        ("bills", ""),
        ("orders", ""),
    ],
)
def test_the_most_specific_pattern_decides(subject: str, name: str) -> None:
    table = table_of(rest="orders.>", one="orders.*", exact="orders.new", new="*.new")
    assert table.name_for(subject) == name


TOKENS = st.sampled_from(["a", "b", "*", ">"])
SUBJECTS = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(".".join)


@settings(max_examples=some(100, 2000), deadline=None)
@given(st.lists(st.lists(TOKENS, min_size=1, max_size=4), max_size=8), SUBJECTS)
def test_a_schema_is_found_as_by_comparing_with_every_pattern(
    patterns: list[list[str]], subject: str
) -> None:
    valid = {".".join(p) for p in patterns if ">" not in p[:-1]}
    table = table_of(**{f"s{n}": pattern for n, pattern in enumerate(sorted(valid))})
    rank = {">": 2, "*": 1}
    matching = [p for p in sorted(valid) if is_subset(subject, p)]
    best = min(matching, key=lambda p: [rank.get(token, 0) for token in p.split(".")], default="")
    name = table.name_for(subject)
    assert (name != "") == bool(matching)
    if name:
        newest = table.newest(name)
        assert newest is not None
        assert newest.subject == best


@settings(max_examples=some(60, 1000), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),
            st.integers(1, 3),
            st.sampled_from(["x.*", "x.y", "z", None]),
        ),
        max_size=20,
    )
)
def test_changes_leave_the_table_as_if_only_the_last_had_come(
    changes: list[tuple[str, int, str | None]],
) -> None:
    table, last = SchemaTable(), dict[tuple[str, int], str | None]()
    for name, number, subject in changes:
        table.apply(f"{name}.{number}", subject and entry(subject, number))
        table.name_for("x.y")
        last[name, number] = subject
    fresh = SchemaTable()
    for (name, number), subject in last.items():
        fresh.apply(f"{name}.{number}", subject and entry(subject, number))
    assert table.names == fresh.names
    assert len(table) == len(fresh) == sum(subject is not None for subject in last.values())
    for subject in ("x.y", "x.z", "z", "w"):
        assert table.name_for(subject) == fresh.name_for(subject)


def test_the_newest_version_counts_unless_a_message_names_another() -> None:
    table = SchemaTable()
    table.apply("order.2", entry("orders.*", 2, {"type": "object"}))
    table.apply("order.1", entry("orders.*", 1, {"type": "string"}))
    assert table.check("orders.new", b"{}").outcome is Outcome.VALID
    verdict = table.check("orders.new", b'"x"')
    assert (verdict.outcome, verdict.schema) == (Outcome.INVALID, "order.2")
    assert table.check("orders.new", b'"x"', "order.1").outcome is Outcome.VALID
    for named in ("order.3", "bill.1", "order", "order.01", "x" * 5000):
        verdict = table.check("orders.new", b"{}", named)
        assert verdict.outcome is Outcome.INVALID
        assert "no version of order" in verdict.problem
        assert len(verdict.problem) < 500
    assert table.check("bills.new", b"?", "order.1").outcome is Outcome.FREE


@sweep(
    ("key", "value", "problem"),
    [
        ("order", b"{}", "must be NAME.VERSION"),
        ("order.0", b"{}", "must be NAME.VERSION"),
        ("a.b.1", b"{}", "must be NAME.VERSION"),
        ("order.1", b"{", "truncated"),
        ("order.1", b"[]", "Expected `object`, got `array`"),
        ("order.1", entry("orders.*", 2), "version is 2, not 1 as the key"),
        ("order.1", entry("orders..x"), "'orders..x' is not a subject"),
        ("order.1", entry("x", format="xml"), "format must be one of json, avro, protobuf"),
        ("order.1", entry("x", compatibility="some"), "compatibility must be one of"),
        ("order.1", entry("x", id=7), "id is not allowed"),
        ("order.1", entry("x", message="a.B"), "message is for protobuf"),
        ("order.1", entry("x", schema="x" * 200_000), "at most 131072"),
    ],
)
def test_an_entry_that_is_no_schema_is_named_and_decides_nothing(
    key: str, value: bytes, problem: str
) -> None:
    table = SchemaTable()
    table.apply(key, value)
    assert problem in table.unreadable[key]
    assert table.check("x", b"?").outcome is Outcome.FREE
    table.apply(key, None)
    assert table.unreadable == {}


def test_a_broken_schema_lets_payloads_pass_and_says_so() -> None:
    table = SchemaTable()
    table.apply("order.1", entry("orders.*", 1, {"type": "foo"}))
    verdict = table.check("orders.new", b"?")
    assert verdict.outcome is Outcome.BROKEN
    assert verdict.problem.startswith("not a JSON Schema: #/type")
    table.apply("order.1", entry("orders.*", 1, {"type": "object"}))
    assert table.check("orders.new", b"?").outcome is Outcome.INVALID


def test_a_schema_whose_library_raises_anything_lets_payloads_pass(monkeypatch: Any) -> None:
    table = table_of(order="orders.*")
    opened = table.opened("order.1")

    def fail(_payload: bytes) -> str:
        raise RuntimeError("a fault of a library")

    monkeypatch.setattr(opened, "problem", fail)
    verdict = table.check("orders.new", b"{}")
    assert (verdict.outcome, verdict.problem) == (
        Outcome.BROKEN,
        "RuntimeError: a fault of a library",
    )


def test_a_bucket_of_many_keys_is_read_up_to_a_limit() -> None:
    table = SchemaTable()
    for number in range(VERSIONS_MAX + 5):
        table.apply(f"s{number}.1", b"{")
    assert len(table.unreadable) == VERSIONS_MAX + 1
    assert "others are ignored" in table.unreadable[""]
