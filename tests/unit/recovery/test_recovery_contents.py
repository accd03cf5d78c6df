"""Waiting until what a stream has can be read: its state is ahead of that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tradewind.api.stream_types import StreamState
from tradewind.client.api_errors import NoMessageFoundError
from tradewind.recovery import RecoveryError
from tradewind.recovery.contents import wait_readable


class Streams:
    """A stream with these sequences, the last of which can be read only after some looks."""

    def __init__(self, seqs: list[int], last_seq: int, unsynced: int = 0, looks: int = 0) -> None:
        self._seqs, self._last, self._unsynced, self._looks = seqs, last_seq, unsynced, looks
        self.asked = 0

    def get_message(self, _stream: str, *, seq: int, next_by_subject: str) -> Any:
        assert next_by_subject == ">"
        self.asked += 1
        readable = self._seqs
        if self._unsynced and self.asked <= self._looks:
            readable = self._seqs[: -self._unsynced]
        found = [each for each in readable if each >= seq]
        if not found:
            raise NoMessageFoundError(404, 10037, "no message found")
        return SimpleNamespace(seq=found[0])

    def info(self, _stream: str, *, deleted_details: bool = False) -> Any:
        gone = sorted(set(range(1, self._last + 1)) - set(self._seqs))
        state = StreamState(
            messages=len(self._seqs),
            first_seq=min(self._seqs, default=self._last + 1),
            last_seq=self._last,
            num_deleted=len(gone),
            deleted=gone if deleted_details else [],
        )
        return SimpleNamespace(state=state)


def wait(streams: Streams, last_seq: int) -> int:
    """How often it has looked."""
    connection: Any = SimpleNamespace(jetstream_manager=lambda: SimpleNamespace(streams=streams))
    wait_readable(connection, "S", last_seq)
    return streams.asked


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.recovery.recovery_errors.POLL_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("seqs", "last_seq", "upto", "looks"),
    [
        ([1, 2, 3], 3, 3, 1),
        ([1, 2, 3], 3, 0, 0),  # nothing to wait for
        ([1, 2], 5, 3, 1),  # removed at the end
        ([], 5, 5, 1),  # purged
        ([1, 2, 5], 5, 3, 1),  # what follows can be read, so that can be too
        ([1, 2, 3], 3, 7, 1),  # it does not have so much
    ],
)
def test_nobody_waits_for_what_is_readable_or_gone(
    seqs: list[int], last_seq: int, upto: int, looks: int
) -> None:
    assert wait(Streams(seqs, last_seq), upto) == looks


def test_what_is_not_synced_is_waited_for() -> None:
    assert wait(Streams([1, 2, 4, 5], 5, unsynced=2, looks=6), 5) == 7
    assert wait(Streams([1, 2, 4, 5], 5, unsynced=1, looks=6), 5) == 7


def test_messages_that_never_become_readable_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.recovery.contents.MESSAGE_SECONDS", 0.05)
    with pytest.raises(RecoveryError, match="up to sequence 3 cannot be read within"):
        wait(Streams([1, 2, 3], 3, unsynced=1, looks=1 << 30), 3)
