"""Removes the files of a table that is no longer wanted.

Owns the decision which files of a folder are the table's: files that the runner has named, the log,
and the state of the runner. All other files stay, and so does everything in a folder where no
runner has ever written the table, because any user who may change a stream chooses the folder and
the catalog. A table is only dropped while no runner has its lock.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tradewind.pipelines.definition.model import Iceberg
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.lake_files import local_path
from tradewind.pipelines.lake.lakes import open_catalog
from tradewind.pipelines.lake.parquet_lakes import staging_of
from tradewind.pipelines.state.leases import locked
from tradewind.pipelines.tables.table_spec import (
    STATE_FOLDER,
    TableSpec,
    table_folder,
    table_name,
)
from tradewind.pipelines.tables.table_status import IDENTITY_FILE, check_identity, state_place
from tradewind.pipelines.tables.table_writing import found_lake

# A runner looks at the streams every few seconds, and ends its batch then.
WAIT_SECONDS: Final = 60.0


def check_droppable(stream: str, spec: TableSpec) -> None:
    """PipelineError if the files of a table cannot be removed from here."""
    if spec.is_remote:
        raise PipelineError(
            f"the files of {stream} are in {spec.to}, which is not a folder of this machine: remove"
            " them there, with `tradewind table rm` without --drop before"
        )


def drop_table(stream: str, spec: TableSpec, seconds: float = WAIT_SECONDS) -> None:
    """Remove a table once no runner has it; PipelineError if one keeps it for so many seconds."""
    check_droppable(stream, spec)
    place = state_place(stream, spec)
    assert isinstance(place, Path)
    check_identity(place, stream, spec)
    deadline = time.monotonic() + seconds
    while True:
        try:
            with locked(place):
                _remove(stream, spec)
        except PipelineError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            break
    shutil.rmtree(place, ignore_errors=True)
    _remove_empty([place.parent, Path(table_folder(spec))])


def _remove(stream: str, spec: TableSpec) -> None:
    folder = Path(table_folder(spec))
    place = state_place(stream, spec)
    if not (place / IDENTITY_FILE).exists():
        return
    if spec.format == "iceberg":
        _remove_iceberg(stream, spec)
        return
    shutil.rmtree(staging_of(folder), ignore_errors=True)
    if spec.format == "delta":
        shutil.rmtree(folder / "_delta_log", ignore_errors=True)
    parents = {folder}
    for path in folder.rglob("part-*.parquet"):
        if STATE_FOLDER not in path.relative_to(folder).parts:
            path.unlink(missing_ok=True)
            parents |= {parent for parent in path.parents if parent.is_relative_to(folder)}
    _remove_empty(parents - {folder})


def _remove_iceberg(stream: str, spec: TableSpec) -> None:
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    if found_lake(stream, spec) is None:
        return
    folder = table_folder(spec)
    name = table_name(stream, spec)
    catalog = open_catalog(Iceberg(name, folder, spec.catalog), folder)
    try:
        location = catalog.load_table(name).location()
        catalog.drop_table(name)
    except (NoSuchNamespaceError, NoSuchTableError):
        return
    local = Path(local_path(location) or "/").resolve()
    if local != Path(folder).resolve() and local.is_relative_to(Path(folder).resolve()):
        shutil.rmtree(local, ignore_errors=True)


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders that have nothing in them, the deepest ones first."""
    for folder in sorted(folders, key=lambda one: len(one.parts), reverse=True):
        with suppress(OSError):
            folder.rmdir()
