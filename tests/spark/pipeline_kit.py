"""A server with orders, and pipelines that run on the shared session until they are done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import tradewind
import tradewind.sync
from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.running.runner import Runner, running
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tradewind.pipelines.state.status import PipelineStatus
    from tradewind.sync import Connection

REGIONS = ("north", "east", "south")


@dataclass
class Place:
    """A folder, a server with the stream ORDERS, and what console sinks have shown."""

    spark: SparkSession
    folder: Path
    url: str
    connection: Connection
    shown: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)

    def publish(self, *payloads: bytes, subject: str = "orders.us") -> None:
        js = self.connection.jetstream()
        for payload in payloads:
            js.publish_async(subject, payload)
        js.publish_async_completed()

    def publish_orders(self, first: int, count: int) -> None:
        self.publish(
            *(
                json.dumps(
                    {"id": number, "region": REGIONS[number % 3], "amount": number + 0.25}
                ).encode()
                for number in range(first, first + count)
            )
        )

    def run(self, text: str, name: str = "p.yaml", **settings: Any) -> PipelineStatus:
        """One run over what is there."""
        path = self.folder / name
        path.write_text(text)
        pipeline = load_pipeline(path)

        def show(sink: str, _sink: object, batch: Any, _number: int) -> None:
            self.shown.append((sink, [row.asDict() for row in batch.collect()]))

        runner = Runner(
            pipeline,
            self.spark,
            PipelineAddress(self.url),
            show,
            is_once=settings.pop("is_once", True),
        )
        with running(runner, pipeline.checkpoint):
            runner.wait(Event(), lambda _status: None)
        return runner.status

    def rows(self, sink: str) -> list[dict[str, Any]]:
        return [row for name, rows in self.shown if name == sink for row in rows]


@contextmanager
def orders_place(spark: SparkSession, folder: Path) -> Iterator[Place]:
    with (
        tradewind.serve(port=0, jetstream=str(folder / "store")) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        connection.jetstream_manager().streams.add(name="ORDERS", subjects=["orders.*"])
        yield Place(spark, folder, server.url, connection)
