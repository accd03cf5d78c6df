"""The status of a running pipeline, as a small file that other programs can read.

Owns `status.json` next to the checkpoint: the runner replaces it atomically about twice a second,
and `tradewind pipeline status` and the dashboard read it. Nothing depends on it: a pipeline
continues from its checkpoint whether the file exists or not.
"""

from __future__ import annotations

import os
from typing import Final, Literal, TypeVar

import msgspec

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.machine.places import Place, replace_file
from tradewind.spark.progress.stream_lag import StreamLag

STATUS_FILE: Final = "status.json"
# The query of a source's dead letters has its name and this.
DEAD_SUFFIX: Final = "_dead"
# How many of the last batches with rows the status of a query lists.
RECENT_MAX: Final = 300
AnyStatus = TypeVar("AnyStatus", bound=msgspec.Struct)
State = Literal["starting", "running", "stopped", "failed", "done"]


class BatchStatus(msgspec.Struct, array_like=True, frozen=True):
    """One batch that had rows.

    `target_seq` is the last sequence of the target stream when the batch was first seen to be done;
    None if that is not known. Without other writers, it is the sequence of the batch's last row.
    """

    batch: int
    done_ms: int
    rows: int
    took_ms: int
    bad_rows: int = 0
    target_seq: int | None = None


class QueryStatus(msgspec.Struct):
    """One sink: how much it was given and how fast. `recent` has the newest batch last."""

    name: str
    target: str
    batches: int = 0
    batch_id: int = -1
    rows: int = 0
    rows_total: int = 0
    rows_per_second: float = 0.0
    batch_ms: int = 0
    bad_rows: int = 0
    state_rows: int = 0
    restarts: int = 0
    watermark: str = ""
    lags: list[StreamLag] = []
    recent: list[BatchStatus] = []


class PipelineStatus(msgspec.Struct):
    """A pipeline; times are nanoseconds since 1970."""

    pipeline: str
    file: str
    state: State
    pid: int
    host: str
    master: str
    started_ns: int
    updated_ns: int
    queries: list[QueryStatus] = []
    error: str = ""
    note: str = ""  # what it waits for

    @property
    def is_alive(self) -> bool:
        """Whether the process that wrote this still runs, as far as this machine can tell."""
        if self.state not in ("starting", "running"):
            return False
        return is_alive_there(self.host, self.pid)


def is_alive_there(host: str, pid: int) -> bool:
    """Whether a process runs, as far as this machine can tell."""
    return host != os.uname().nodename or is_process(pid)


def is_process(pid: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def write_status(checkpoint: Place, status: PipelineStatus) -> None:
    """Replace the file; readers see the old one or the new one."""
    write_status_file(checkpoint / STATUS_FILE, status)


def read_status(checkpoint: Place) -> PipelineStatus | None:
    """The status that the last runner wrote; None if the pipeline never ran."""
    return read_status_file(checkpoint / STATUS_FILE, PipelineStatus)


def write_status_file(path: Place, status: msgspec.Struct) -> None:
    """Replace a file with a status; readers see the old one or the new one."""
    replace_file(path, msgspec.json.encode(status) + b"\n")


def read_status_file(path: Place, kind: type[AnyStatus]) -> AnyStatus | None:
    """The status in a file; None if there is none, PipelineError if it is no status."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise PipelineError(
            f"{path}: not a valid status file: {error}; the next run replaces it"
        ) from None
