"""What a frame of Python costs in calls of every turn and every message.

Some methods of hot paths are replaced by attributes that hold the compiled function. Each pair here
times such a call, and the same call through a method: the difference is what the attribute saves.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.micro.registry import Operation, micro

PUBLISHES = 100


def _calls(call: Callable[[], object]) -> Operation:
    def operate(repetitions: int) -> int:
        for _ in range(repetitions):
            call()
        return repetitions

    return operate


def _method(call: Callable[[], object]) -> Callable[[], object]:
    """The call through a method of a class in Python."""

    class Through:
        def __init__(self) -> None:
            self._call = call

        def call(self) -> object:
            return self._call()

    return Through().call


def _server() -> Any:
    from tradewind.testing import InProcessServer
    from tradewind.testing.fake_disk import SimulatedDisk

    return InProcessServer(disk=SimulatedDisk())


@micro("frame-broker", "end of a turn without work, in the broker, as an attribute")
def broker_attribute() -> Operation:
    return _calls(_server().broker.end_turn)


@micro("frame-broker-method", "the same through a method")
def broker_method() -> Operation:
    return _calls(_method(_server().broker.end_turn))


@micro("frame-engine", "the next deadline of the engine, as an attribute")
def engine_attribute() -> Operation:
    return _calls(_server().engine.next_deadline_ns)


@micro("frame-engine-method", "the same through a method")
def engine_method() -> Operation:
    return _calls(_method(_server().engine.next_deadline_ns))


def _publishing(*, is_method: bool) -> Operation:
    """Each operation publishes a message into the outbox of a client."""
    from tradewind.client.core.protocol import ClientWire

    class Owner:
        def __init__(self) -> None:
            self.wire = ClientWire(self)  # type: ignore[arg-type]
            self.wire.set_state(0)

        def _schedule_flush(self) -> None:
            pass

        def publish(self, subject: str, payload: bytes = b"", *, reply: str | None = None) -> Any:
            return self.wire.publish(subject, payload, reply=reply)

    owner = Owner()
    publish = owner.publish if is_method else owner.wire.publish

    def operate(repetitions: int) -> int:
        for _ in range(repetitions):
            for _ in range(PUBLISHES):
                publish("orders.new", b"two apples")
            owner.wire.take_output()
        return repetitions * PUBLISHES

    return operate


@micro("frame-publish", "a publish of the client, as an attribute")
def publish_attribute() -> Operation:
    return _publishing(is_method=False)


@micro("frame-publish-method", "the same through a method")
def publish_method() -> Operation:
    return _publishing(is_method=True)
