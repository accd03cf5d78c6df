"""Determines the companions that the configuration of a stream requires.

Owns the keys that identify a mirror or source across a configuration change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from tradewind.jetstream.replication.source_names import index_name
from tradewind.jetstream.replication.stream_mirror import Mirror
from tradewind.jetstream.replication.stream_source import SourceReplica

if TYPE_CHECKING:
    from tradewind.jetstream.companions import Companion
    from tradewind.jetstream.hosted import HostedStream


def replicas_of(hosted: HostedStream) -> Mapping[Hashable, Callable[[], Companion]]:
    """A mirror, or sources."""
    config = hosted.config
    if config.mirror is not None:
        return {"mirror": partial(Mirror, hosted, config.mirror)}
    return {
        ("source", index_name(source)): partial(SourceReplica, hosted, source, hosted.ledger)
        for source in config.sources
    }
