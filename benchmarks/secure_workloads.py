"""What is measured of TLS and WebSocket: handshakes, and large messages.

The clients are processes of their own, see `secure_clients`. Never starts a server: the runner
does.
"""

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.measure import Result, Scale, Workload, throughput
from benchmarks.procfs import Meter
from benchmarks.secure_clients import Peer, mask, receive, visit
from benchmarks.servers import Server, ServerError

EC = 'tls { cert_file: "{folder}/ec.pem", key_file: "{folder}/ec.key" }\n'
RSA = EC.replace("/ec.", "/rsa.")
WEBSOCKET = 'websocket { listen: "127.0.0.1:{websocket_port}", no_tls: true }\n'
VISITORS = 2
WARM_UP_VISITS = 50
BATCH_BYTES = 256 * 1024


@contextlib.contextmanager
def client_process(target: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """A client that has said that it is ready, and the way to talk to it."""
    context = multiprocessing.get_context("spawn")
    control, theirs = context.Pipe()
    process = context.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        expect(control, "ready")
        yield control
    finally:
        process.kill()
        process.join()


def expect(control: Connection, word: str) -> None:
    """Wait until a client says this; ServerError if it says something else or ends."""
    try:
        said = control.recv()
    except EOFError:
        said = "a client failed"
    if said != word:
        raise ServerError(said)


def handshakes(way: str, count: int) -> Callable[[Server, Scale], Result]:
    """Connections with TLS and CONNECT, each closed at once, 32 at a time."""

    def run(server: Server, scale: Scale) -> Result:
        result = Result()
        each = scale.count(count) // VISITORS
        for _ in range(WARM_UP_VISITS):
            Peer(way, server.port).socket.close()
        with contextlib.ExitStack() as stack:
            visitors = [
                stack.enter_context(client_process(visit, way, server.port, each))
                for _ in range(VISITORS)
            ]
            with Meter(server.session) as meter:
                for control in visitors:
                    control.send("go")
                for control in visitors:
                    expect(control, "done")
        throughput(result, meter, each * VISITORS, server.session)
        del result.figures["wall"]
        result.figures["connects_per_cpu"] = result.figures.pop("per_cpu")
        return result

    return run


def large_messages(
    way: str, count: int, payload_size: int, *, delivered: bool = True
) -> Callable[[Server, Scale], Result]:
    """One publisher and, if they are delivered, one subscriber; frames hold one message each."""

    def run(server: Server, scale: Scale) -> Result:
        result = Result()
        port = server.websocket_port if way == "websocket" else server.port
        message = b"PUB a %d\r\n%b\r\n" % (payload_size, bytes(payload_size))
        each = BATCH_BYTES // len(message)
        batches = scale.count(count) // each
        batch = (mask(message) if way == "websocket" else message) * each
        total_bytes = batches * each * len(b"MSG a 1 %d\r\n\r\n" % payload_size)
        total_bytes += batches * each * payload_size
        with contextlib.ExitStack() as stack:
            control = None
            if delivered:
                control = stack.enter_context(client_process(receive, way, port, total_bytes))
            publisher = Peer(way, port)
            stack.callback(publisher.socket.close)
            with Meter(server.session) as meter:
                for _ in range(batches):
                    publisher.socket.sendall(batch)
                publisher.say(b"")
                if control is not None:
                    expect(control, "done")
        throughput(result, meter, batches * each, server.session)
        return result

    return run


SECURE_WORKLOADS = (
    Workload("tls-handshakes-ec13", "TLS 1.3, P-256", handshakes("tls1.3", 2000), EC),
    Workload("tls-handshakes-ec12", "TLS 1.2, P-256", handshakes("tls1.2", 2000), EC),
    Workload("tls-handshakes-rsa", "TLS 1.3, RSA 2048", handshakes("tls1.3", 2000), RSA),
    Workload("tls-8k", "TLS 1.3, 8 KiB", large_messages("tls1.3", 100_000, 8192), EC),
    Workload(
        "tls-8k-aes128", "TLS 1.2, AES-128, 8 KiB", large_messages("tls1.2", 100_000, 8192), EC
    ),
    Workload("ws-8k", "WebSocket, 8 KiB", large_messages("websocket", 200_000, 8192), WEBSOCKET),
    Workload(
        "ws-publish-8k",
        "WebSocket, 8 KiB, nobody listens",
        large_messages("websocket", 200_000, 8192, delivered=False),
        WEBSOCKET,
    ),
)
