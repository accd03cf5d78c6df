"""Where a pipeline finds its server, what its status says meanwhile, and errors in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

import tradewind
from ports import free_port
from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.running.display import status_line
from tradewind.pipelines.running.lag import ServerLag
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.pipelines.sessions.spark_errors import short_reason
from tradewind.pipelines.state.status import PipelineStatus
from tradewind.spark.connections.logins import JobLogin

SINK = PipelineAddress()
C = JobLogin(credentials="c")
D = JobLogin(user="d", password="env:D")


def test_a_server_that_does_not_answer_is_noted() -> None:
    meter = ServerLag(PipelineAddress(f"nats://127.0.0.1:{free_port()}"))
    assert meter.measure({"ORDERS": 5})[0].messages is None
    assert meter.problem.endswith("the queries wait for it")
    status = PipelineStatus("p", "p.yaml", "running", 1, "elsewhere", "local", 0, 0)
    assert "[" not in status_line(status)
    status.note = meter.problem
    assert status_line(status).endswith(f"[{meter.problem}]")


def test_a_server_that_answers_again_is_not_noted() -> None:
    with tradewind.serve(port=0) as server:
        meter = ServerLag(PipelineAddress(server.url))
        meter.problem = "away"
        meter.measure({})
        assert meter.problem == ""
        meter.close()


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ((SINK, PipelineAddress(login=C), PipelineAddress("s")), PipelineAddress("s", login=C)),
        ((PipelineAddress(login=C), PipelineAddress("s"), SINK), PipelineAddress("s", login=C)),
        ((PipelineAddress("s"), PipelineAddress(login=C), SINK), PipelineAddress("s", login=C)),
        (
            (PipelineAddress(context="x"), SINK, PipelineAddress(login=C)),
            PipelineAddress("", "x", C),
        ),
        # These belong to another server.
        ((PipelineAddress("s"), PipelineAddress("t", login=C), SINK), PipelineAddress("s")),
        (
            (PipelineAddress("s"), PipelineAddress("t", login=C), PipelineAddress(login=D)),
            PipelineAddress("s", login=D),
        ),
        ((SINK, SINK, SINK), PipelineAddress("nats://127.0.0.1:4222")),
    ],
)
def test_credentials_may_stand_elsewhere_than_the_server(
    places: tuple[PipelineAddress, ...], expected: PipelineAddress
) -> None:
    assert PipelineAddress.first_of(*places) == expected


def test_the_reason_of_a_python_worker_is_not_hidden_by_java() -> None:
    text = "\n".join(
        [
            "[STREAM_FAILED] Query terminated: [FOREACH_BATCH_USER_FUNCTION_ERROR] Reason:",
            "Traceback (most recent call last):",
            '  File "runner.py", line 1, in call',
            "pyspark.errors.PythonException: An exception was thrown from the Python worker:",
            "Traceback (most recent call last):",
            '  File "sink.py", line 69, in write',
            "tradewind.spark.errors.RowError: subject 'nope' is not one of stream ORDERS",
        ]
    )
    assert short_reason(RuntimeError(text)) == "subject 'nope' is not one of stream ORDERS"
    java = "org.apache.spark.api.python.PythonException: An exception was thrown from the Python"
    stack = "Traceback (most recent call last):\n  File\ntradewind.spark.errors.DataLossError: gone"
    assert short_reason(RuntimeError(f"{java} worker.\n{stack}")) == "gone"


def test_a_checkpoint_under_a_name_that_hadoop_does_not_know_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "pipeline: test\ncheckpoint: s3://bucket/state\n"
        "sources:\n  orders: {stream: ORDERS}\nsinks:\n  show: {from: orders, console: {}}\n"
    )
    with pytest.raises(PipelineError, match=r"p.yaml:2: .*s3a://bucket/state"):
        load_pipeline(path)
    assert not list(tmp_path.glob("s3*"))
