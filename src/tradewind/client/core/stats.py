"""Counters of a connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stats:
    """The traffic of a connection since it was created; bytes count headers and payloads."""

    in_messages: int
    in_bytes: int
    out_messages: int
    out_bytes: int
    reconnects: int
