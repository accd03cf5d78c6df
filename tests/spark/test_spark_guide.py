"""The program of docs/how-to/SPARK.md runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "SPARK.md"


@pytest.mark.usefixtures("_patient_start")
def test_the_guide_is_a_program_that_runs(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark.version.startswith("4.")
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    exec(compile(code, str(PAGE), "exec"), {"__name__": "guide"})
    assert "orders.south  ####" in capsys.readouterr().out
