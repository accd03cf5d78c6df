"""Celery with a NATS server as its broker and its result backend.

    pip install '.[celery]'
    tradewind server run --jetstream
    cd examples && celery -A celery_tasks_app worker --concurrency 2

As a program (`python examples/celery_tasks_app.py nats://127.0.0.1:4222`) it starts a worker in a
thread, and calls the tasks itself.
"""

import os
import sys
import time

from celery import Celery, chord
from celery.contrib.testing.worker import start_worker

import tradewind.contrib.kombu  # noqa: F401 - registers nats:// with kombu

URL = os.environ.get("BROKER", "nats://127.0.0.1:4222")
app = Celery("shop", broker=URL, backend=URL)
app.conf.update(
    task_acks_late=True,  # a task is acknowledged when it has ended, so a killed worker loses none
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
)


@app.task
def price(fruit: str) -> int:
    """The price of a fruit."""
    return {"apple": 3, "pear": 4}[fruit]


@app.task
def total(prices: list[int]) -> int:
    """The sum of prices."""
    return sum(prices)


def main(url: str = URL) -> None:
    """Call the tasks, and print their results."""
    app.conf.update(broker_url=url, result_backend=url)
    with start_worker(app, pool="solo", perform_ping_check=False, loglevel="ERROR"):
        print("apple:", price.delay("apple").get(timeout=60))  # noqa: T201
        begun = time.monotonic()
        price.apply_async(("pear",), countdown=1.5).get(timeout=60)
        print("the pear had to wait:", time.monotonic() - begun > 1.4)  # noqa: T201
        order = [price.s("apple"), price.s("pear"), price.s("pear")]
        print("total:", chord(order)(total.s()).get(timeout=60))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
