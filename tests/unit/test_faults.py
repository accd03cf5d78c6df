"""Faults that a border has stopped: what is counted, and what the log is told."""

from __future__ import annotations

from tradewind import faults
from tradewind.faults import Faults


def raised(text: str = "broken") -> Exception:
    try:
        raise RuntimeError(text)
    except RuntimeError as error:
        return error


def test_a_fault_is_said_with_its_cause_in_one_line() -> None:
    lines: list[str] = []
    Faults(lines.append).contain("consumer", raised(), "'A > S > c'")
    [line] = lines
    assert line.startswith("Internal error in consumer 'A > S > c': RuntimeError('broken') [")
    assert line.endswith(" raised]")
    assert "test_faults.py:" in line


def test_the_same_fault_is_said_at_the_first_the_tenth_and_the_hundredth_time() -> None:
    lines: list[str] = []
    found = Faults(lines.append)
    for _ in range(150):
        found.contain("timer", raised())
    assert found.total == found.counts["timer"] == 150
    assert len(lines) == 3
    assert lines[1].endswith("(10 times by now)")
    assert lines[2].endswith("(100 times by now)")


def test_other_places_and_kinds_are_said_by_themselves() -> None:
    lines: list[str] = []
    found = Faults(lines.append)
    found.contain("timer", raised())
    found.contain("stream", raised())
    found.contain("stream", ValueError("without a place"))
    assert len(lines) == 3
    assert found.counts == {"timer": 1, "stream": 2}


def test_what_a_peer_has_sent_cannot_forge_or_fill_the_log() -> None:
    lines: list[str] = []
    Faults(lines.append).contain("request", raised("x" * 100_000 + "\nERR"), "a\r\n[INF] b")
    [line] = lines
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 2000


def test_kinds_that_are_remembered_have_a_bound() -> None:
    lines: list[str] = []
    found = Faults(lines.append)
    for number in range(faults.KINDS_MAX + 50):
        found.contain(f"place {number}", raised())
    assert found.total == faults.KINDS_MAX + 50
    assert len(lines) == faults.KINDS_MAX


def test_a_log_that_fails_makes_no_second_fault() -> None:
    def fail(_: str) -> None:
        raise OSError("no space")

    class Unspeakable(Exception):  # noqa: N818 - it has no text
        def __repr__(self) -> str:
            raise RuntimeError("not even this")

    found = Faults(fail)
    found.contain("session", raised())
    found.contain("session", Unspeakable())
    assert found.total == 2
