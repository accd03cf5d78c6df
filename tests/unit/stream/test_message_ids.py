"""The table of message ids: what it knows, and that nobody waits for it to grow or to shrink."""

from __future__ import annotations

import random

from tradewind.stream.message_ids import MessageIds

WINDOW_NS = 1000


def test_no_id_waits_until_the_table_of_all_has_grown() -> None:
    ids = MessageIds(WINDOW_NS, seed=1)
    unmoved = growths = 0
    for number in range(1, 20_000):
        ids.remember(b"id-%d" % number, number, 0)
        before, unmoved = unmoved, ids.unmoved
        growths += unmoved > before
        assert unmoved > before or before - unmoved <= 8
        # One that has moved, or one that has not.
        some = number * 7919 % number + 1
        assert ids.lookup(b"id-%d" % some, 1) == some
    assert growths > 8
    assert all(ids.lookup(b"id-%d" % number, 1) == number for number in range(1, 20_000))


def test_the_table_knows_what_a_dictionary_knows_while_ids_come_and_go() -> None:
    chance = random.Random(3)
    ids = MessageIds(WINDOW_NS, seed=2)
    known: dict[bytes, tuple[int, int]] = {}
    for seq in range(1, 30_000):
        # At first many for each moment, so that it grows; then fewer, so that most expire.
        now_ns = seq // 8 if seq < 15_000 else seq
        ids.expire(now_ns, 3)
        name = b"%d" % chance.randrange(6000)
        latest, came_ns = known.get(name, (0, -WINDOW_NS))
        expected = latest if came_ns + WINDOW_NS > now_ns else 0
        assert ids.lookup(name, now_ns) == expected
        if not expected:
            ids.remember(name, seq, now_ns)
            known[name] = (seq, now_ns)
    ids.expire(10**9)
    assert (ids.count, ids.memory_bytes) == (0, 0)


def test_of_two_messages_with_an_id_the_later_one_counts() -> None:
    ids = MessageIds(WINDOW_NS, seed=2)
    ids.remember(b"a", 1, 0)
    ids.remember(b"a", 2, 10)
    assert ids.lookup(b"a", 20) == 2
    ids.expire(WINDOW_NS + 5)
    assert ids.count == 1
    assert ids.lookup(b"a", WINDOW_NS + 5) == 2


def test_ids_that_have_left_the_window_are_unknown_and_go_in_steps() -> None:
    ids = MessageIds(WINDOW_NS, seed=2)
    for number in range(40_000):
        ids.remember(b"%d" % number, number + 1, 0)
    ids.remember(b"late", 50_000, WINDOW_NS)
    assert ids.lookup(b"39999", WINDOW_NS) == 0
    left = []
    while ids.next_expiry_ns <= WINDOW_NS:
        ids.expire(WINDOW_NS, 16_384)
        left.append(ids.count)
        assert ids.lookup(b"39999", WINDOW_NS) == 0
        assert ids.lookup(b"late", WINDOW_NS) == 50_000
    assert left == [40_001 - 16_384, 40_001 - 2 * 16_384, 1]
