"""tests/ports.py: processes that start servers side by side do not take each other's ports."""

from __future__ import annotations

import multiprocessing

import ports


def _some_ports(_number: int) -> set[int]:
    return set(ports.free_ports(20))


def test_forked_processes_begin_apart() -> None:
    with multiprocessing.get_context("fork").Pool(3, maxtasksperchild=1) as processes:
        shares = processes.map(_some_ports, range(3), chunksize=1)
    assert len(set.union(*shares)) == 60
