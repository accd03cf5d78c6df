"""Forgets old versions of Delta and Iceberg tables, and removes files that no version needs.

Owns which versions go and which files are old enough. The marks of the latest batch of each writer
stay, whichever commit had them. A version goes a while after another has taken its place, not after
its own commit, because readers may still use it. Files that only forgotten versions need are listed
in the folder of the metadata (`tradewind-expired-MS-ID.json`) before these are forgotten, and stay
for the orphan age from then on. A file that no version names may belong to a batch on its way, so
it is removed only when it is old.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import pyarrow.fs as pafs

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.delta_tables import DeltaLake, is_gone
from tradewind.pipelines.lake.iceberg_tables import DATA_FOLDER, IcebergLake, commits_of
from tradewind.pipelines.lake.lake_files import local_path, sync_file
from tradewind.pipelines.lake.lake_tables import COMMITS_MAX, ConflictError
from tradewind.pipelines.lake.lakes import LATEST, latest_of

METADATA_FOLDER: Final = "metadata"
EXPIRED_PREFIX: Final = "tradewind-expired-"
HOUR_SECONDS: Final = 3600
# A log is read to its end within this time after its last checkpoint was looked up.
SETTLED_SECONDS: float = 60.0
_LOG_FILE: Final = re.compile(r"(\d{20})(?:\.(\d{20}))?\.(?:json|crc|checkpoint.*|compacted\.json)")
_LAST_CHECKPOINT: Final = "_last_checkpoint"


def expire(lake: DeltaLake | IcebergLake, seconds: float, keep: int) -> int:
    """Forget versions that were replaced longer ago; returns their number.

    At least `keep` of them stay. Changes that others make meanwhile are looked at again.
    """
    for _ in range(COMMITS_MAX):
        cutoff_ms = time.time_ns() // 1_000_000 - round(seconds * 1000)
        try:
            if isinstance(lake, DeltaLake):
                return _expire_delta(lake, cutoff_ms, keep)
            return _expire_iceberg(lake, cutoff_ms, keep)
        except ConflictError as error:
            last = error
    raise PipelineError(f"{lake.name}: other writers keep changing the table: {last}")


def remove_unneeded(
    lake: DeltaLake | IcebergLake, seconds: float, deadline: float | None = None
) -> int:
    """Remove files that no version needs, and have not for so long; returns their number."""
    if isinstance(lake, DeltaLake):
        return lake.vacuum(max(1, -int(-seconds // HOUR_SECONDS)))
    return _remove_iceberg(lake, seconds, deadline)


# -------------------------------------------------------------------------- Iceberg


def _expire_iceberg(lake: IcebergLake, cutoff_ms: int, keep: int) -> int:
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.update import (
        AssertRefSnapshotId,
        AssertTableUUID,
        RemoveSnapshotsUpdate,
        SetPropertiesUpdate,
    )

    table = lake.load()
    gone = expired_ids(table.metadata, cutoff_ms, keep)
    if not gone:
        return 0
    _list_expired(table, gone)
    # A version before this one had the marks only in the snapshots.
    lost = {
        LATEST + writer: msgspec.json.encode(marks).decode()
        for writer, marks in latest_of(commits_of(table)).items()
        if LATEST + writer not in table.properties
    }
    updates = [SetPropertiesUpdate(updates=lost)] if lost else []
    # Who sets a branch to one of these snapshots meanwhile keeps it. Catalogs know no condition
    # for names that are not there yet.
    requirements = [
        AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id)
        for name, ref in table.metadata.refs.items()
    ]
    try:
        table.catalog.commit_table(
            table,
            (AssertTableUUID(uuid=table.metadata.table_uuid), *requirements),
            (RemoveSnapshotsUpdate(snapshot_ids=sorted(gone)), *updates),
        )
    except (CommitFailedException, ValueError) as error:
        raise ConflictError(str(error).splitlines()[0]) from None
    return len(gone)


def expired_ids(metadata: Any, cutoff_ms: int, keep: int) -> set[int]:
    """The snapshots that go: neither a branch nor a tag needs them.

    The last `keep` ones of each branch stay, and those that were its latest after the cutoff.
    """
    by_id = {one.snapshot_id: one for one in metadata.snapshots}
    kept: set[int] = set()
    seen: set[int] = set()
    for ref in metadata.refs.values():
        kept.add(ref.snapshot_id)
        if str(ref.snapshot_ref_type.value) != "branch":
            continue
        place, replaced_ms = by_id.get(ref.snapshot_id), None
        count = 0
        while place is not None:
            count += 1
            seen.add(place.snapshot_id)
            if count <= max(keep, 1) or (replaced_ms is not None and replaced_ms > cutoff_ms):
                kept.add(place.snapshot_id)
            replaced_ms = place.timestamp_ms
            place = by_id.get(place.parent_snapshot_id) if place.parent_snapshot_id else None
    # Snapshots of no branch were staged, or rolled back.
    kept |= {
        one.snapshot_id
        for one in metadata.snapshots
        if one.snapshot_id not in seen and one.timestamp_ms > cutoff_ms
    }
    return by_id.keys() - kept


def _list_expired(table: Any, gone: set[int]) -> None:
    """Note which files only the snapshots that go have, so that they stay for a while."""
    kept_names = _names_of(table, (one for one in table.snapshots() if one.snapshot_id not in gone))
    names = _names_of(table, (one for one in table.snapshots() if one.snapshot_id in gone))
    now_ms = time.time_ns() // 1_000_000
    path = f"{table.location()}/{METADATA_FOLDER}/{EXPIRED_PREFIX}{now_ms}-{token_hex(4)}.json"
    with table.io.new_output(path).create() as stream:
        stream.write(msgspec.json.encode(sorted(names - kept_names)))
    if local := local_path(path):
        sync_file(local)


def _names_of(table: Any, snapshots: Iterable[Any]) -> set[str]:
    """The files of some snapshots, by their paths without a scheme: lists, manifests and data."""
    names: set[str] = set()
    manifests: dict[str, Any] = {}
    for snapshot in snapshots:
        names.add(snapshot.manifest_list)
        manifests |= {one.manifest_path: one for one in snapshot.manifests(table.io)}
    names |= manifests.keys()
    for manifest in manifests.values():
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            names.add(entry.data_file.file_path)
    return {_plain(name) for name in names}


def _plain(name: str) -> str:
    return name.partition("://")[2] if "://" in name else name.removeprefix("file:")


@dataclass(frozen=True)
class _Folder:
    """The content below a folder of an Iceberg table."""

    system: pafs.FileSystem
    files: list[pafs.FileInfo]


def _folder(table: Any, name: str) -> _Folder:
    whole = f"{table.location()}/{name}"
    parts = urlsplit(whole)
    system = table.io.fs_by_scheme(parts.scheme or "file", parts.netloc)
    selector = pafs.FileSelector(_plain(whole), allow_not_found=True, recursive=True)
    found = system.get_file_info(selector)
    return _Folder(system, [info for info in found if info.type == pafs.FileType.File])


def _remove_iceberg(lake: IcebergLake, seconds: float, deadline: float | None) -> int:
    """Remove files that no snapshot names; of the metadata only what belongs to snapshots."""
    table: Any = lake.load()
    data, metadata = (_folder(table, name) for name in (DATA_FOLDER, METADATA_FOLDER))
    # The lists are older than the names: a file that is committed in between is known.
    table = lake.load()
    if not table.snapshots():
        return 0  # the first batch may be on its way
    border = datetime.fromtimestamp(time.time() - seconds, UTC)
    known = _names_of(table, table.snapshots())
    known |= {_plain(one.metadata_file) for one in table.metadata.metadata_log}
    known |= {_plain(one.statistics_path) for one in table.metadata.statistics}
    known.add(_plain(table.metadata_location))
    # These lists are younger than the names: who forgets a snapshot writes the list before.
    known |= _waiting(_folder(table, METADATA_FOLDER), border)
    wanted = [info for info in data.files if _is_removable(info, border, known)]
    wanted += [
        info
        for info in metadata.files
        if info.path.endswith((".avro", ".metadata.json", ".metadata.json.gz"))
        or info.base_name.startswith(EXPIRED_PREFIX)
        if _is_removable(info, border, known)
    ]
    removed = 0
    for info in wanted:
        if deadline is not None and time.monotonic() > deadline:
            break
        with suppress(FileNotFoundError):  # another process removes as well
            data.system.delete_file(info.path)
            removed += 1
    return removed


def _is_removable(info: pafs.FileInfo, border: datetime, known: set[str]) -> bool:
    return info.mtime is not None and info.mtime < border and info.path not in known


def _waiting(metadata: _Folder, border: datetime) -> set[str]:
    """The files of snapshots that were forgotten a short while ago, and the lists of them."""
    names: set[str] = set()
    for info in metadata.files:
        is_young = info.mtime is None or info.mtime >= border
        if info.base_name.startswith(EXPIRED_PREFIX) and is_young:
            with suppress(FileNotFoundError, msgspec.DecodeError):  # removed, or half written
                with metadata.system.open_input_stream(info.path) as stream:
                    names.update(msgspec.json.decode(stream.read(), type=list[str]))
                names.add(info.path)
    return names


# -------------------------------------------------------------------------- Delta


@dataclass(frozen=True)
class DeltaLog:
    """The files of a log by their version, with the times of commits and checkpoints in ms."""

    system: pafs.FileSystem
    moments: Mapping[int, int]
    checkpoints: Mapping[int, int]
    files: list[tuple[int, str]]
    hint: int

    @property
    def first_version(self) -> int:
        """The oldest version that can be distinguished from the one before; -1 if there is none."""
        return min(self.moments, default=-1)


def delta_log(lake: DeltaLake) -> DeltaLog:
    """The log of a table as it is now."""
    system, base = lake.storage.opened()
    folder = f"{base}/_delta_log"
    moments: dict[int, int] = {}
    checkpoints: dict[int, int] = {}
    files: list[tuple[int, str]] = []
    hint = -1
    for info in system.get_file_info(pafs.FileSelector(folder, allow_not_found=True)):
        if info.base_name == _LAST_CHECKPOINT:
            hint = _hint(system, info.path)
        if (found := _LOG_FILE.fullmatch(info.base_name)) is None:
            continue
        # A compacted part of the log is as old as its last version.
        version = int(found[2] or found[1])
        files.append((version, info.path))
        moment_ms = round(info.mtime.timestamp() * 1000) if info.mtime else 0
        if info.base_name == f"{version:020}.json":
            moments[version] = moment_ms
        elif info.base_name == f"{version:020}.checkpoint.parquet":
            checkpoints[version] = moment_ms
    return DeltaLog(system, moments, checkpoints, sorted(files), hint)


def _hint(system: pafs.FileSystem, path: str) -> int:
    """The version of the checkpoint that readers begin with; -1 if it is unknown."""
    try:
        with system.open_input_stream(path) as stream:
            return int(msgspec.json.decode(stream.read())["version"])
    except (FileNotFoundError, msgspec.DecodeError, KeyError):
        return -1


def _expire_delta(lake: DeltaLake, cutoff_ms: int, keep: int) -> int:
    """Shorten the log, up to a checkpoint that has been there for a while.

    A reader that begins with an older checkpoint gets to its end before that goes. Such a
    checkpoint is written if there is none, and the log is shortened the next time.
    """
    log = delta_log(lake)
    table = lake.load()
    # The version that was the latest at the cutoff is the first that stays.
    old = [version for version, moment_ms in log.moments.items() if moment_ms <= cutoff_ms]
    border = min(max(old, default=-1), table.version() - max(keep, 1) + 1)
    if border <= log.first_version:
        return 0
    if log.hint < border and border not in log.checkpoints:
        lake.load(border).create_checkpoint()
        log = delta_log(lake)
    settled_ms = time.time_ns() // 1_000_000 - round(SETTLED_SECONDS * 1000)
    settled = [
        version
        for version, moment_ms in log.checkpoints.items()
        if version <= min(border, log.hint) and moment_ms <= settled_ms
    ]
    first = max(settled, default=-1)
    if first <= log.first_version:
        return 0
    try:
        history = table.history()
    except Exception as error:
        if not is_gone(error):
            raise
        raise ConflictError("somebody else shortens the log") from None
    latest = latest_of(history)
    if latest != latest_of(one for one in history if one["version"] >= first):
        lake.repeat_marks(table, latest)
    # The oldest go first, so that what is left has no hole at any moment.
    for version, path in log.files:
        if version < first:
            with suppress(FileNotFoundError):
                log.system.delete_file(path)
    return sum(version < first for version in log.moments)
