"""The processes around the move of a stream: a publisher, a consumer, and a mover that is
interrupted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import tradewind.sync
from harness import wait_for
from tradewind.cli.moving.move_journal import Journal, Method, MoveStep, load, save
from tradewind.cli.moving.mover import Mover
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.errors import ClientError

OLD = 150  # messages before the move begins
ACKNOWLEDGED = 50
PACE_SECONDS = 0.02
REQUEST_SECONDS = 20.0


def make_stream(url: str, stream: str, *, count: int = OLD, **config: Any) -> None:
    """With a consumer `packer` that has acknowledged some of its messages."""
    with tradewind.sync.connect(url, timeout=REQUEST_SECONDS) as connection:
        manager = connection.jetstream_manager()
        manager.streams.add(name=stream, subjects=[f"{stream.lower()}.>"], **config)
        manager.consumers.add(stream, durable_name="packer", ack_policy="explicit", ack_wait=10)
        js = connection.jetstream()
        for number in range(count):
            js.publish(f"{stream.lower()}.old", b"-%d" % (number + 1), msg_id=f"old{number}")
        for message in js.consumers.get(stream, "packer").fetch(ACKNOWLEDGED):
            message.ack_sync()


class _Somebody(threading.Thread):
    """Works at one place, and at the other when that fails."""

    def __init__(self, stream: str, urls: Iterable[str]) -> None:
        super().__init__()
        self._stream = stream
        self._urls = list(urls)
        self._ended = threading.Event()
        self._place = 0

    def run(self) -> None:
        connections = [
            tradewind.sync.connect(
                url, timeout=1, connect_timeout=REQUEST_SECONDS, reconnect_wait=0.05
            )
            for url in self._urls
        ]
        while not self._ended.wait(PACE_SECONDS):
            try:
                self.work(connections[self._place])
            except (ClientError, JetStreamApiError):
                self._place = 1 - self._place
        for connection in connections:
            connection.close()

    def work(self, connection: Any) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self._ended.set()
        self.join(60)
        assert not self.is_alive()


class Publisher(_Somebody):
    """Publishes numbers, each until a server has stored it, wherever the stream is."""

    count = 0

    def work(self, connection: Any) -> None:
        body = str(self.count).encode()
        subject = f"{self._stream.lower()}.new"
        connection.jetstream().publish(subject, body, msg_id=f"n{self.count}", timeout=2)
        self.count += 1


class Packer(_Somebody):
    """Handles the messages of the consumer, and waits until their end is confirmed."""

    def __init__(self, stream: str, urls: Iterable[str]) -> None:
        super().__init__(stream, urls)
        self.handled: set[int] = set()
        self.twice: list[int] = []  # that came again although their end was confirmed
        self._confirmed: set[int] = set()

    def work(self, connection: Any) -> None:
        messages = (
            connection.jetstream().consumers.get(self._stream, "packer").fetch(20, expires=0.3)
        )
        count = 0
        for message in messages:
            number = int(message.data)
            self.handled.add(number)
            if number in self._confirmed:
                self.twice.append(number)
            message.ack_sync()
            self._confirmed.add(number)
            count += 1
        if not count:
            self._place = 1 - self._place


def numbers(url: str, stream: str) -> list[int]:
    """The numbers in a stream, in order."""
    with tradewind.sync.connect(url, timeout=REQUEST_SECONDS) as connection:
        last = connection.jetstream_manager().streams.info(stream).state.last_seq
        found = []
        with connection.jetstream().consumers.ordered(stream).consume() as messages:
            while len(found) < last:
                found.append(int(messages.next(REQUEST_SECONDS).data))
        return found


class KilledError(Exception):
    """Stands for the end of the process that moves."""


class _CutJournal(Journal, kw_only=True):
    """Ends the process instead of noting a step as done."""

    cut: MoveStep

    def next_step(self) -> None:
        if self.step is self.cut:
            raise KilledError
        super().next_step()


def run_move(origin: str, target: str, path: Path, cut: MoveStep | None = None) -> None:
    """Go on with a move; it is cut off before `cut` is noted as done."""
    journal = load(path)
    if cut is not None:
        fields = {name: getattr(journal, name) for name in Journal.__struct_fields__}
        journal = _CutJournal(**fields, cut=cut)
    with (
        tradewind.sync.connect(origin, timeout=REQUEST_SECONDS) as old,
        tradewind.sync.connect(target, timeout=REQUEST_SECONDS) as new,
    ):
        Mover(journal, path, old, new, say=lambda _text: None, ack_seconds=5).run()


def check_a_move_with_kills(
    stream: str,
    urls: tuple[str, str],
    path: Path,
    kill: Callable[[], None],
    *,
    method: Method,
    origin_api: str = "",
    replicas: int = 0,
    steps: Iterable[MoveStep],
) -> None:
    """Check that no message is lost or stored twice when a process is killed after each of `steps`
    while messages are published and consumed, and that no message is handled twice that a consumer
    had left unacknowledged.
    """
    journal = Journal(
        id="abc", stream=stream, origin=urls[0], target=urls[1], method=method,
        origin_api=origin_api, replicas=replicas,
    )  # fmt: skip
    save(path, journal)
    publisher, packer = Publisher(stream, urls), Packer(stream, urls)
    publisher.start()
    packer.start()
    old = list(range(-1, -OLD - 1, -1))
    try:
        wait_for(lambda: publisher.count > 0, lambda: "nothing is published", seconds=60)
        for step in steps:
            with pytest.raises(KilledError):
                run_move(*urls, path, step)
            kill()
        run_move(*urls, path)
        publisher.end()
        expected = {*old[ACKNOWLEDGED:], *range(publisher.count)}
        wait_for(lambda: packer.handled >= expected, lambda: expected - packer.handled, seconds=60)
    finally:
        publisher.end()
        packer.end()
    assert load(path).step is MoveStep.DONE
    assert publisher.count > 0
    assert numbers(urls[1], stream) == [*old, *range(publisher.count)]
    assert packer.handled == expected
    # With a mirror what was acknowledged above the floor comes again, as the page says.
    floor = load(path).consumers[0]["floor"] if method is Method.MIRROR else publisher.count + OLD
    places = [OLD + number + 1 if number >= 0 else -number for number in packer.twice]
    assert [seq for seq in places if seq <= floor] == []
