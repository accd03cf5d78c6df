"""The blocking client: the same API from threads, without an event loop in the program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tradewind.sync
from harness import ServerProcess, StartServer, wait_for
from tradewind.client.blocking import shared_thread
from tradewind.client.core.message import Msg
from tradewind.client.errors import (
    ClientError,
    ConnectionClosedError,
    NoRespondersError,
    NoServersError,
    OperationTimeoutError,
)
from tradewind.client.events import Connected, Disconnected, Event, Reconnected

ROOT = Path(__file__).parent.parent.parent
SECONDS = 20.0


def test_publish_subscribe_request(server: ServerProcess, subject: str) -> None:
    with tradewind.sync.connect(server.url) as connection:
        subscription = connection.subscribe(f"{subject}.*")
        connection.publish(f"{subject}.a", b"one", headers={"N": "1"})
        message = subscription.next(SECONDS)
        assert isinstance(message, Msg)
        assert (message.data, message.headers["N"]) == (b"one", "1")
        with pytest.raises(OperationTimeoutError):
            subscription.next(timeout=0.01)
        connection.subscribe(f"{subject}.up", callback=lambda m: m.respond(m.data.upper()))
        assert connection.request(f"{subject}.up", "text").data == b"TEXT"
        replies = connection.request_many(f"{subject}.up", "more", max_messages=1)
        assert [reply.data for reply in replies] == [b"MORE"]
        with pytest.raises(NoRespondersError):
            connection.request(f"{subject}.x.y")
        assert connection.rtt() < SECONDS
        assert connection.stats.out_messages == 6
    with pytest.raises(ConnectionClosedError):
        connection.publish(subject)


def test_iteration_blocks_until_the_end(server: ServerProcess, subject: str) -> None:
    with tradewind.sync.connect(server.url) as connection:
        subscription = connection.subscribe(subject, max_msgs=1000)
        for number in range(1000):
            connection.publish(subject, b"%d" % number)
        assert [int(message.data) for message in subscription] == list(range(1000))


def test_some_messages_are_taken_at_once_or_time_is_up(server: ServerProcess, subject: str) -> None:
    with tradewind.sync.connect(server.url) as connection:
        subscription = connection.subscribe(subject)
        with pytest.raises(OperationTimeoutError):
            subscription.take_some(10, timeout=0.01)
        for number in range(25):
            connection.publish(subject, b"%d" % number)
        connection.flush()
        wait_for(lambda: subscription.pending_messages == 25, "25 messages")
        taken = [subscription.take_some(10, SECONDS) for _ in range(3)]
        assert [len(messages) for messages in taken] == [10, 10, 5]
        assert [int(each.data) for messages in taken for each in messages] == list(range(25))


def test_message_after_a_broken_off_iteration_is_not_lost(
    server: ServerProcess, subject: str
) -> None:
    with tradewind.sync.connect(server.url) as connection:
        subscription = connection.subscribe(subject)
        for number in range(10):
            connection.publish(subject, b"%d" % number)
        connection.flush()
        for message in subscription:
            if message.data == b"3":
                break
        assert subscription.next(SECONDS).data == b"4"
        assert next(subscription).data == b"5"


def test_several_threads_share_a_connection(server: ServerProcess, subject: str) -> None:
    with tradewind.sync.connect(server.url) as connection:
        subscription = connection.subscribe(subject, max_msgs=4000)
        connection.subscribe(f"{subject}.echo", callback=lambda m: m.respond(m.data))
        failures: list[Exception] = []

        def work(name: bytes) -> None:
            try:
                for number in range(1000):
                    connection.publish(subject, name + b"%d" % number)
                for _ in range(20):
                    assert connection.request(f"{subject}.echo", name).data == name
            except Exception as error:  # handed to the test
                failures.append(error)

        threads = [threading.Thread(target=work, args=(b"%c" % (97 + n),)) for n in range(4)]
        for thread in threads:
            thread.start()
        got = [message.data for message in subscription]
        for thread in threads:
            thread.join(SECONDS)
        assert not failures
        for name in (b"a", b"b", b"c", b"d"):
            own = [data for data in got if data.startswith(name)]
            assert own == [name + b"%d" % number for number in range(1000)]


def test_callbacks_may_block_and_call_the_client(server: ServerProcess, subject: str) -> None:
    with tradewind.sync.connect(server.url) as connection:
        answers: list[tuple[bytes, str]] = []

        def callback(message: Msg) -> None:
            reply = connection.request(f"{subject}.inner", message.data)
            answers.append((reply.data, threading.current_thread().name))

        connection.subscribe(f"{subject}.inner", callback=lambda m: m.respond(m.data * 2))
        connection.subscribe(subject, callback=callback)
        connection.publish(subject, b"x")
        wait_for(lambda: answers, "the callback")
        assert answers[0][0] == b"xx"
        assert answers[0][1] != shared_thread().thread.name


def test_blocking_call_in_the_loop_is_an_error_instead_of_a_hang(server: ServerProcess) -> None:
    with tradewind.sync.connect(server.url) as connection:

        async def inside() -> None:
            connection.flush()

        with pytest.raises(ClientError, match="would wait for itself"):
            shared_thread().run(inside())


def test_events_and_restart(start: StartServer) -> None:
    server = start()
    events: list[Event] = []

    def seen(kind: type[Event]) -> bool:
        return any(isinstance(event, kind) for event in events)

    with tradewind.sync.connect(
        server.url, on_event=events.append, reconnect_wait=0.02
    ) as connection:
        wait_for(lambda: seen(Connected), "the first event")
        subscription = connection.subscribe("a")
        connection.flush()
        server.signal(signal.SIGKILL)
        server.wait()
        wait_for(lambda: seen(Disconnected), "the loss")
        connection.publish("a", b"while away")
        start("", "-a", "127.0.0.1", "-p", str(server.port))
        wait_for(lambda: seen(Reconnected), "the new connection")
        assert subscription.next(SECONDS).data == b"while away"


def test_no_server_is_the_same_error() -> None:
    with pytest.raises(NoServersError):
        tradewind.sync.connect("nats://127.0.0.1:1", on_event=lambda _event: None)


FORK = """
import os, sys, tradewind.sync
connection = tradewind.sync.connect(sys.argv[1])
child = os.fork()
if child == 0:
    try:
        connection.flush()
    except Exception as error:
        print(error, flush=True)
    with tradewind.sync.connect(sys.argv[1]) as own:
        own.flush()
        print("child", flush=True)
    os._exit(0)
os.waitpid(child, 0)
connection.flush()
connection.close()
print("parent", flush=True)
"""


def run_program(text: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", text, url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
        cwd=ROOT,
    )


def test_fork_gets_a_thread_of_its_own(server: ServerProcess) -> None:
    process = run_program(FORK, server.url)
    output, errors = process.communicate(timeout=30)
    assert output.splitlines() == [
        "this connection was made before a fork: connect again in this process",
        "child",
        "parent",
    ]
    assert errors == ""


WAIT = """
import sys, tradewind.sync
with tradewind.sync.connect(sys.argv[1]) as connection:
    subscription = connection.subscribe("never")
    try:
        print("waiting", flush=True)
        subscription.next()
    except KeyboardInterrupt:
        connection.flush()
        print("interrupted", flush=True)
"""


def test_interrupt_ends_a_wait_and_the_connection_goes_on(server: ServerProcess) -> None:
    process = run_program(WAIT, server.url)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert (output, errors, process.returncode) == ("interrupted\n", "", 0)


def test_types_of_the_blocking_client_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools/sync_stub.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run tools/sync_stub.py"
