"""Who watches a subject is told when it gains or loses receivers: the model looks at everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from subject_model import matches

from thoroughness import some
from tradewind.options import GLOBAL_ACCOUNT
from tradewind.testing import FakeConnection, InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

LITERALS = ("d", "d.a", "d.b", "d.a.x", "e")
PATTERNS = (*LITERALS, "d.*", "d.>", "*.a", "*", ">")
QUEUES = ("", "q", "a")
Key = tuple[str, str]  # subject and queue group


@dataclass
class Link:
    """A connection and what it subscribes to, by sid; with the messages left, 0: no limit."""

    connection: FakeConnection
    keys: dict[int, Key] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)


class Watches(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        # With an engine, because that is who tells the watchers.
        self.server = InProcessServer(disk=SimulatedDisk())
        self.account = self.server.broker.accounts[GLOBAL_ACCOUNT]
        self.links = [self.new_link() for _ in range(3)]
        self.watched: dict[Key, Callable[[], object]] = {}
        self.waiting: dict[str, Callable[[], None]] = {}
        self.told: list[Key] = []
        self.found: list[str] = []
        self.last_sid = 0

    def new_link(self) -> Link:
        return Link(self.server.connect(b'CONNECT {"verbose":false}\r\n'))

    def present(self) -> set[Key]:
        return {key for link in self.links for key in link.keys.values()}

    def turn(self, before: set[Key], touched: set[Key]) -> None:
        """One turn is over, in which subscriptions of these came or went."""
        now = self.present()
        for subject, queue in self.watched:
            same = {key for key in touched if key[0] == subject and queue in ("", key[1])}
            told = self.told.count((subject, queue))
            assert told <= (1 if same else 0), (subject, queue)
            assert told == 1 or not same & (before ^ now), (subject, queue)
        heard = [
            subject
            for subject in self.waiting
            if any(matches(pattern, subject) for pattern, _ in now)
        ]
        assert sorted(self.found) == sorted(heard)
        for subject in heard:
            del self.waiting[subject]
        self.told.clear()
        self.found.clear()

    # ------------------------------------------------------------------ who watches

    @rule(subject=st.sampled_from(LITERALS), queue=st.sampled_from(QUEUES))
    def watch(self, subject: str, queue: str) -> None:
        key = subject, queue
        if key in self.watched:
            self.account.unwatch(subject.encode(), queue.encode(), self.watched.pop(key))
        else:
            self.watched[key] = partial(self.told.append, key)
            self.account.watch(subject.encode(), queue.encode(), self.watched[key])

    @rule(subject=st.sampled_from(LITERALS), cancel=st.booleans())
    def wait(self, subject: str, cancel: bool) -> None:
        if cancel and subject in self.waiting:
            self.waiting.pop(subject)()
        elif subject not in self.waiting and not self.account.has_interest(subject):
            found = partial(self.found.append, subject)
            self.waiting[subject] = self.account.watch_interest(subject, found)

    # ------------------------------------------------------------------ who comes and goes

    @rule(
        index=st.integers(0, 2),
        keys=st.lists(
            st.tuples(st.sampled_from(PATTERNS), st.sampled_from(QUEUES)), min_size=1, max_size=3
        ),
        left=st.integers(0, 2),
    )
    def subscribe(self, index: int, keys: list[Key], left: int) -> None:
        before, link, lines = self.present(), self.links[index], ""
        for subject, queue in keys:
            self.last_sid += 1
            lines += f"SUB {subject} {queue} {self.last_sid}\r\n"
            if left:
                lines += f"UNSUB {self.last_sid} {left}\r\n"
            link.keys[self.last_sid] = subject, queue
            link.left[self.last_sid] = left
        link.connection.send(lines.encode())
        self.turn(before, set(keys))

    @rule(index=st.integers(0, 2), choice=st.integers(0, 9), again=st.booleans())
    def unsubscribe(self, index: int, choice: int, again: bool) -> None:
        """Also with the same subscription coming back within the turn."""
        before, link = self.present(), self.links[index]
        if not link.keys:
            return
        sid = list(link.keys)[choice % len(link.keys)]
        subject, queue = key = link.keys.pop(sid)
        lines = f"UNSUB {sid}\r\n"
        if again:
            self.last_sid += 1
            link.keys[self.last_sid], link.left[self.last_sid] = key, 0
            lines += f"SUB {subject} {queue} {self.last_sid}\r\n"
        link.connection.send(lines.encode())
        self.turn(before, {key})

    @precondition(lambda self: all(not queue for _, queue in self.present()))
    @rule(subject=st.sampled_from(LITERALS))
    def publish(self, subject: str) -> None:
        """Subscriptions with a maximum end by it; which member of a group gets it is not known."""
        before, touched = self.present(), set()
        self.links[0].connection.send(f"PUB {subject} 0\r\n\r\n".encode())
        for link in self.links:
            for sid, key in list(link.keys.items()):
                if link.left[sid] and matches(key[0], subject):
                    link.left[sid] -= 1
                    if not link.left[sid]:
                        del link.keys[sid]
                        touched.add(key)
        self.turn(before, touched)

    @rule(index=st.integers(0, 2))
    def close(self, index: int) -> None:
        before, link = self.present(), self.links[index]
        touched = set(link.keys.values())
        self.links[index] = Link(link.connection)
        link.connection.close()
        self.turn(before, touched)
        self.links[index] = self.new_link()


TestWatches = pytest.mark.slow(Watches.TestCase)
TestWatches.settings = settings(max_examples=some(50, 120), stateful_step_count=40, deadline=None)
