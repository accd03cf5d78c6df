"""Asks the runner of a pipeline to stop, no matter who started it.

Owns the proof that a process is that runner, because a process id in a file may have been reused.
Only a process of this user that has the lock file of the checkpoint open while the lock is held
gets a signal, through a handle that can never refer to another process.
"""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

from tradewind.pipelines.definition.model import Pipeline
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.state.leases import LOCK_FILE
from tradewind.pipelines.state.status import PipelineStatus, read_status
from tradewind.platform_calls import PROC, process_handle, signal_handle


def stop_runner(pipeline: Pipeline) -> int:
    """Have the runner stop between two batches; its process. PipelineError if that cannot be."""
    status = read_status(pipeline.checkpoint)
    if status is None or not status.is_alive:
        raise PipelineError(f"pipeline {pipeline.name} is not running")
    _check_reachable(pipeline, status)
    checkpoint = pipeline.checkpoint
    assert isinstance(checkpoint, Path)
    try:
        handle = process_handle(status.pid)
    except OSError:
        raise PipelineError(f"pipeline {pipeline.name} is not running") from None
    try:
        if not is_runner(status.pid, checkpoint):
            raise PipelineError(
                f"process {status.pid} does not hold the lock of {checkpoint}: it is not the runner"
                f" of {pipeline.name}, and is left alone"
            )
        signal_handle(handle, signal.SIGTERM)
    except ProcessLookupError:
        raise PipelineError(f"pipeline {pipeline.name} is not running") from None
    finally:
        os.close(handle)
    return status.pid


def _check_reachable(pipeline: Pipeline, status: PipelineStatus) -> None:
    name, host = pipeline.name, os.uname().nodename
    if status.host != host:
        raise PipelineError(f"pipeline {name} runs on {status.host}; stop it there")
    if status.pid == os.getpid():
        raise PipelineError(
            f"pipeline {name} is part of this process ({status.pid}); stop that one"
        )
    if not isinstance(pipeline.checkpoint, Path):
        raise PipelineError(
            f"pipeline {name} runs as process {status.pid}, and its checkpoint is not on this"
            " machine: it is unknown whether that process is the runner; stop it there"
        )


def is_runner(pid: int, checkpoint: Path) -> bool:
    """Whether a process of this user holds the lock of a checkpoint."""
    lock = checkpoint / LOCK_FILE
    try:
        wanted = lock.stat()
        folder = Path(PROC, str(pid), "fd")
        if folder.stat().st_uid != os.getuid():
            return False
        has_it = any(_is_file(entry, wanted) for entry in folder.iterdir())
        return has_it and _is_held(lock)
    except OSError:
        return False


def _is_file(entry: Path, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(entry.stat(), wanted)
    except OSError:
        return False


def _is_held(lock: Path) -> bool:
    file = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
