"""Backups of a whole account: hourly increments, a mistake, and the way back.

    python examples/backups.py            with a server of its own
    python examples/backups.py PLACE      in a folder or URL (s3://bucket/path) of your choice

`tradewind backup` does the same from a shell, with any NATS server.
"""
# ruff: noqa: T201 - an example talks to the terminal

import sys
import tempfile
from pathlib import Path

import tradewind
import tradewind.sync
from tradewind.backups import AccountBackups, KeepRules, RestoreChoice
from tradewind.options import JetStreamOptions


def main(place: str, folder: Path) -> None:
    """Make two backups, lose something, and bring it back."""
    jetstream = JetStreamOptions(enabled=True, store_dir=str(folder / "store"))
    with (
        tradewind.serve(port=0, jetstream=jetstream) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        js = connection.jetstream()
        js.manager.streams.add(name="ORDERS", subjects=["orders.*"])
        prices = js.kv.create("prices")
        backups = AccountBackups(place)

        for number in range(100):
            js.publish("orders.new", b"order %d" % number)
        prices.put("apple", b"1.20")
        monday = backups.create(connection)
        print("a backup of", [link.name for link in monday.streams])

        js.publish("orders.new", b"order 100")
        tuesday = backups.create(connection)
        print("the next one is smaller:", tuesday.added_bytes < monday.added_bytes)

        js.manager.streams.purge("ORDERS")  # the mistake
        js.kv.delete("prices")
        choice = RestoreChoice(renames={"ORDERS": "ORDERS_BEFORE"})
        report = backups.restore(connection, tuesday, choice)
        for stream in report.streams:
            print(f"{stream.name} is back as {stream.restored_as}: {stream.messages} messages")
        print("apple costs", js.kv.open("prices").get("apple").value.decode())

        print("problems:", backups.verify().problems)
        pruned = backups.prune(KeepRules(last=1, daily=7))
        print("kept", len(pruned.kept), "and removed", len(pruned.removed))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(sys.argv[1] if len(sys.argv) > 1 else f"{temporary}/backups", Path(temporary))
