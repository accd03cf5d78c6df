"""Our client and a server that knows more than it does.

The API is answered by the test under a prefix of its own, so that it can say anything.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from helpers_client import connected

from harness import ServerProcess
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.core.message import Msg
from tradewind.client.errors import BadAnswerError, OptionsError


class Api:
    """Answers requests from a table, and keeps their bodies."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers
        self.bodies: dict[str, Any] = {}

    async def __call__(self, message: Msg) -> None:
        name = message.subject.partition(".")[2]
        self.bodies[name] = json.loads(message.data) if message.data else None
        answer = self._answers[name]
        await message.respond(answer if isinstance(answer, bytes) else json.dumps(answer))


async def test_settings_of_a_newer_server_survive_an_update(
    server: ServerProcess, subject: str
) -> None:
    config = {"name": "S", "subjects": ["s"], "max_msgs": 5, "holographic": {"depth": 3}}
    limits = {"inactive_threshold": 7, "cosmic": True}
    info = {"config": {**config, "consumer_limits": limits}, "state": {}, "novelty": 1}
    consumer = {"stream_name": "S", "name": "c", "config": {"name": "c", "psychic": "yes"}}
    api = Api(
        {
            "STREAM.INFO.S": info,
            "STREAM.UPDATE.S": info,
            "CONSUMER.INFO.S.c": consumer,
            "CONSUMER.CREATE.S.c": consumer,
        }
    )
    async with connected(server.url) as connection:
        await connection.subscribe(f"{subject}.>", callback=api)
        manager = connection.jetstream_manager(api_prefix=subject)
        assert (await manager.streams.info("S")).config.max_msgs == 5
        await manager.streams.update("S", max_msgs=6)
        sent = api.bodies["STREAM.UPDATE.S"]
        assert (sent["max_msgs"], sent["holographic"]) == (6, {"depth": 3})
        assert sent["consumer_limits"] == limits
        await manager.consumers.update("S", "c", max_batch=3)
        sent = api.bodies["CONSUMER.CREATE.S.c"]["config"]
        assert (sent["max_batch"], sent["psychic"]) == (3, "yes")


async def test_unknown_errors_and_answers_are_told_apart(
    server: ServerProcess, subject: str
) -> None:
    error = {"code": 418, "err_code": 19999, "description": "teapot"}
    api = Api(
        {
            "STREAM.INFO.A": {"error": error},
            "STREAM.INFO.B": b"not json",
            "STREAM.INFO.C": {"config": {"retention": "for ever"}},
        }
    )
    async with connected(server.url) as connection:
        await connection.subscribe(f"{subject}.>", callback=api)
        streams = connection.jetstream_manager(api_prefix=subject).streams
        with pytest.raises(JetStreamApiError, match=r"teapot \(19999\)"):
            await streams.info("A")
        with pytest.raises(BadAnswerError, match="response is not JSON"):
            await streams.info("B")
        with pytest.raises(BadAnswerError, match="for ever"):
            await streams.info("C")
        with pytest.raises(OptionsError, match="consumer name"):
            await connection.jetstream_manager().consumers.info("A", "c.d")
