"""Servers that are killed right after they have answered: what was answered is so after the start.

Both are asked for a sync with each commit, and are killed as a process: what the system has
outlives that. That the disk has it too is tested without processes, in test_engine_promises.py.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness import ServerProcess
from server_kill_streams import Wire

KILLS = 30 if os.environ.get("TRADEWIND_THOROUGH") == "1" else 3
# More than a state may have that is always written as a whole.
MESSAGES = 1500
BOTH = ["official", "tradewind"]
# nats-server writes the state of a consumer some time after it has answered; only the removal of
# the message itself is kept.
KEPT = [("official", "workqueue"), *(("tradewind", r) for r in ("workqueue", "interest", "limits"))]


class Life:
    """One life of a server on a folder."""

    def __init__(self, kind: str, folder: Path) -> None:
        config = folder / "server.conf"
        store = folder / "store"
        config.write_text(f'jetstream {{ store_dir: "{store}", sync_interval: always }}')
        flags = ["-a", "127.0.0.1", "-p", "-1", "-c", str(config)]
        self.server = ServerProcess(kind, flags).wait_ready()
        self.wire = Wire(self.server.port)

    def kill(self) -> None:
        self.server.signal(signal.SIGKILL)
        self.server.wait()
        self.wire.close()

    def publish(self, count: int) -> None:
        wire = self.wire
        wire.send(f"PUB s.a {wire.answer_to(0)} 1\r\nx\r\n".encode() * count)
        for _ in range(count):
            wire.next_message()

    def take(self, count: int) -> list[str]:
        """Have messages delivered; gives their ack subjects."""
        wire = self.wire
        body = f'{{"batch": {count}, "expires": 20000000000}}'
        reply = f"{wire.inbox}.given.1"
        wire.send(f"PUB $JS.API.CONSUMER.MSG.NEXT.S.c {reply} {len(body)}\r\n{body}\r\n")
        return [wire.next_message()[1] for _ in range(count)]

    def ack(self, subjects: list[str], answers: int) -> int:
        """Acknowledge all of it in one go, and wait for so many answers."""
        wire = self.wire
        wire.send(
            b"".join(
                f"PUB {subject} {wire.answer_to(0)} 4\r\n+ACK\r\n".encode() for subject in subjects
            )
        )
        for _ in range(answers):
            wire.next_message()
        return answers


@contextmanager
def living(kind: str, folder: Path) -> Iterator[Life]:
    life = Life(kind, folder)
    try:
        yield life
    finally:
        life.wire.close()
        life.server.stop()


def create(life: Life, retention: str) -> None:
    stream: dict[str, Any] = {"name": "S", "subjects": ["s.*"], "retention": retention}
    life.wire.api("STREAM.CREATE.S", stream)
    config = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": 2 * MESSAGES}
    life.wire.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})


@pytest.mark.parametrize(("kind", "retention"), KEPT)
def test_an_acknowledgement_that_was_answered_survives_a_kill(
    tmp_path: Path, kind: str, retention: str
) -> None:
    random = Random(7)
    for number in range(KILLS):
        folder = tmp_path / str(number)
        folder.mkdir()
        with living(kind, folder) as life:
            create(life, retention)
            life.publish(MESSAGES)
            subjects = life.take(MESSAGES)
            answered = life.ack(subjects[:40], 40)
            # Not all of them are waited for: the kill comes in the middle.
            sent = subjects[40 : 40 + random.choice((1, 10, 1000))]
            answered += life.ack(sent, random.randint(1, len(sent)))
            life.kill()
        with living(kind, folder) as life:
            if retention != "limits":
                # Answered in the order in which they came, so the first ones are gone.
                assert life.wire.api("STREAM.INFO.S")["state"]["first_seq"] > answered
            if kind == "tradewind":
                info = life.wire.api("CONSUMER.INFO.S.c")
                assert info["ack_floor"]["stream_seq"] >= answered
                assert info["num_ack_pending"] <= MESSAGES - answered


@pytest.mark.parametrize(("kind", "is_busy"), [*((kind, False) for kind in BOTH), (BOTH[1], True)])
def test_a_reset_that_was_answered_survives_a_kill(
    tmp_path: Path, kind: str, is_busy: bool
) -> None:
    """nats-server loses that of a consumer which has delivered a moment before."""
    with living(kind, tmp_path) as life:
        create(life, "limits")
        life.publish(10)
        life.ack(life.take(5), 5)
    for seq in range(2, 2 + KILLS):
        with living(kind, tmp_path) as life:
            if is_busy:
                life.ack(life.take(2), 2)
            answer = life.wire.api("CONSUMER.RESET.S.c", {"seq": seq % 8 + 1})
            life.kill()
        with living(kind, tmp_path) as life:
            info = life.wire.api("CONSUMER.INFO.S.c")
            assert info["delivered"]["consumer_seq"] == info["num_ack_pending"] == 0
            assert info["ack_floor"]["stream_seq"] == answer["reset_seq"] - 1 == seq % 8
            assert info["num_pending"] == 10 - seq % 8
