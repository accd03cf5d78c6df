"""Determines the mirror or sources that the configuration of a stream requires.

Owns the keys that identify a mirror or source across a configuration change, and making the ledger
that all sources of a stream share.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tradewind.jetstream.replication.ledger import Ledger
from tradewind.jetstream.replication.source_names import index_name
from tradewind.jetstream.replication.stream_mirror import Mirror
from tradewind.jetstream.replication.stream_source import SourceReplica

if TYPE_CHECKING:
    from tradewind.jetstream.companions import Wanted
    from tradewind.jetstream.hosted import HostedStream


def replicas_of(hosted: HostedStream) -> Wanted:
    """The companions for the mirror or the sources of a stream."""
    config = hosted.config
    if config.mirror is not None:
        return {"mirror": partial(Mirror, hosted, config.mirror)}
    if not config.sources:
        return {}
    ledger = hosted.companions.shared(Ledger, lambda: _ledger_of(hosted))
    return {
        ("source", index_name(source)): partial(SourceReplica, hosted, source, ledger)
        for source in config.sources
    }


def _ledger_of(hosted: HostedStream) -> Ledger:
    return Ledger(
        hosted.stream,
        lambda text: hosted.engine.log.error(f"JetStream stream {hosted.place}: {text}"),
    )
