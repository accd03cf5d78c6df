"""A tiny broker for the tests of the load generator, which spoils its deliveries on request."""

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from types import TracebackType

Spoil = Callable[[int, bytes], list[bytes]]
"""From the number of a delivery and its encoded MSG to what is sent instead."""


def faithful(number: int, message: bytes) -> list[bytes]:
    return [message]


class Broker:
    """One thread, every subscription gets every message, wildcards are taken as `everything`."""

    def __init__(self, spoil: Spoil = faithful, answer_to_pub: bytes = b"") -> None:
        self._spoil = spoil
        self._answer_to_pub = answer_to_pub
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._pending: dict[socket.socket, bytes] = {}
        self._subscribers: list[tuple[socket.socket, bytes, bytes]] = []
        self._delivery_count = 0
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "Broker":
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._stop_reader, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop_writer.send(b"x")
        self._thread.join()
        for link in [*self._pending, self._listener, self._stop_reader, self._stop_writer]:
            link.close()
        self._selector.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._stop_reader:
                    return
                if key.fileobj is self._listener:
                    link, _ = self._listener.accept()
                    self._send(link, b'INFO {"version":"0"}\r\n')
                    self._pending[link] = b""
                    self._selector.register(link, selectors.EVENT_READ)
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._read(key.fileobj)

    def _send(self, link: socket.socket, data: bytes) -> None:
        # A client that noticed the fault has closed its connections, as it should.
        with contextlib.suppress(ConnectionError):
            link.sendall(data)

    def _read(self, link: socket.socket) -> None:
        try:
            data = link.recv(1 << 20)
        except ConnectionError:
            data = b""
        if not data:
            self._selector.unregister(link)
            self._subscribers = [entry for entry in self._subscribers if entry[0] is not link]
            return
        self._pending[link] += data
        while self._take_operation(link):
            pass

    def _take_operation(self, link: socket.socket) -> bool:
        line, separator, rest = self._pending[link].partition(b"\r\n")
        if not separator:
            return False
        words = line.split(b" ")
        if words[0] == b"PUB":
            size = int(words[-1])
            if len(rest) < size + 2:
                return False
            self._publish(link, words[1], words[2:-1], rest[:size])
            rest = rest[size + 2 :]
        elif words[0] == b"SUB":
            self._subscribers.append((link, words[1], words[-1]))
        elif words[0] == b"PING":
            self._send(link, b"PONG\r\n")
        self._pending[link] = rest
        return True

    def _publish(
        self, link: socket.socket, subject: bytes, reply: list[bytes], payload: bytes
    ) -> None:
        if self._answer_to_pub:
            self._send(link, self._answer_to_pub)
        for subscriber, pattern, sid in self._subscribers:
            if pattern.split(b".")[0] != subject.split(b".")[0]:
                continue
            head = b" ".join([b"MSG", subject, sid, *reply, b"%d" % len(payload)])
            message = head + b"\r\n" + payload + b"\r\n"
            for part in self._spoil(self._delivery_count, message):
                self._send(subscriber, part)
            self._delivery_count += 1
