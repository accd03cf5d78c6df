"""A store that is served without changes: a snapshot, a backup, a read-only disk.

Owns which requests are answered in that mode (`read_only: true`), and how streams are frozen: each
is opened, with all repairs in memory only, and then takes no changes. Consumers move on, in memory.
For a disk that has become read-only while the server runs, owns the check before a deletion: what
cannot be removed must not be closed either.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from tradewind.api import own_errors
from tradewind.errors import StoreError
from tradewind.store.files.disk import DiskError
from tradewind.store.files.joint_step import DiskCheck

if TYPE_CHECKING:
    from tradewind.api.endpoint_row import ApiEndpoint
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.jetstream.lanes import Steps

REASON: Final = "the server serves its store without changes (read_only in the jetstream block)"
# Requests that change nothing, or only a consumer in memory.
ANSWERED: Final = frozenset(
    {
        "account_info",
        "stream_names",
        "stream_list",
        "stream_info",
        "stream_msg_get",
        "stream_snapshot",
        "consumer_create_ephemeral",
        "consumer_create",
        "consumer_create_filtered",
        "consumer_create_durable",
        "consumer_names",
        "consumer_list",
        "consumer_info",
        "consumer_delete",
        "consumer_next",
        "direct_get",
        "direct_get_last",
        "stream_chain_info",
        "stream_chain_proof",
        "stream_chain_entries",
        "template_list",
        "template_try",
    }
)


def check_request(engine: JetStreamEngine, endpoint: ApiEndpoint) -> None:
    """ApiError for a request that would change what is on disk."""
    if engine.is_read_only and endpoint.name not in ANSWERED:
        raise own_errors.STORE_READ_ONLY(what=f"request {endpoint.name}")


def check_consumer(engine: JetStreamEngine, what: str, *, is_stored: bool) -> None:
    """ApiError for a change of a consumer that is stored on disk."""
    if engine.is_read_only and is_stored:
        raise own_errors.STORE_READ_ONLY(what=what)


def freeze(hosted: HostedStream) -> None:
    """Stop all changes to a stream, by clients and by the server itself."""
    if hosted.stream.files is not None:
        hosted.stream.freeze(StoreError(REASON))
        hosted.set_timer()


def is_read_only_error(error: StoreError) -> bool:
    """Whether the disk takes no changes at all."""
    return isinstance(error, DiskError) and error.errno == errno.EROFS


def check_disk(engine: JetStreamEngine) -> Steps[None]:
    """StoreError if the disk takes no changes; a worker checks, since a disk may not respond."""
    if engine.root is not None:
        yield DiskCheck(engine.root.check_writable)
