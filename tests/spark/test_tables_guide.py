"""The program of docs/how-to/TABLES.md runs, and the page names every option."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tradewind.pipelines.tables.table_spec import TableSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "TABLES.md"


def test_the_guide_is_a_program_that_runs(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark.version
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    exec(compile(code, str(PAGE), "exec"), {"__name__": "guide"})
    printed = capsys.readouterr()
    assert re.search(r"│ ORDERS +│ done +│ +102 │", printed.out)
    assert "table of ORDERS done: 102 rows" in printed.err


def test_the_page_names_every_key() -> None:
    rows = re.findall(r"^\| `--[\w-]+` \| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert rows == list(TableSpec.__struct_fields__)
