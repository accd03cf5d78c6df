"""Failures of Spark's processes: one line that says so, and what to do; never a bug of ours.

The errors are those that Spark, PySpark and Py4J raise, made without Java.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tradewind.cli.frame.reporting import report
from tradewind.pipelines.sessions.spark_errors import is_of_spark, short_reason

protocol = pytest.importorskip("py4j.protocol")
PySparkException = pytest.importorskip("pyspark.errors").PySparkException

CRASHED = (
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n"
    "\tat org.apache.spark.sql.execution.python.PythonPlannerRunner.runInPython(Runner.scala:1)\n"
    "Caused by: java.io.EOFException\n"
)
SLOW = (
    "org.apache.spark.SparkException: Python worker failed to connect back.\n"
    "\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(Factory.scala:2)\n"
)
NO_PORT = (
    "[PYTHON_DAEMON] EOFException occurred while reading the port number from pyspark.daemon's "
    "stdout."
)


def raised(make: Callable[[], BaseException]) -> BaseException:
    try:
        raise make()
    except BaseException as error:
        return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (protocol.Py4JError(CRASHED), "a Python process of Spark was ended"),
        (protocol.Py4JError(SLOW), "the machine is too busy to start Spark's Python processes"),
        (protocol.Py4JError(NO_PORT), "a Python process of Spark was ended"),
        (protocol.Py4JNetworkError("Answer from Java side is empty"), "Java process has ended"),
        (protocol.Py4JError("Answer from Java side is empty"), "Java process has ended"),
        (
            PySparkException("[TABLE_OR_VIEW_NOT_FOUND] The table `X` cannot be found."),
            "The table `X` cannot be found",
        ),
    ],
)
def test_an_error_of_spark_is_one_line_and_no_bug_of_ours(
    error: BaseException, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert report("tradewind", raised(lambda: error)) == 1
    printed = capfd.readouterr().err
    first, *hints = printed.splitlines()
    assert first.startswith("tradewind: error: Spark: ")
    assert reason in first
    assert "bug in tradewind" not in printed
    assert "\tat " not in printed
    assert hints


def test_an_error_that_comes_from_one_of_spark_is_no_bug_of_ours() -> None:
    error = RuntimeError("no frame")
    error.__cause__ = protocol.Py4JError(CRASHED)
    assert is_of_spark(error)
    assert not is_of_spark(RuntimeError("no frame"))


def test_a_connection_that_java_closed_is_no_refusal_of_a_server() -> None:
    code = compile("raise ConnectionRefusedError(111, 'Connection refused')", "java", "exec")
    with pytest.raises(ConnectionRefusedError) as caught:
        exec(code, {"__name__": "py4j.clientserver"})
    assert is_of_spark(caught.value)
    assert "Java process has ended" in short_reason(caught.value)
    assert not is_of_spark(raised(lambda: ConnectionRefusedError(111, "Connection refused")))


def test_a_bug_of_ours_is_still_called_one(capfd: pytest.CaptureFixture[str]) -> None:
    assert report("tradewind", raised(lambda: KeyError("x"))) == 1
    assert "this is a bug in tradewind: KeyError" in capfd.readouterr().err


def test_the_cause_in_a_query_wins_over_what_spark_says_of_it() -> None:
    text = (
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 4 times\n"
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1\n'
        "tradewind.spark.errors.DataLossError: 3 messages are gone\n"
    )
    assert short_reason(Exception(text)) == "3 messages are gone"
    assert os.linesep not in short_reason(Exception(CRASHED))
