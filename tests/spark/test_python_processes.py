"""The Python processes of a session as a user starts it: forked, repeated if killed, and quiet."""

from __future__ import annotations

import json
import subprocess
import sys

# One program for all of it: most of the time goes into the start of Java.
PROGRAM = """\
import json, os, signal, tempfile, threading
from pathlib import Path
import pyspark
from pyspark import TaskContext
from tradewind.spark.processes import python_launcher
from tradewind.spark.processes.spark_session import get_session


def die_once(number):
    if TaskContext.get().attemptNumber() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def look(_):
    return parent(parent(os.getpid())), os.environ["SPARK_PYTHON_RUNTIME"], pyspark.__file__


spark = get_session(settings={"spark.ui.enabled": "false", "spark.driver.memory": "512m"})
context = spark.sparkContext
found = {"master": context.master}
seen = context.parallelize([0], 1).map(look).first()
found["grandparent"], found["runtime"], found["file"] = seen
found["parent"] = python_launcher._launchers[0]._parent.pid
found["killed"] = context.parallelize(range(4), 1).map(die_once).collect()

inside = threading.Event()


def deep(batch, depth):
    if depth:
        return deep(batch, depth - 1)
    inside.set()
    batch.sparkSession.range(10**13).selectExpr("sum(id % 7)").collect()


with tempfile.TemporaryDirectory() as checkpoint:
    writer = spark.readStream.format("rate").load().writeStream
    query = writer.foreachBatch(lambda batch, _: deep(batch, 20))
    query = query.option("checkpointLocation", checkpoint).start()
    assert inside.wait(200)
    while not context.statusTracker().getActiveStageIds():
        inside.wait(0.1)
    query.stop()
    found["error"] = str(query.exception())
found["python"] = os.environ["PYSPARK_PYTHON"]
print(json.dumps(found))
"""


def test_a_session_of_this_machine_forks_its_processes_repeats_killed_tasks_and_stops_quietly() -> (
    None
):
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=280
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["master"] == "local[*,4]"
    assert found["grandparent"] == found["parent"]
    assert found["runtime"] == "PYTHON_WORKER"
    assert ".zip" not in found["file"]
    assert found["killed"] == [0, 1, 2, 3]
    assert found["error"] == "None"
    # Spark matches the text of the interrupted call with a pattern that needs a large stack.
    assert "StackOverflowError" not in run.stderr
    assert found["python"] == sys.executable
