"""A driver of its own, with a user interface and an event log, that uses every kind of secret.

It reads and writes through a server that wants them, and then leaves all that Spark shows or keeps
in a folder, for `test_logins.py` to search.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from spark_kit import run_query

from tradewind.spark.processes.spark_session import get_session

EXPLAIN_MODES = ("extended", "formatted", "codegen", "cost")
PAGES = ("sql?details=true&planDescription=true", "environment", "jobs", "stages", "executors")


def main(folder: Path, given: dict[str, Any]) -> None:
    spark = get_session(
        "local[2]",
        {
            "spark.driver.memory": "512m",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": str(folder / "shown"),
            "spark.executorEnv.LOGIN_SEED": given["literal"]["nkeySeed"],
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.ui.port": "0",
        },
    )
    shown: dict[str, str] = {}

    def explain(name: str, frame: Any) -> None:
        modes = spark._jvm.org.apache.spark.sql.execution.ExplainMode
        for mode in EXPLAIN_MODES:
            execution = frame._jdf.queryExecution()
            shown[f"{name} {mode}"] = execution.explainString(modes.fromString(mode))

    result: dict[str, Any] = {"rows": []}
    for number, options in enumerate(given["logins"]):
        frame = spark.read.format("jetstream").options(**options, stream="IN").load()
        explain(f"batch {number}", frame)
        result["rows"].append(frame.count())
        if number:
            continue
        rows = spark.readStream.format("jetstream").options(**options, stream="IN").load()
        copied = rows.selectExpr("concat('out.', seq) as subject", "data")
        explain(f"stream {number}", copied)
        query = run_query(
            copied.writeStream.format("jetstream")
            .options(**options, stream="OUT")
            .option("checkpointLocation", str(folder / "shown" / f"checkpoint{number}"))
            .trigger(availableNow=True)
        )
        shown[f"query {number}"] = query._jsq.explainInternal(True)
        shown[f"progress {number}"] = json.dumps(query.lastProgress, default=str)
    literal = ", ".join(f"{name} '{value}'" for name, value in given["literal"].items())
    view = spark.sql(f"create temporary view v using jetstream options (stream 'IN', {literal})")
    explain("view", view)
    result["errors"] = []
    for options in given["wrong"]:
        try:
            spark.read.format("jetstream").options(**options, stream="IN").load().count()
        except Exception as error:
            result["errors"].append(str(error))
    shown["errors"] = json.dumps(result["errors"])
    base = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
    for page in PAGES:
        with urlopen(f"{base}/{page}") as answer:
            shown[page] = answer.read().decode()
    spark.stop()
    for name, text in shown.items():
        (folder / "shown" / f"{name.replace('/', '_')}.txt").write_text(text)
    (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))
