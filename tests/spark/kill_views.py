"""A materialized view that is killed: counts per group, which no batch may change twice."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from kill_jobs import BATCH_ROWS, SLOW, Job, Sign, names

import tradewind.sync
from tradewind.client.errors import BucketNotFoundError
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sql.query_session import QuerySession, SqlQuestion
from tradewind.pipelines.views.view_runner import ViewRunner
from tradewind.pipelines.views.view_store import ViewStore

if TYPE_CHECKING:
    from kill_kit import Target
    from pyspark.sql import SparkSession

VIEW = "totals"
GROUPS = 13
STATEMENT = f"""\
create materialized view {VIEW} options (batch = '{BATCH_ROWS}') as
select seq % {GROUPS} as k, count(*) as n, sum(seq) as total
from IN where length({SLOW}) >= 0 group by seq % {GROUPS}
"""


class ViewJob(Job):
    """Counts and sums by group in a bucket; what was counted of a stream must be its begin."""

    title = "materialized view"

    def __init__(self, server: str, folder: Path) -> None:
        super().__init__(server, folder)
        self._views = folder / "views"

    @property
    def checkpoint(self) -> Path:  # type: ignore[override]
        """Where the query of the view is, once it has begun."""
        found = sorted(self._views.glob(f"{VIEW}-*/checkpoint/queries/*"))
        return found[0] if found else self._views / "none"

    def signs(self, target: Target) -> dict[str, Sign]:
        query = f"{VIEW}-*/checkpoint/queries/*"
        return {
            "planned": names(self._views, f"{query}/offsets/[0-9]*"),
            **self.writing_signs(target),
            "state stored": names(self._views, f"{query}/state/**/*.delta"),
            "committed": names(self._views, f"{query}/commits/[0-9]*"),
        }

    def writing_signs(self, target: Target) -> dict[str, Sign]:
        return {"some groups written": lambda: {str(target.last_seq(f"KV_{VIEW}"))}}

    def run(self, spark: SparkSession) -> None:
        address = PipelineAddress(self.server)
        with tradewind.sync.connect(self.server) as connection:
            is_there = ViewStore(connection).has(VIEW)
        if not is_there:
            QuerySession(spark).ask(SqlQuestion(STATEMENT, address, may_write=True))
        said: list[str] = []
        runner = ViewRunner(spark, address, self._views, said.append, is_once=True)
        assert runner.run(Event()) == 0, said
        # Without an answer of the server there was nothing to run.
        assert f"view {VIEW}: done" in said, said

    def expected(self, target: Target) -> Counter[Any]:
        """How many messages each group has."""
        return Counter(seq % GROUPS for seq in range(1, target.last_seq("IN") + 1))

    def found(self, target: Target) -> Counter[Any]:
        """How many messages were counted in each group; their sum says which ones these were."""
        rows: Counter[Any] = Counter()
        with closing(tradewind.sync.connect(self.server)) as connection:
            try:
                bucket = connection.jetstream().kv.open(VIEW)
            except BucketNotFoundError:
                return rows
            for key in bucket.keys():  # noqa: SIM118 - it is no dictionary
                entry = bucket.get(key)
                assert entry is not None
                value = json.loads(entry.value)
                first = value["k"] or GROUPS
                seqs = range(first, first + GROUPS * value["n"], GROUPS)
                assert value["total"] == sum(seqs), value
                rows[value["k"]] = value["n"]
        return rows
