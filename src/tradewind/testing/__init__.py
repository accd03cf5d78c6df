"""The test kit, part of the package: a server without sockets and with its own clock."""

from tradewind.testing.fake_clock import FakeClock
from tradewind.testing.gates import OpenGate, User, UserGate
from tradewind.testing.in_process import FakeConnection, InProcessServer
from tradewind.testing.log import MemoryLog

__all__ = [
    "FakeClock",
    "FakeConnection",
    "InProcessServer",
    "MemoryLog",
    "OpenGate",
    "User",
    "UserGate",
]
