"""Store folders for the Spark tests, made by our own store, and streaming queries to their end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.pipelines.sessions.spark_errors import SLOW_SIGNS
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.stream_folder import StoreRoot, StreamFolder
from tradewind.store.format.meta import StreamMeta

MILLISECOND = 1_000_000
SECOND = 1000 * MILLISECOND
# 2026-11-01T00:00:00Z
START_NS = 1_793_491_200 * SECOND
STARTS_MAX = 10

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery


class Stream:
    """A stream that is open for writing; message n is sent n milliseconds after START_NS."""

    def __init__(self, folder: StreamFolder, store: FileStore) -> None:
        self.folder = folder
        self.store = store

    def add(self, count: int, subjects: int = 4, size: int = 20) -> None:
        """Messages with payloads that begin with their sequence; every tenth has headers."""
        for _ in range(count):
            seq = self.store.table.last_seq + 1
            header = (
                b"NATS/1.0\r\nTag: a\r\nNo: %d\r\nTag: b\r\n\r\n" % seq if seq % 10 == 0 else b""
            )
            payload = b"%d:" % seq + b"x" * size
            subject = b"%s.%d" % (self.folder.stream.encode(), seq % subjects)
            self.store.table.store(subject, header, payload, START_NS + seq * MILLISECOND)
        self.store.commit()


@contextmanager
def open_store(root: Path, *configs: dict[str, Any], **settings: Any) -> Iterator[list[Stream]]:
    """The store of a server below `root` with these streams, new or as they were left."""
    root.mkdir(exist_ok=True)
    place = StoreRoot(OsDisk(str(root)), str(root))
    streams = []
    try:
        for config in configs:
            folder = place.stream("$G", config["name"])
            if not Path(folder.path).exists():
                base = {"subjects": [f"{config['name']}.>"], "storage": "file"}
                folder.create(StreamMeta({**base, **config}, time.time_ns()))
            _, store, _ = folder.open(START_NS, **settings)
            streams.append(Stream(folder, store))
        yield streams
        for stream in streams:
            stream.store.close()
    finally:
        place.close()


def start_query(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query whose source has come up, however long its Python process took; see `run_query`."""
    pause = threading.Event()
    for starts in range(1, STARTS_MAX + 1):
        query = start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            pause.wait(0.05)
        error = query.exception()
        if starts == STARTS_MAX or not any(sign in str(error) for sign in SLOW_SIGNS):
            return query
    raise AssertionError("every start either returns or is followed by another")


def run_query(writer: DataStreamWriter, seconds: int = 250) -> StreamingQuery:
    """Run a query that ends by itself; again, if the Python process of its source came up too late.

    Spark gives that process ten seconds, whatever is configured, which is too little on a busy
    machine. Nothing has been read by then.
    """
    from pyspark.errors import StreamingQueryException

    for starts in range(1, STARTS_MAX + 1):
        query = writer.start()
        try:
            assert query.awaitTermination(seconds), f"the query has not ended within {seconds} s"
        except StreamingQueryException as error:
            if starts == STARTS_MAX or not any(sign in str(error) for sign in SLOW_SIGNS):
                raise
        else:
            return query
        finally:
            query.stop()
    raise AssertionError("every start either returns or raises")
