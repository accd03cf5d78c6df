"""The tasks of a Celery worker that tests start and kill; the broker is in the environment."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

import tradewind.contrib.kombu  # noqa: F401 - registers the schemes


def make_app(url: str) -> Any:
    """The application of workers and of the tests that call them."""
    app = Celery("celery_tasks", broker=url, backend=url.replace("/KOMBU", "/RESULTS"))
    app.conf.update(
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"visibility_timeout": 2},
    )

    @app.task(lazy=False, shared=False, name="add")
    def add(first: int, second: int) -> int:
        return first + second

    @app.task(lazy=False, shared=False, name="total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @app.task(lazy=False, shared=False, name="fail")
    def fail() -> None:
        raise ValueError("on purpose")

    @app.task(lazy=False, shared=False, name="again", bind=True, max_retries=2)
    def again(self: Any) -> int:
        if self.request.retries < 2:
            raise self.retry(countdown=0)
        return int(self.request.retries)

    @app.task(lazy=False, shared=False, name="wait", bind=True)
    def wait(self: Any, path: str) -> bool:
        """Note that it runs, then wait for a file; returns whether it was delivered before."""
        with Path(path, "started").open("a") as file:
            file.write(f"{os.getpid()}\n")
        until = time.monotonic() + 60
        while not Path(path, "go").exists() and time.monotonic() < until:
            time.sleep(0.02)
        return bool(self.request.delivery_info["redelivered"])

    return app


app = make_app(os.environ["CELERY_TASKS_URL"]) if "CELERY_TASKS_URL" in os.environ else None
