"""Memory of the C side: given back in every way a connection, an account or a broker can end."""

from __future__ import annotations

import ctypes
import gc
import os

import pytest

from tradewind.broker.contracts import ClosedSession
from tradewind.broker.session import Session
from tradewind.testing import InProcessServer

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")


def allocated_bytes() -> int:
    """What the C library has handed out and not got back: by `mallinfo2` of glibc."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        pytest.skip("only glibc counts its allocations")
    numbers = ctypes.c_size_t * 10
    library.mallinfo2.restype = type(
        "MallocInfo", (ctypes.Structure,), {"_fields_": [("all", numbers)]}
    )
    in_mapped_blocks, in_other_blocks = 4, 7
    info = library.mallinfo2().all
    return int(info[in_mapped_blocks] + info[in_other_blocks])


@pytest.mark.slow
def test_an_abandoned_broker_is_collected_with_its_open_sessions() -> None:
    for _ in range(5):
        server = InProcessServer()
        for _ in range(3):
            server.connect(QUIET + b"SUB a.b 1\r\nSUB a.* q 2\r\nPUB a.b 5\r\nhe")
        server.broker.accounts["$G"].subscribe("a.>", print)
        del server
        gc.collect()


def test_a_failing_trace_hook_leaves_no_subscription_half_removed() -> None:
    server = InProcessServer()
    receiver = server.connect(QUIET + b"SUB a 1\r\nUNSUB 1 1\r\n")
    publisher = server.connect(QUIET)

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    server.broker.router.on_trace = fail
    with pytest.raises(OSError, match="no space"):
        publisher.session.feed(b"PUB a 0\r\n\r\n", 0)
    server.broker.router.on_trace = None
    assert receiver.session.subscription_count == 0
    receiver.close()
    assert server.connect(QUIET).ask(b"PUB a 0\r\n\r\nPING\r\n") == b"PONG\r\n"


def test_a_failing_observer_does_not_keep_the_subscriptions_of_a_closed_session() -> None:
    class Failing:
        def on_connect(self, session: Session) -> None: ...

        def on_disconnect(self, closed: ClosedSession) -> None:
            raise RuntimeError("broken")

        def on_auth_error(self, session: Session, reason: str) -> None: ...

    server = InProcessServer()
    server.expects_faults = True
    server.broker.observers.append(Failing())
    client = server.connect(QUIET + b"SUB a 1\r\n")
    client.session.close("test")
    assert server.broker.faults.counts == {"observer": 1}
    assert server.broker.accounts["$G"].subscription_count == 0


def churn(server: InProcessServer, rounds: int) -> None:
    """Connections that subscribe in every way, get messages, and end in every way."""
    stays = server.connect(QUIET + b"SUB stays.> 1\r\n")
    for number in range(rounds):
        client = server.connect(QUIET)
        client.send(
            b"SUB a.%d 1\r\nSUB *.%d q%d 2\r\nSUB _INBOX.%d.* 3\r\nUNSUB 3 1\r\n"
            b"PUB a.%d 3\r\nabc\r\nPUB _INBOX.%d.x 0\r\n\r\nUNSUB 1\r\nPUB stays.%d 10\r\nhal"
            % ((number,) * 7)
        )
        if number % 3 == 0:
            client.send(b"X")
        elif number % 3 == 1:
            client.send(b'CONNECT {"name":"again"}\r\n')
            client.send(b"SUB a 1\r\n")
        client.close()
        client.take()
    stays.close()
    # Timers of connections that are gone live until they are due.
    server.advance(5)


@pytest.mark.slow
@pytest.mark.skipif(SANITIZED, reason="the sanitizer has an allocator and a leak search of its own")
def test_connections_that_come_and_go_leave_nothing_behind() -> None:
    server = InProcessServer()
    server.broker.closed = type(server.broker.closed)(maxlen=10)
    churn(server, 1000)
    gc.collect()
    before = allocated_bytes()
    churn(server, 10_000)
    gc.collect()
    # One lost subscription (about 100 bytes) per round would be a megabyte.
    assert allocated_bytes() - before < 100_000
    assert server.broker.accounts["$G"].subscription_count == 0


@pytest.mark.slow
@pytest.mark.skipif(SANITIZED, reason="the sanitizer has an allocator and a leak search of its own")
def test_subscriptions_that_come_and_go_leave_nothing_behind() -> None:
    server = InProcessServer()
    client = server.connect(QUIET)

    def turn_over(count: int) -> None:
        for start in range(0, count, 100):
            sids = range(start, start + 100)
            client.send(b"".join(b"SUB in.%d.x %d\r\n" % (sid, sid) for sid in sids))
            client.send(b"".join(b"PUB in.%d.x 0\r\n\r\n" % sid for sid in sids))
            client.send(b"".join(b"UNSUB %d\r\n" % sid for sid in sids))
            client.take()

    turn_over(10_000)
    gc.collect()
    before = allocated_bytes()
    turn_over(100_000)
    gc.collect()
    assert allocated_bytes() - before < 500_000
    assert client.session.subscription_count == 0
