"""A server of each kind with its store, and streams read message by message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tradewind.sync
from harness import ServerProcess
from jetstream_servers import keep_streams_folder
from tradewind.client.api_errors import NoMessageFoundError

if TYPE_CHECKING:
    from tradewind.sync import Connection

_NUMBERS = count()


@dataclass
class FramePlace:
    """A server, and a connection to it."""

    url: str
    store: Path
    connection: Connection

    def add_stream(self, name: str = "", **settings: Any) -> str:
        """A new stream, of a name of its own; subjects are below that in lower case."""
        name = name or f"S{next(_NUMBERS)}"
        given = {"subjects": [f"{name.lower()}.>"], "allow_direct": True, **settings}
        self.connection.jetstream_manager().streams.add(name=name, **given)
        return name

    def publish(self, stream: str, *payloads: bytes, subject: str = "a", **options: Any) -> None:
        js = self.connection.jetstream()
        for payload in payloads:
            js.publish(f"{stream.lower()}.{subject}", payload, **options)

    def messages(self, stream: str) -> list[dict[str, Any]]:
        """All messages, asked for one by one: what a frame has to hold."""
        streams = self.connection.jetstream_manager().streams
        state = streams.info(stream).state
        found = []
        for seq in range(max(state.first_seq, 1), state.last_seq + 1):
            try:
                message = streams.get_message(stream, seq=seq)
            except NoMessageFoundError:
                continue
            headers: dict[str, list[str]] | None = None
            if message.headers:
                headers = {name: message.headers.get_all(name) for name in message.headers}
            found.append(
                {
                    "stream": stream,
                    "seq": seq,
                    "subject": message.subject,
                    "time_us": message.time_ns // 1000,
                    "headers": headers,
                    "data": message.data,
                }
            )
        return found


@contextmanager
def frame_place(kind: str, folder: Path) -> Iterator[FramePlace]:
    store = folder / "store"
    flags = ["-js", "-sd", str(store), "-a", "127.0.0.1", "-p", "-1"]
    process = ServerProcess(kind, flags).wait_ready()
    try:
        keep_streams_folder(store)
        with tradewind.sync.connect(process.url) as connection:
            yield FramePlace(process.url, store, connection)
    finally:
        process.stop()


def rows_of(table: Any) -> list[dict[str, Any]]:
    """The rows of a frame as `messages` has them."""
    import pyarrow as pa

    times = table["time"].cast(pa.int64()).to_pylist()
    rows = table.drop_columns(["time"]).to_pylist(maps_as_pydicts="strict")
    found = []
    for row, time_us in zip(rows, times, strict=True):
        found.append({**row, "time_us": time_us, "headers": row["headers"] or None})
    return found
