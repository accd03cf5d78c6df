"""Journals of failovers and failbacks: the order of steps, and files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.recovery import RecoveryError, RecoveryJournal, RecoveryKind, RecoveryStep
from tradewind.recovery.recovery_journal import RECOVERY_STEPS, load_recovery, save_journal
from tradewind.recovery.sides import KnownConsumer

KINDS = st.sampled_from(RecoveryKind)


def journal(kind: RecoveryKind, **fields: object) -> RecoveryJournal:
    return RecoveryJournal(id="abc", stream="S", kind=kind, **fields)  # type: ignore[arg-type]


@given(KINDS)
def test_every_kind_goes_through_its_steps_once_and_ends(kind: RecoveryKind) -> None:
    made, seen = journal(kind), []
    while not made.is_done:
        seen.append(made.step)
        made.next_step()
    assert (*seen, RecoveryStep.DONE) == RECOVERY_STEPS[kind]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("kind", RecoveryKind)
def test_subjects_are_given_only_behind_the_consumers(kind: RecoveryKind) -> None:
    """Before that the change can be rolled back, so nobody may have stored anything."""
    steps = RECOVERY_STEPS[kind]
    assert steps.index(RecoveryStep.CONSUMERS) + 1 == steps.index(RecoveryStep.PROMOTE)
    if kind is not RecoveryKind.LOST:
        assert steps.index(RecoveryStep.VERIFY) < steps.index(RecoveryStep.CONSUMERS)
    if kind is RecoveryKind.FAILBACK:
        assert steps.index(RecoveryStep.SAVE) < steps.index(RecoveryStep.REBUILD)
        assert steps.index(RecoveryStep.VERIFY) < steps.index(RecoveryStep.REMIRROR)


@given(KINDS, st.data())
def test_a_step_has_begun_from_its_turn_on(kind: RecoveryKind, data: st.DataObject) -> None:
    steps = RECOVERY_STEPS[kind]
    now, other = data.draw(st.sampled_from(steps)), data.draw(st.sampled_from(RecoveryStep))
    begun = steps[: steps.index(now) + 1]
    assert journal(kind, step=now).has_begun(other) == (other in begun)


@settings(max_examples=20, deadline=None)  # each one is synced
@given(KINDS, st.integers(0, 2**63), st.text(max_size=20))
def test_a_journal_comes_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, kind: RecoveryKind, floor: int, name: str
) -> None:
    path = tmp_path_factory.mktemp("journal") / "j.json"
    consumers = [KnownConsumer(name=name, floor=floor, config={"durable_name": name})]
    made = journal(kind, consumers=consumers, subjects=["a.>"], last_seq=floor)
    save_journal(path, made)
    assert load_recovery(path) == made
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b'{"id":"x","stream":"S","kind":"dance"}',
        b'{"id":"x","stream":"S","kind":"failover","step":"fence"}',
    ],
)
def test_a_damaged_journal_is_an_error_with_its_name(tmp_path: Path, content: bytes) -> None:
    """Also one with a step that its kind does not have."""
    path = tmp_path / "j.json"
    path.write_bytes(content)
    with pytest.raises(RecoveryError, match=r"j\.json: not the journal of a failover or failback"):
        load_recovery(path)


def test_a_missing_journal_is_an_error_that_says_where_they_are(tmp_path: Path) -> None:
    with pytest.raises(RecoveryError, match="no such file") as caught:
        load_recovery(tmp_path / "j.json")
    assert "STREAM.failover.json" in caught.value.hints[0]
