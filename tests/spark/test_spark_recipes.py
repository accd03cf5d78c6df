"""The program of docs/how-to/SPARK_RECIPES.md runs: joins and duplicates."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "SPARK_RECIPES.md"


@pytest.mark.usefixtures("_patient_start")
def test_the_recipes_are_a_program_that_runs(spark: SparkSession) -> None:
    assert spark.version.startswith("4.")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, object] = {"__name__": "recipes"}
    exec(compile("\n".join(blocks), str(PAGE), "exec"), names)
    queries = {"join", "once"}
    folder = names["folder"]
    assert isinstance(folder, Path)
    assert queries <= {path.name for path in folder.iterdir()}
