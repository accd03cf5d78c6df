"""Which publishes are sent again when a cluster says nothing."""

from __future__ import annotations

from tradewind.client.streams.api_requests import RESEND_SECONDS
from tradewind.client.streams.silent_publishes import SilentPublishes


def test_what_waited_at_two_looks_is_sent_again_oldest_first() -> None:
    silent, sent = SilentPublishes[int](), list[int]()
    assert silent.look(10.0, [9, 8, 30, 1], sent.append) == 10.0 + RESEND_SECONDS
    assert sent == []
    assert silent.look(13.0, [9, 30, 1, 2], sent.append) == 13.0 + RESEND_SECONDS
    assert sent == [9, 30, 1]
    silent.look(16.0, [2, 3], sent.append)
    assert sent == [9, 30, 1, 2]


def test_without_a_connection_nothing_is_sent_and_the_wait_counts() -> None:
    silent, sent = SilentPublishes[int](), list[int]()
    silent.look(10.0, [1], None)
    silent.look(13.0, [1], None)
    silent.look(16.0, [1], sent.append)
    assert sent == [1]


def test_nothing_to_look_at_ends_the_looking() -> None:
    silent = SilentPublishes[int]()
    silent.look(10.0, [1], None)
    assert silent.look(13.0, [], None) is None
    sent: list[int] = []
    silent.look(20.0, [1], sent.append)
    assert sent == [], "it was answered in between, so it is another wait"
