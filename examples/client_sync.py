"""Tradewind's client in a program without an event loop: two threads and a service.

python examples/client_sync.py                             talks to nats://127.0.0.1:4222
python examples/client_sync.py nats://127.0.0.1:4333       or to any other address
"""
# ruff: noqa: T201 - an example talks to the terminal

import sys
import threading

import tradewind.sync

COUNT = 1000


def main(url: str) -> None:
    """Two threads publish, the main thread reads, and a callback answers requests."""
    with tradewind.sync.connect(url, name="sync example") as connection:
        readings = connection.subscribe("readings.*", max_msgs=2 * COUNT)
        connection.flush()

        def measure(name: str) -> None:
            for number in range(COUNT):
                connection.publish(f"readings.{name}", str(number))

        threads = [threading.Thread(target=measure, args=(name,)) for name in ("north", "south")]
        for thread in threads:
            thread.start()
        totals = {"readings.north": 0, "readings.south": 0}
        for message in readings:
            totals[message.subject] += int(message.data)
        for thread in threads:
            thread.join()
        print(totals)

        connection.subscribe("total", callback=lambda m: m.respond(str(sum(totals.values()))))
        print("total:", connection.request("total", timeout=2).data.decode())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222")
