"""The trie with its cache against a list that is searched from end to end."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)
from subject_model import matches

from thoroughness import some
from tradewind.route.sublist import Sublist

# Under seed 0 these eight bytes make a factor of the hash zero: all tokens around them collide.
ERASER = (0xE7037ED1A0B428DB).to_bytes(8, "little")
COLLIDING = [b"%08d%b!" % (number, ERASER) for number in range(40)]

tokens = st.sampled_from([b"a", b"b", b"ab", b"f*o", b"x" * 20, *COLLIDING[:6]])
literals = st.lists(tokens, min_size=1, max_size=4).map(b".".join)
patterns = st.builds(
    lambda parts, tail: b".".join(parts + tail),
    st.lists(st.one_of(tokens, st.just(b"*")), min_size=1, max_size=4),
    st.sampled_from([[], [], [b">"]]),
)
inboxes = st.sampled_from([b"_INBOX.a", b"_INBOX.b.1", b"$JS.ACK.a.b"])
# A published subject is not checked: wildcards and empty tokens may come.
published = st.one_of(
    literals, patterns, inboxes, st.text("ab.*>", max_size=6).map(str.encode), st.just(b"a" * 600)
)
# Long enough for several nodes in a row, and alike enough to be divided and joined again.
runs = st.lists(
    st.tuples(st.sampled_from([b"a", b"*", b"b", b"y" * 150]), st.sampled_from([1, 2, 64, 128])),
    min_size=1,
    max_size=3,
).map(lambda parts: b".".join(b".".join([token] * count) for token, count in parts))
LABEL_BYTES_MAX = 256
queues = st.sampled_from([b"", b"", b"q", b"r", b"queue with a long name"])


def nodes_needed(patterns: set[bytes]) -> int:
    """Where patterns end, part, or are followed by '>': no other token needs a node of its own."""
    following = defaultdict(set)
    for pattern in patterns:
        end = 0  # of the tokens before, with their last dot
        for token in pattern.split(b"."):
            following[pattern[:end]].add(token)
            end += len(token) + 1
    following.pop(b"", None)
    places = {prefix for prefix, after in following.items() if len(after) > 1 or b">" in after}
    return len(places | {pattern + b"." for pattern in patterns})


class Subscriptions(RuleBasedStateMachine):
    handles: Bundle[int] = Bundle("handles")

    @initialize(seed=st.sampled_from([0, 1, 2**64 - 1]))
    def begin(self, seed: int) -> None:
        self.cached = Sublist(seed)
        self.plain = Sublist(seed, False)
        self.model: dict[int, tuple[bytes, bytes]] = {}
        self.twins: dict[int, int] = {}
        self.has_been_long = False

    @rule(target=handles, subject=st.one_of(patterns, literals, inboxes), queue=queues)
    def subscribe(self, subject: bytes, queue: bytes) -> int:
        """The subject is looked up before, so that the cache must learn of the change."""
        self.find(subject)
        handle = self.add(subject, queue)
        self.find(subject)
        return handle

    def add(self, subject: bytes, queue: bytes) -> int:
        handle = self.cached.add(subject, queue)
        self.twins[handle] = self.plain.add(subject, queue)
        self.model[handle] = subject, queue
        self.has_been_long |= len(subject) > LABEL_BYTES_MAX
        return handle

    @rule(target=handles, subject=runs, queue=queues, end=st.sampled_from([b"", b".>", b".*.c"]))
    def subscribe_to_many_tokens(self, subject: bytes, queue: bytes, end: bytes) -> int:
        return self.subscribe(subject + end, queue)

    @rule(subject=runs, end=st.sampled_from([b"", b".a", b"x"]))
    def find_many_tokens(self, subject: bytes, end: bytes) -> None:
        self.find(subject + end)

    @rule(handle=handles, token=st.sampled_from([b"a", b"b", b"y" * 150]), end=st.booleans())
    def find_by_pattern(self, handle: int, token: bytes, end: bool) -> None:
        """A subject that the pattern matches, or one that differs at its end."""
        tokens = self.model[handle][0].split(b".")
        subject = b".".join(token if part in (b"*", b">") else part for part in tokens)
        self.find(subject)
        self.find(subject + b".a" if end else subject + b"x")
        self.find(subject[:-1])

    @rule(target=handles, subject=patterns, queue=queues, count=st.integers(2, 70))
    def add_many(self, subject: bytes, queue: bytes, count: int) -> Any:
        return multiple(*(self.add(subject, queue) for _ in range(count)))

    @rule(target=handles, count=st.integers(2, len(COLLIDING)))
    def add_colliding(self, count: int) -> Any:
        return multiple(*(self.add(b"a." + token, b"") for token in COLLIDING[:count]))

    @rule(target=handles, subject=patterns, count=st.integers(2, 20), twice=st.booleans())
    def add_groups(self, subject: bytes, count: int, twice: bool) -> Any:
        """Many groups on one subject; their names collide under the seed 0."""
        names = COLLIDING[:count] * (2 if twice else 1)
        return multiple(*(self.add(subject, name) for name in names))

    @rule(handles=st.lists(consumes(handles), max_size=12))
    def discard_many(self, handles: list[int]) -> None:
        for handle in handles:
            self.discard(handle)

    @rule(handle=consumes(handles))
    def unsubscribe(self, handle: int) -> None:
        subject, _ = self.model[handle]
        self.find(subject)
        self.discard(handle)
        self.find(subject)

    def discard(self, handle: int) -> None:
        del self.model[handle]
        self.cached.discard(handle)
        self.plain.discard(self.twins.pop(handle))

    @rule(subject=published)
    def find(self, subject: bytes) -> None:
        expected_plain = set()
        expected_groups = defaultdict(set)
        for handle, (pattern, queue) in self.model.items():
            if matches(pattern.decode("latin-1"), subject.decode("latin-1")):
                (expected_groups[queue] if queue else expected_plain).add(handle)
        for _ in ("looked up", "perhaps from the cache"):
            plain, groups = self.cached.find(subject)
            assert len(plain) == len(expected_plain)
            assert set(plain) == expected_plain
            assert {name: set(members) for name, members in groups.items()} == expected_groups
            assert sum(map(len, groups.values())) == sum(map(len, expected_groups.values()))
        plain, groups = self.plain.find(subject)
        assert set(plain) == {self.twins[handle] for handle in expected_plain}
        assert {name: set(members) for name, members in groups.items()} == {
            name: {self.twins[handle] for handle in members}
            for name, members in expected_groups.items()
        }
        interest = bool(expected_plain or expected_groups)
        assert self.cached.has_interest(subject) == interest
        assert self.plain.has_interest(subject) == interest
        for queue in (b"", b"q", b"r", COLLIDING[1]):
            exact = (subject, queue) in self.model.values()
            assert self.cached.is_subscribed(subject, queue) == exact

    @rule()
    def fill_the_cache(self) -> None:
        for number in range(300):
            self.cached.find(b"a.%d" % number)

    @invariant()
    def nothing_is_left_behind(self) -> None:
        if not hasattr(self, "model"):
            return
        expected = nodes_needed({pattern for pattern, _ in self.model.values()})
        total = sum(len(pattern) for pattern, _ in self.model.values())
        for tree in (self.cached, self.plain):
            assert tree.count == tree.inserts - tree.removes == len(self.model)
            if self.has_been_long:
                assert expected <= tree.node_count() <= 2 * expected + total // 128
            else:
                assert tree.node_count() == expected

    def teardown(self) -> None:
        for handle in list(getattr(self, "model", ())):
            self.discard(handle)
        if hasattr(self, "model"):
            self.nothing_is_left_behind()


TestSubscriptions = pytest.mark.slow(Subscriptions.TestCase)
TestSubscriptions.settings = settings(max_examples=some(30, 2000), stateful_step_count=60)
