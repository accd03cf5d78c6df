"""The notebook of the examples: its cells run, and it holds nothing of a machine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).parent.parent.parent / "examples" / "orders.ipynb"


@pytest.mark.usefixtures("_patient_start")
def test_the_cells_of_the_notebook_run(spark: SparkSession) -> None:
    assert spark.version.startswith("4.")
    pytest.importorskip("duckdb")
    pytest.importorskip("pyiceberg")
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    names: dict[str, Any] = {"__name__": "notebook"}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
    assert names["rows"][0] == {"region": "east", "orders": 100, "amount": 2450}
    assert (names["by_spark"], names["by_sql"], names["by_duckdb"]) == (101, 101, 101)
    assert names["counts"] == {f"orders.{region}": 100 for region in ("north", "east", "south")}


def test_the_notebook_holds_code_only() -> None:
    text = NOTEBOOK.read_text()
    document = json.loads(text)
    assert not any(cell.get("outputs") for cell in document["cells"])
    assert all(cell.get("execution_count") is None for cell in document["cells"])
    assert not re.search(r"/(home|root|work|tmp)/", text)
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in document["cells"]}) == len(document["cells"])
