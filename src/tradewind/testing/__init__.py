"""The test kit, shipped: a server without sockets and with a clock of its own."""

from tradewind.testing.clock import FakeClock
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
