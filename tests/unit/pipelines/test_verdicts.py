"""What is known of a comparison of a lake with its streams, without Spark."""

from __future__ import annotations

import pytest

from tradewind.pipelines.state.verdicts import (
    RANGES_MAX,
    SHOWN_MAX,
    Difference,
    Kind,
    StreamRange,
    Verdict,
    differences_of,
    differing,
    lines_of,
    not_row_by_row,
    planned_offsets,
    range_size,
    spans_of,
)


def test_offsets_are_those_of_the_source_that_is_less_far() -> None:
    log = 'v1\n{"batchWatermarkMs":0}\n{"A":{"seq":7},"B":{"seq":9}}\n-\n{"B":{"seq":3}}\n{"x":[]}'
    assert planned_offsets(log) == {"A": 7, "B": 3}
    assert planned_offsets("v1\n{}") == {}


@pytest.mark.parametrize("last", [0, 1, 999, 10_000_000, 10_000_001, 1 << 62])
def test_there_are_never_too_many_ranges(last: int) -> None:
    size = range_size({"A": (1, last), "EMPTY": (5, 4)})
    assert -(-last // size) <= RANGES_MAX
    assert size >= 1000


def test_ranges_differ_by_count_by_checksum_or_by_being_there() -> None:
    left = {("A", 0): (1, 5, 5), ("A", 1): (2, 3, 3), ("A", 3): (1, 1, 1), ("B", 0): (1, 1, 1)}
    right = {("A", 0): (1, 5, 5), ("A", 1): (2, 3, 4), ("A", 2): (1, 1, 1), ("B", 0): (1, 1, 1)}
    found = differing(left, right)
    assert found == [("A", 1), ("A", 2), ("A", 3)]
    assert spans_of([*found, ("B", 4), ("B", 6)]) == [("A", 1, 3), ("B", 4, 4), ("B", 6, 6)]


def test_the_first_differences_are_shown_as_ranges() -> None:
    rows: list[tuple[str, int, Kind]] = [
        ("A", 1, "missing"),
        ("A", 2, "missing"),
        ("A", 3, "twice"),
        ("A", 5, "twice"),
        ("B", 6, "twice"),
    ]
    assert [(one.stream, one.first_seq, one.last_seq) for one in differences_of(rows)] == [
        ("A", 1, 2),
        ("A", 3, 3),
        ("A", 5, 5),
        ("B", 6, 6),
    ]
    assert len(differences_of(("A", seq, "extra") for seq in range(0, 100, 2))) == SHOWN_MAX


@pytest.mark.parametrize(
    ("nodes", "plan", "reason"),
    [
        (["Project", "Filter", "RelationV2"], "amount", ""),
        (["Project", "Aggregate"], "", "from several others (Aggregate)"),
        (["Join", "Deduplicate", "Project"], "", "(Deduplicate, Join)"),
        (["Project"], "Project [current_timestamp() AS now#1]", "current_timestamp() returns"),
        (["Project"], "Project [rand(5) AS r#1]", "rand() returns"),
        (["Project"], "Project [operand(5)]", ""),
    ],
)
def test_rows_that_are_not_made_one_by_one_are_told(
    nodes: list[str], plan: str, reason: str
) -> None:
    found = not_row_by_row(nodes, plan)
    assert reason in found
    assert bool(found) == bool(reason)


def test_a_verdict_says_what_was_compared_and_what_was_not() -> None:
    verdict = Verdict(
        "lake",
        "different",
        ranges=[StreamRange("A", 5, 1200, 4), StreamRange("B", 3, 2)],
        rows_stream=1000,
        rows_lake=1001,
        counts={"twice": 1, "missing": 2},
        removed=3,
        differences=[Difference("A", 7, 8, "missing"), Difference("A", 9, 9, "twice")],
        notes=["a note"],
    )
    assert list(lines_of(verdict)) == [
        "lake: the lake does NOT match the stream: 1,000 rows of the stream, 1,001 of the lake",
        "  A: sequences 5 to 1,200 were compared; 4 rows before are of messages that are gone",
        "  B: nothing was compared",
        "  3 rows are of messages that were removed from the stream since",
        "  2 rows are missing in the lake",
        "  1 rows are in the lake more than once",
        "  A sequences 7 to 8: missing in the lake",
        "  A sequence 9: in the lake more than once",
        "  a note",
    ]
    assert list(lines_of(Verdict("lake", "unverifiable", "why"))) == [
        "lake: cannot be verified: why"
    ]
