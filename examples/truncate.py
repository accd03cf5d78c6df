"""A faulty import is found and removed, and brought back because it was not so faulty after all.

    tradewind-server -js                                   a server with JetStream
    python examples/truncate.py                            talks to nats://127.0.0.1:4222
    python examples/truncate.py nats://127.0.0.1:4333      or to any other address

It needs a tradewind-server: nats-server can purge, but neither by header nor with a way back.
"""
# ruff: noqa: T201 - an example talks to the terminal

import sys
from datetime import timedelta

import tradewind.sync


def main(url: str) -> None:
    """Publish by hand and by import, remove the import, bring it back."""
    with tradewind.sync.connect(url, name="truncate") as connection:
        js = connection.jetstream()
        streams = js.manager.streams
        streams.add(name="PRICES", subjects=["prices.>"])
        for number in range(100):
            source = "import" if number >= 60 else "hand"
            js.publish(f"prices.{number % 5}", str(number), headers={"Source": source})

        wanted = {"header": ("Source", "import"), "subjects": ["prices.3"]}
        would = streams.truncate("PRICES", **wanted, dry_run=True)
        print(f"would remove {would.messages}: sequences {would.first_seq} to {would.last_seq}")
        streams.truncate("PRICES", **wanted, keep_for=timedelta(hours=1))
        print(f"left: {streams.info('PRICES').state.messages}")
        print(f"brought back: {streams.undo('PRICES')}")
        print(f"there are again: {streams.info('PRICES').state.messages}")
        streams.delete("PRICES")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222")
