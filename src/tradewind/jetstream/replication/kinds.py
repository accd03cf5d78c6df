"""Which companions the configuration of a stream asks for.

Owns the keys by which a mirror or source is the same as before a change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from tradewind.jetstream.replication.mirror import Mirror
from tradewind.jetstream.replication.names import index_name
from tradewind.jetstream.replication.source import Source

if TYPE_CHECKING:
    from tradewind.jetstream.companions import Companion
    from tradewind.jetstream.hosted import HostedStream


def replicas_of(hosted: HostedStream) -> Mapping[Hashable, Callable[[], Companion]]:
    """A mirror, or sources."""
    config = hosted.config
    if config.mirror is not None:
        return {"mirror": partial(Mirror, hosted, config.mirror)}
    return {
        ("source", index_name(source)): partial(Source, hosted, source, hosted.ledger)
        for source in config.sources
    }
