"""`consumer why` and `stream why` on both servers: the reason, and the command that removes it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import tradewind
from cli_outcome import Cli
from harness import wait_for
from tradewind.client.errors import OptionsError
from tradewind.sync import connect

if TYPE_CHECKING:
    from harness import ServerProcess
    from tradewind.sync import Connection


@pytest.fixture
def connection(js_server: ServerProcess) -> Iterator[Connection]:
    with connect(f"nats://127.0.0.1:{js_server.port}") as made:
        yield made


def why(cli: Cli, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = cli(*words, "--seconds", "0", "--json").ok().json
    assert set(found) == {"mood", "text", "advice", "command"}
    return found


def follow(cli: Cli, reason: dict[str, Any], *more: str) -> None:
    """Do what the reason says."""
    program, *words = shlex.split(reason["command"])
    assert program == "tradewind"
    cli(*words, *more).ok()


def test_a_consumer_that_nobody_asks_is_paused_full_and_done(
    cli: Cli, connection: Connection
) -> None:
    streams = connection.jetstream_manager().streams
    streams.add(name="ORDERS", subjects=["orders.>"])
    consumers = connection.jetstream_manager().consumers
    consumers.add("ORDERS", durable_name="packer", ack_policy="explicit", max_ack_pending=2)
    about = ("consumer", "why", "ORDERS", "packer")
    assert why(cli, *about)["text"].startswith("There is nothing to deliver yet")
    js = connection.jetstream()
    for _ in range(4):
        js.publish("orders.eu", b"x")
    # nats-server tells consumers of a message behind its acknowledgement.
    wait_for(lambda: consumers.info("ORDERS", "packer").num_pending == 4)
    reason = why(cli, *about)
    assert reason["text"] == "4 messages are waiting, and no client is requesting them."
    follow(cli, reason)
    assert why(cli, *about)["text"].startswith("3 messages are waiting")
    cli("consumer", "pause", "ORDERS", "packer", "1h", "--force").ok()
    reason = why(cli, *about)
    assert "It is paused until" in reason["text"]
    follow(cli, reason, "--force")
    held = list(js.consumers.get("ORDERS", "packer").fetch(2))
    reason = why(cli, *about)
    assert "all that max_ack_pending (2) allows; the oldest is sequence 2" in reason["text"]
    assert reason["mood"] == "stuck"
    follow(cli, reason, "--force")
    assert consumers.info("ORDERS", "packer").config.max_ack_pending == 4
    for message in [*held, *js.consumers.get("ORDERS", "packer").fetch(1)]:
        message.ack_sync()
    reason = why(cli, *about)
    assert (reason["mood"], reason["command"]) == ("good", "")
    printed = cli(*about, "--seconds", "0").ok().out
    assert printed == "ORDERS > packer: All messages are delivered and acknowledged.\n"


def test_a_full_stream_stores_again_after_the_command(cli: Cli, connection: Connection) -> None:
    streams = connection.jetstream_manager().streams
    streams.add(name="FULL", subjects=["full"], max_msgs=2, discard="new")
    js = connection.jetstream()
    js.publish("full", b"x")
    assert why(cli, "stream", "why", "FULL")["mood"] == "good"
    js.publish("full", b"x")
    reason = why(cli, "stream", "why", "FULL")
    assert reason["text"].startswith("It is full: it has 2 messages of 2 (max_msgs)")
    follow(cli, reason, "--force")
    js.publish("full", b"x")
    assert streams.info("FULL").state.messages == 3
    printed = cli("stream", "why", "FULL", "--seconds", "0").ok().out
    assert "new ones are refused at max_msgs (3 of 4 are used)" in printed
    assert "  tradewind " not in printed, "no command if all is well"


def test_a_subject_that_the_stream_does_not_store_is_added(
    cli: Cli, connection: Connection
) -> None:
    streams = connection.jetstream_manager().streams
    streams.add(name="A", subjects=["a.>"])
    streams.add(name="B", subjects=["b.>"])
    assert "stored in B." in why(cli, "stream", "why", "A", "--subject", "b.1")["text"]
    reason = why(cli, "stream", "why", "A", "--subject", "c.1")
    assert "get 'no responders'" in reason["text"]
    follow(cli, reason, "--force")
    assert streams.info("A").config.subjects == ["a.>", "c.1"]
    assert why(cli, "stream", "why", "A", "--subject", "c.1")["mood"] == "idle"
    refused = cli("stream", "why", "A", "--subject", "c.*", "--seconds", "0")
    assert (refused.code, "subject: one without wildcards" in refused.err) == (1, True)


def test_messages_that_do_not_go_away_name_who_holds_them(cli: Cli, connection: Connection) -> None:
    manager = connection.jetstream_manager()
    manager.streams.add(name="JOBS", subjects=["jobs.>"], retention="workqueue")
    connection.jetstream().publish("jobs.1", b"x")
    reason = why(cli, "stream", "why", "JOBS")
    assert "no consumer has them to acknowledge" in reason["text"]
    manager.consumers.add("JOBS", durable_name="worker", ack_policy="explicit")
    reason = why(cli, "stream", "why", "JOBS")
    assert "consumer worker holds 1 of them: 1 message" in reason["text"]
    assert reason["command"] == "tradewind consumer why JOBS worker"
    follow(cli, reason, "--seconds", "0")
    manager.streams.add(name="NEWS", subjects=["news"], retention="interest")
    assert "dropped as soon as it arrives" in why(cli, "stream", "why", "NEWS")["text"]


def test_sealed_streams_and_mirrors_of_nothing(cli: Cli, connection: Connection) -> None:
    streams = connection.jetstream_manager().streams
    streams.add(name="OLD", subjects=["old"])
    cli("stream", "seal", "OLD", "--force").ok()
    assert "The stream is sealed" in why(cli, "stream", "why", "OLD")["text"]
    streams.add(name="COPY", mirror={"name": "NOWHERE"})
    reason = why(cli, "stream", "why", "COPY")
    assert reason["mood"] == "stuck"
    assert "It is a mirror of NOWHERE" in reason["text"]


def test_what_is_not_there_is_an_error_with_a_near_name(cli: Cli, connection: Connection) -> None:
    connection.jetstream_manager().streams.add(name="ORDERS", subjects=["orders"])
    missing = cli("stream", "why", "ORDRES", "--seconds", "0")
    assert (missing.code, "did you mean 'ORDERS'" in missing.err) == (1, True)
    missing = cli("consumer", "why", "ORDERS", "nobody", "--seconds", "0")
    assert missing.code == 1
    assert "nobody" in missing.err


async def test_programs_ask_the_same(js_server: ServerProcess) -> None:
    url = f"nats://127.0.0.1:{js_server.port}"
    async with await tradewind.connect(url) as connection:
        js = connection.jetstream()
        await js.manager.streams.add(name="ASKED", subjects=["asked"], max_msgs=1, discard="new")
        try:
            await js.publish("asked", b"x")
            await js.manager.consumers.add("ASKED", durable_name="c", ack_policy="explicit")
            reason = await js.why.consumer("ASKED", "c", seconds=0)
            assert reason.command == "tradewind consumer next ASKED c"
            assert (await js.why.stream("ASKED", seconds=0)).mood == "stuck"
            with pytest.raises(OptionsError, match="seconds: from 0 to 3600"):
                await js.why.stream("ASKED", seconds=-1)
        finally:
            await js.manager.streams.delete("ASKED")
