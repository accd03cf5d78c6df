"""What a status says while a pipeline waits for its server."""

from __future__ import annotations

import tradewind
from tradewind.pipelines.connections import Address
from tradewind.pipelines.display import status_line
from tradewind.pipelines.lag import ServerLag
from tradewind.pipelines.status import PipelineStatus


def test_a_server_that_does_not_answer_is_noted() -> None:
    with tradewind.serve(port=0) as server:
        address = Address(server.url)
    meter = ServerLag(address)
    assert meter.measure({"ORDERS": 5})[0].messages is None
    assert meter.problem.endswith("the queries wait for it")
    status = PipelineStatus("p", "p.yaml", "running", 1, "elsewhere", "local", 0, 0)
    assert "[" not in status_line(status)
    status.note = meter.problem
    assert status_line(status).endswith(f"[{meter.problem}]")


def test_a_server_that_answers_again_is_not_noted() -> None:
    with tradewind.serve(port=0) as server:
        meter = ServerLag(Address(server.url))
        meter.problem = "away"
        meter.measure({})
        assert meter.problem == ""
        meter.close()
