"""Key-value buckets: revisions, history and a watch.

python examples/kv.py                             talks to nats://127.0.0.1:4222
python examples/kv.py nats://127.0.0.1:4333       or to any other address; it needs JetStream
"""
# ruff: noqa: T201 - an example talks to the terminal

import asyncio
import sys

import tradewind
from tradewind.errors import WrongRevisionError


async def main(url: str) -> None:
    """Change a value as two programs would, and follow what happens."""
    async with tradewind.connect(url, name="kv example") as connection:
        bucket = await connection.jetstream().kv.create("example_prices", history=5)
        watcher = await bucket.watch("fruit.*")

        first = await bucket.put("fruit.pear", b"0.40")
        await bucket.update("fruit.pear", b"0.45", first)
        try:
            await bucket.update("fruit.pear", b"0.39", first)
        except WrongRevisionError as error:
            print("too late: its last revision is", error.revision)
        await bucket.put("nut.pea", b"0.01")
        await bucket.delete("fruit.pear")

        values = [entry.value.decode() async for entry in bucket.history("fruit.pear")]
        print("history:", values)
        async for entry in watcher:
            print("watched:", entry.key, entry.operation, entry.value.decode())
            if entry.is_deleted:
                break
        await watcher.stop()
        print("keys:", [key async for key in bucket.keys(">")])
        await bucket.destroy()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
