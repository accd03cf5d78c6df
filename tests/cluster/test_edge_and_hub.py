"""The example of devices and their hub, small: what it counts is right although everything dies.

The pipeline on Spark, which takes minutes here, is part of it in `make thorough`; that pipelines
survive the leaders of a cluster is tested by `tests/spark/test_nats_cluster.py` as well.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ports import free_ports
from tradewind.cluster.cluster_plan import plan_local, save_plan
from tradewind.cluster.processes import NodeProcess

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "edge_and_hub.py"
RUN_SECONDS = 400
WITH_SPARK = os.environ.get("TRADEWIND_THOROUGH") == "1"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """No server of a hub in it runs afterwards.

    The ports of the hub are such that nobody takes them while its servers are down.
    """
    hub = tmp_path / "edge" / "hub"
    plan = plan_local("local", 3, free_ports(12), "hub")
    save_plan(hub, plan)
    yield tmp_path / "edge"
    for node in plan.nodes:
        NodeProcess(plan, node, hub).kill()


@pytest.mark.timeout(RUN_SECONDS + 30)
def test_every_reading_of_every_device_arrives_once(folder: Path) -> None:
    """The leader of the hub's stream is killed, then the whole hub and a device."""
    words = [sys.executable, str(EXAMPLE), "--devices", "3", "--folder", str(folder)]
    if not WITH_SPARK:
        words.append("--no-spark")
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=RUN_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output
    counts = re.findall(r"(\S+): (\d+) of (\d+), 0 lost, 0 twice", output)
    wanted = ["hub", "pipeline"] if WITH_SPARK else ["hub"]
    assert [what for what, _, _ in counts] == wanted, output
    found = {int(number) for _, *numbers in counts for number in numbers}
    # The same in all places, and more than what was stored before the hub was away.
    assert len(found) == 1
    assert found.pop() > 3 * 50
