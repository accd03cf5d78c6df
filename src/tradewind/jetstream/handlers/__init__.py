"""What each request of the API does: one function per endpoint, by its name in the API's table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tradewind.jetstream.handlers import account, backups, consumers, messages, streams
from tradewind.jetstream.lanes import Steps
from tradewind.jetstream.requests import Answer, Request

# Only a cluster can fulfil these; a single nats-server refuses them before anything else.
NEED_CLUSTER: Final = frozenset(
    {
        "stream_peer_remove",
        "stream_peer_evacuate",
        "stream_cancel_move",
        "stream_leader_stepdown",
        "consumer_leader_stepdown",
    }
)
# Their answers are neither counted nor audited, unless they are errors.
NOT_AUDITED: Final = frozenset({"stream_msg_get"})
# Answered by the consumer itself in nats-server: no request of the API's count, and not audited.
NOT_COUNTED: Final = frozenset({"consumer_reset"})
# Requests that follow each other and are of one kind may create together, see `lanes`.
KINDS: Final = {
    "stream_create": "stream",
    "consumer_create_ephemeral": "consumer",
    "consumer_create": "consumer",
    "consumer_create_filtered": "consumer",
    "consumer_create_durable": "consumer",
}
# They look for their stream before they find fault with the body.
STREAM_FIRST: Final = frozenset({"stream_snapshot"})
HANDLERS: Final[Mapping[str, Callable[[Request], Answer | Steps[Answer]]]] = {
    "account_info": account.info,
    "stream_create": streams.create,
    "stream_update": streams.update,
    "stream_names": streams.names,
    "stream_list": streams.list_,
    "stream_info": streams.info,
    "stream_delete": streams.delete,
    "stream_purge": streams.purge,
    "stream_snapshot": backups.snapshot,
    "stream_restore": backups.restore,
    "stream_msg_get": messages.get,
    "stream_msg_delete": messages.delete,
    "consumer_create_ephemeral": consumers.create,
    "consumer_create": consumers.create,
    "consumer_create_filtered": consumers.create,
    "consumer_create_durable": consumers.create,
    "consumer_names": consumers.names,
    "consumer_list": consumers.list_,
    "consumer_info": consumers.info,
    "consumer_delete": consumers.delete,
    "consumer_pause": consumers.pause,
    "consumer_unpin": consumers.unpin,
    "consumer_reset": consumers.reset,
}
