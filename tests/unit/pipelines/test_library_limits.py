"""What the libraries of lakes cannot do; when one of these fails, merge-on-read can be offered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "PIPELINES.md"
FALLBACK = "Merge on read is not yet supported, falling back to copy-on-write"
NO_V3 = "Writing V3 is not yet supported"


def rows() -> Any:
    return pa.table({"id": pa.array(range(10), pa.int64())})


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    catalogs = pytest.importorskip("pyiceberg.catalog")
    settings = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/c.db",
        "warehouse": f"file://{tmp_path}",
    }
    catalog = catalogs.load_catalog("test", **settings)
    catalog.create_namespace("sales")
    return catalog


def test_pyiceberg_writes_no_delete_files(catalog: Any) -> None:
    kinds = ("delete", "update", "merge")
    modes = {f"write.{kind}.mode": "merge-on-read" for kind in kinds}
    table = catalog.create_table("sales.orders", rows().schema, properties=modes)
    table.append(rows())
    with pytest.warns(UserWarning, match=FALLBACK):
        table.delete("id = 3")
    summary = table.current_snapshot().summary
    assert summary.operation.value == "overwrite"
    assert "added-delete-files" not in summary.additional_properties


def test_pyiceberg_does_not_write_format_version_3(catalog: Any) -> None:
    with pytest.raises(NotImplementedError, match=NO_V3):
        catalog.create_table("sales.new", rows().schema, properties={"format-version": "3"}).append(
            rows()
        )


def test_deltalake_rewrites_files_in_spite_of_deletion_vectors(tmp_path: Path) -> None:
    delta = pytest.importorskip("deltalake")
    delta.DeltaTable.create(
        tmp_path, schema=rows().schema, configuration={"delta.enableDeletionVectors": "true"}
    )
    delta.write_deltalake(tmp_path, rows(), mode="append")
    table = delta.DeltaTable(tmp_path)
    assert "deletionVectors" in table.protocol().writer_features
    assert table.delete("id = 3")["num_copied_rows"] == 9
    last = max((tmp_path / "_delta_log").glob("*.json")).read_text().splitlines()
    actions = [next(iter(json.loads(line))) for line in last]
    assert sorted(actions) == ["add", "commitInfo", "remove"]
    assert not any("deletionVector" in line for line in last)


def test_the_documentation_has_these_errors() -> None:
    text = PAGE.read_text()
    assert FALLBACK in text
    assert NO_V3 in text
