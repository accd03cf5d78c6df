"""The removals of a stream as its running server knows them, for a read of its files.

Owns one question. nats-server removes the oldest messages by limits without a word in the files,
and may forget or postpone its tombstones when blocks become empty; until its next `index.db`, only
the server itself knows which of the oldest messages are left. A server that does not answer, or
that has another stream of this name, says nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tradewind.api.times import parse_time
from tradewind.client.errors import ClientError
from tradewind.spark.connections.lent import CONNECTIONS
from tradewind.spark.errors import OptionError
from tradewind.spark.files.stream_contents import LiveRemovals
from tradewind.spark.providers.network import ReadAddress
from tradewind.spark.providers.proof import DELETED_MAX, head_of
from tradewind.store.format.sequence_set import SequenceSet

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo
    from tradewind.client.connection import Connection
    from tradewind.spark.files.store_files import StreamFiles
    from tradewind.spark.options.source_options import SourceOptions

logger = logging.getLogger(__name__)


def removals_on_server(options: SourceOptions, files: StreamFiles) -> LiveRemovals | None:
    """The removals of a stream; None if no server can say anything about the stream of the files.

    Without an address, or without an answer, a warning says what that means.
    """
    reason = "no server was named (servers)"
    if options.servers or options.context:
        try:
            with CONNECTIONS.lent(ReadAddress(options)) as lent:
                info = lent.run(_info(lent.connection, files.name))
        except (ClientError, OptionError) as error:
            reason = f"the server does not answer: {error}"
        else:
            if parse_time(info.created) == files.created_ns:
                return _removals(info)
            reason = "the server has another stream of this name"
    logger.warning(
        "stream %s: messages were deleted from it, and until nats-server writes its index.db, only"
        " the server knows which of the oldest messages its limits have left; some of them may be"
        " missing here, as %s",
        files.name,
        reason,
    )
    return None


async def _info(connection: Connection, stream: str) -> StreamInfo:
    streams = connection.jetstream_manager().streams
    info = await streams.info(stream)
    if 0 < info.state.num_deleted <= DELETED_MAX:
        return await streams.info(stream, deleted_details=True)
    return info


def _removals(info: StreamInfo) -> LiveRemovals:
    deleted: SequenceSet | None = None
    if info.state.num_deleted <= DELETED_MAX:
        deleted = SequenceSet()
        for seq in info.state.deleted or ():
            deleted.insert(seq)
    return LiveRemovals(head_of(info.state), deleted)
