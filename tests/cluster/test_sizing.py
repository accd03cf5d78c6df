"""The figures of docs/how-to/SCALING.md can be measured again by the command that stands there."""

from __future__ import annotations

import pytest
from benchmarks.sizing import FIGURES, main


def test_a_short_run_gives_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--markdown"]) == 0
    head, rule, *rows = capsys.readouterr().out.splitlines()
    assert "| Tradewind | nats-server | cluster, 3 copies | Tradewind to cluster |" in head
    assert rule.count("---:") == 4
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == list(FIGURES.values())
    assert "n/a" not in "".join(rows)
