"""When a login has expired by the clock, also by one that was set meanwhile."""

from __future__ import annotations

from tradewind.broker.admission import EXPIRY_LOOK_NS
from tradewind.broker.identity import Credentials, Identity
from tradewind.durations import SECOND_NS
from tradewind.testing import InProcessServer
from tradewind.testing.fake_clock import FakeClock
from tradewind.testing.gates import OpenGate

YEAR_NS = 365 * 86_400 * SECOND_NS
GREETING = b'CONNECT {"verbose":false}\r\n'


class ExpiringGate(OpenGate):
    """Lets everybody in until a time of the clock."""

    def __init__(self, expires_ns: int) -> None:
        super().__init__()
        self._expiring = Identity("$G", expires_ns=expires_ns, is_called_out=True)

    def check(self, credentials: Credentials) -> Identity:
        """Yes, for a while."""
        return self._expiring


def test_login_ends_with_its_time() -> None:
    clock = FakeClock()
    server = InProcessServer(gate=ExpiringGate(clock.wall_ns() + 100 * SECOND_NS), clock=clock)
    peer = server.connect(GREETING)
    server.advance(99)
    assert peer.is_open
    server.advance(1)
    assert not peer.is_open
    assert b"User Authentication Expired" in peer.take()


def test_login_of_a_clock_in_1970_ends_when_the_clock_is_set_right() -> None:
    clock = FakeClock()
    true_ns = clock.wall_ns()
    clock.jump_ns(5 * SECOND_NS - true_ns)
    server = InProcessServer(gate=ExpiringGate(true_ns - YEAR_NS), clock=clock)
    peer = server.connect(GREETING)
    clock.jump_ns(true_ns)
    for _ in range(2 * EXPIRY_LOOK_NS // (60 * SECOND_NS)):
        peer.send(b"PING\r\nPONG\r\n")  # it answers what it is asked
        server.advance(60)
        if not peer.is_open:
            break
    assert b"User Authentication Expired" in peer.take()
