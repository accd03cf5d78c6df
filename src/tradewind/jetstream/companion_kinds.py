"""The list of all kinds of companions of a stream.

Owns which kinds there are, and the quick check whether a stream has one at all: most have none, and
the modules of mirrors, sources, chains, shelves, dead letters and schemas are loaded with the first
stream that does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tradewind.api.names import has_schema_rule
from tradewind.errors import StoreError
from tradewind.jetstream.companions import CompanionKind, Wanted

if TYPE_CHECKING:
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.store.format.meta import StreamMeta


def _replicas_of(hosted: HostedStream) -> Wanted:
    """The companions for the mirror or the sources of a stream; few streams have any."""
    if hosted.config.mirror is None and not hosted.config.sources:
        return {}
    from tradewind.jetstream.replication.replica_kinds import replicas_of

    return replicas_of(hosted)


def _shelves_of(hosted: HostedStream) -> Wanted:
    """The companions for truncated messages that can be brought back; few streams have any."""
    folder = hosted.stream.folder
    try:
        if folder is None or not folder.has_shelves():
            return {}
        from tradewind.jetstream.undo import shelves_of

        return shelves_of(hosted)
    except StoreError as error:
        # The shelves stay longer than necessary; the stream is available all the same.
        hosted.engine.log.error(f"JetStream stream {hosted.place}: {error}")
        return {}


def _chains_of(hosted: HostedStream) -> Wanted:
    """The companion that signs the chain; few streams have one."""
    files = hosted.stream.files
    if files is None or files.chain is None:
        return {}
    from tradewind.jetstream.chain_keeper import chains_of

    return chains_of(hosted)


def _schema_keepers_of(hosted: HostedStream) -> Wanted:
    """The companion that checks payloads; few streams have one."""
    if not has_schema_rule(hosted.config.metadata):
        return {}
    from tradewind.jetstream.schema_keeper import keepers_of

    return keepers_of(hosted)


def _configure_chain(hosted: HostedStream, meta: StreamMeta) -> None:
    """Give a stream without messages a chain, or another one."""
    folder, files = hosted.stream.folder, hosted.stream.files
    if folder is None or files is None:
        return
    settings = folder.chain_settings(meta)
    known = "" if files.chain is None else files.chain.settings.algorithm
    if known == ("" if settings is None else settings.algorithm):
        return
    files.attach_chain(None)
    if settings is not None:
        from tradewind.store.folder.chain_recovery import open_chain

        open_chain(files, settings)


def _keep_expired(hosted: HostedStream, consumer: ServerConsumer, *, is_there: bool) -> None:
    """Keep expiring messages for consumers that turn them into dead letters."""
    is_keeper = is_there and consumer.dead_letters.keeps_expired
    if not is_keeper and hosted.stream.upkeep.keeper is None:
        return
    from tradewind.jetstream.transactions.expired_letters import ExpiredLetters

    letters = hosted.companions.shared(ExpiredLetters, lambda: ExpiredLetters(hosted))
    letters.set_keeper(consumer, is_keeper=is_keeper)


COMPANION_KINDS: Final = (
    CompanionKind(_replicas_of),
    CompanionKind(_shelves_of),
    CompanionKind(_chains_of, configure=_configure_chain),
    CompanionKind(consumer_changed=_keep_expired),
    CompanionKind(_schema_keepers_of),
)
