"""Object stores: a generator goes in, a file comes out, without an event loop.

python examples/objects.py                             talks to nats://127.0.0.1:4222
python examples/objects.py nats://127.0.0.1:4333       or to any other address; it needs JetStream
"""
# ruff: noqa: T201 - an example talks to the terminal

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tradewind.sync

LINES = 100_000


def lines() -> Iterator[bytes]:
    """A file that is made while it is stored."""
    for number in range(LINES):
        yield b"line %d\n" % number


def main(url: str) -> None:
    """Store, describe, link, read and remove."""
    with tradewind.sync.connect(url, name="objects example") as connection:
        store = connection.jetstream().objects.create("example_files")
        info = store.put("report.txt", lines(), description="made on the way", chunk_size=100_000)
        print(f"{info.name}: {info.size} bytes in {info.chunks} chunks")
        store.link("latest", info)

        reader = store.get("latest")
        assert reader is not None
        with tempfile.TemporaryDirectory() as folder:
            reader.save(Path(folder) / "report.txt")
            text = (Path(folder) / "report.txt").read_text()
        print("last line:", text.splitlines()[-1])
        print("names:", [item.name for item in store.list()])
        store.destroy()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222")
