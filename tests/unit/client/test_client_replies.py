"""The inbox of a connection against a naive model: who gets which answer, and what ends when."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from client_probe import Probe
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tradewind.client.core.message import Msg
from tradewind.client.core.protocol import MessageInbox
from tradewind.client.core.replies import PendingRequest, Replies
from tradewind.client.errors import BadSubjectError, OperationTimeoutError


@dataclass
class FakeTimer:
    """What `call_at` gives."""

    when: float
    call: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class FakeLoop:
    """A clock that is moved by hand, and futures of a real loop that never runs."""

    real: asyncio.AbstractEventLoop
    now: float = 100.0
    timers: list[FakeTimer] = field(default_factory=list)

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[Any]:
        return self.real.create_future()

    def call_at(self, when: float, call: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(when, call)
        self.timers.append(timer)
        return timer

    def active(self) -> list[FakeTimer]:
        self.timers = [timer for timer in self.timers if not timer.is_cancelled]
        return self.timers

    def advance(self, seconds: float) -> None:
        self.now += seconds
        while due := [timer for timer in self.active() if timer.when <= self.now]:
            first = min(due, key=lambda timer: timer.when)
            first.cancel()
            first.call()


class InboxProbe(Probe):
    """A connection that counts how often its inbox is subscribed to."""

    def __init__(self, loop: FakeLoop) -> None:
        super().__init__()
        self._loop = loop
        self.subscribed = 0

    def _subscribe(self, subscription: MessageInbox) -> None:
        self.wire.register(subscription)
        self.subscribed += 1

    def answer(self, replies: Replies, subject: str, data: bytes) -> None:
        self.wire.feed(f"MSG {subject} {replies.sid} {len(data)}\r\n".encode() + data + b"\r\n")


@contextmanager
def inbox() -> Iterator[tuple[InboxProbe, Replies, FakeLoop]]:
    """A connection with an inbox."""
    loop = FakeLoop(asyncio.new_event_loop())
    try:
        probe = InboxProbe(loop)
        connection: Any = probe
        yield probe, Replies(connection, "_INBOX"), loop
    finally:
        loop.real.close()


@dataclass
class Asked:
    """What the model knows of a request."""

    question: PendingRequest
    deadline: float | None
    answers: list[Msg | Exception] | None  # of a handler
    number: int


class InboxMachine(RuleBasedStateMachine):
    """Requests, answers, time and errors in any order."""

    def __init__(self) -> None:
        super().__init__()
        self._context = inbox()
        self.probe, self.replies, self.loop = self._context.__enter__()
        self.waiting: list[Asked] = []
        self.count = 0

    def teardown(self) -> None:
        self._context.__exit__(None, None, None)

    @rule(seconds=st.sampled_from([0.5, 1.0, 1.0, 1.0, 2.5]))
    def ask(self, seconds: float) -> None:
        question = self.replies.ask(f"q.{self.count % 3}", b"?", None, seconds)
        self.waiting.append(Asked(question, self.loop.now + seconds, None, self.count))
        self.count += 1
        sent = self.probe.wire.take_output()
        assert sent == f"PUB {question.subject} {question.reply} 1\r\n?\r\n".encode()

    @rule()
    def add(self) -> None:
        answers: list[Msg | Exception] = []
        question = self.replies.add(f"q.{self.count % 3}", answers.append)
        self.waiting.append(Asked(question, None, answers, self.count))
        self.count += 1

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        asked = data.draw(st.sampled_from(self.waiting))
        text = str(asked.number).encode()
        self.probe.answer(self.replies, asked.question.reply, text)
        if asked.answers is None:
            assert asked.question.future.result().data == text
            self.waiting.remove(asked)
        else:
            last = asked.answers[-1]
            assert isinstance(last, Msg)
            assert last.data == text

    @rule(token=st.sampled_from(["0", "99999", "x", "1x", "-1"]))
    def answer_nobody(self, token: str) -> None:
        self.probe.answer(self.replies, self.replies.subject[:-1] + token, b"late")

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        asked = data.draw(st.sampled_from(self.waiting))
        for _ in range(2):
            self.replies.forget(asked.question)
        self.waiting.remove(asked)

    @rule(seconds=st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0]))
    def pass_time(self, seconds: float) -> None:
        self.loop.advance(seconds)
        over = [a for a in self.waiting if a.deadline is not None and a.deadline <= self.loop.now]
        for asked in over:
            assert isinstance(asked.question.future.exception(), OperationTimeoutError)
            self.waiting.remove(asked)

    @precondition(lambda self: self.waiting)
    @rule(subject=st.sampled_from(["q.0", "q.1", "q.2"]))
    def refuse(self, subject: str) -> None:
        error = ValueError("no permission")
        self.replies.fail(error, subject)
        for asked in [a for a in self.waiting if a.question.subject == subject]:
            if asked.answers is None:
                assert asked.question.future.exception() is error
                self.replies.forget(asked.question)  # as whoever waits does
                self.waiting.remove(asked)
            else:
                assert asked.answers[-1] is error

    @invariant()
    def only_those_wait_who_should(self) -> None:
        assert len(self.replies) == len(self.waiting)
        assert self.probe.subscribed == bool(self.count)
        assert not any(a.question.future.done() for a in self.waiting if a.answers is None)
        deadlines = [a.deadline for a in self.waiting if a.deadline is not None]
        if deadlines:
            assert min(timer.when for timer in self.loop.active()) <= min(deadlines)
        assert len(self.loop.active()) <= 1


TestInbox = pytest.mark.slow(InboxMachine.TestCase)
TestInbox.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_a_request_that_cannot_be_sent_leaves_nothing_behind() -> None:
    with inbox() as (probe, replies, _loop):
        with pytest.raises(BadSubjectError):
            replies.ask("bad..subject", b"", None, 1.0)
        with pytest.raises(BadSubjectError):
            replies.ask("bad subject", "text", {"a": "b"}, 1.0)
        assert len(replies) == 0
        assert probe.wire.take_output() == b""


def test_timeouts_that_differ_each_time_do_not_add_up() -> None:
    with inbox() as (probe, replies, loop):
        for number in range(1000):
            question = replies.ask("q", b"", None, 1.0 + number)
            probe.answer(replies, question.reply, b"")
        assert replies._timeouts_in_use == 1  # kept for the next request
        loop.advance(2000.0)
        assert not loop.active()
