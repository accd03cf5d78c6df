"""The endpoints of the API: subjects, types, bodies, handlers, and a line of help.

Owns the table, and finding the row and the names for a subject. It never executes a request. Server
dispatch, client methods and documentation are derived from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

import msgspec

from tradewind.api import request_types as ask
from tradewind.api import responses as answer
from tradewind.api.base import ApiStruct
from tradewind.api.chain import (
    ChainCheckpoint,
    ChainEntries,
    ChainEntriesRequest,
    ChainInfo,
    ChainProof,
    ChainProofRequest,
)
from tradewind.api.errors import BAD_REQUEST, NOT_EMPTY_REQUEST
from tradewind.api.requests import decode_lenient, decode_request, holds_json, is_empty_request
from tradewind.api.template_types import (
    TemplateListResponse,
    TemplatePutRequest,
    TemplatePutResponse,
    TemplateTryRequest,
    TemplateTryResponse,
)
from tradewind.api.truncation_types import (
    StreamTruncateRequest,
    StreamTruncateResponse,
    StreamUndoRequest,
    StreamUndoResponse,
)

PREFIX: Final = "$JS.API."
# What only this server has. The body and the answer of a commit are in `commit_types`.
OWN_PREFIX: Final = "$TW.API."
COMMIT_SUBJECT: Final = f"{OWN_PREFIX}COMMIT"


class Body(Enum):
    """What an endpoint does with the body of a request."""

    # Also of what only a cluster can do, which is refused before.
    IGNORED = auto()
    # Refused with 10038 unless it is empty.
    NONE = auto()
    # Read if it looks like JSON, else ignored.
    OPTIONAL = auto()
    # Refused with 10003 if it is empty.
    REQUIRED = auto()
    # Read in any case; nothing means zero values.
    ALWAYS = auto()
    # Read without strictness, and refused if it is not JSON.
    LENIENT = auto()
    # Of a form of its own, which its handler reads.
    OWN = auto()


class Audit(Enum):
    """When an answer counts as a request of the API, and is published for auditors."""

    ALWAYS = auto()
    IF_REFUSED = auto()
    # The consumer itself answers in nats-server.
    NEVER = auto()


class ApiEndpoint(msgspec.Struct, frozen=True):
    """A row of the table. `subject` follows the prefix; $s, $c and $rest stand for names."""

    name: str
    subject: str
    help: str
    body: Body = Body.NONE
    request: type[ApiStruct] | None = None
    # None: it answers with messages instead of JSON.
    response: type[ApiStruct] | None = None
    # The function of `tradewind.jetstream.handlers` that runs it. None has what only a cluster can
    # do, and what each stream or consumer hears for itself.
    handler: str = ""
    audit: Audit = Audit.ALWAYS
    # Requests that follow each other and make things of one kind may run side by side.
    makes: str = ""
    # It looks for its stream before it finds fault with the body.
    finds_stream_first: bool = False
    prefix: str = PREFIX

    @property
    def needs_cluster(self) -> bool:
        """A single server refuses it before anything else."""
        return self.response is not None and not self.handler

    def decode(self, body: bytes, *, strict: bool = True) -> ApiStruct | None:
        """The request in a body; ApiError if the endpoint does not take it.

        An optional body that is not there gives a request of zero values. None if the endpoint has
        no request, or reads it itself.
        """
        if self.body is Body.NONE and not is_empty_request(body):
            raise NOT_EMPTY_REQUEST()
        if self.request is None or self.body in (Body.OWN, Body.IGNORED):
            return None
        if self.body is Body.REQUIRED and is_empty_request(body):
            raise BAD_REQUEST()
        if self.body is Body.LENIENT:
            return decode_lenient(self.request, body)
        if self.body is Body.OPTIONAL and not holds_json(body):
            return self.request()
        return decode_request(self.request, body, strict=strict)

    def subject_for(self, stream: str = "", consumer: str = "", rest: str = "") -> str:
        """The full subject of a request."""
        names = {"$s": stream, "$c": consumer, "$rest": rest}
        return self.prefix + ".".join(names.get(token, token) for token in self.subject.split("."))


class EndpointCall(msgspec.Struct, frozen=True):
    """What the subject of a request says. `rest` is the filter or subject behind the names."""

    endpoint: ApiEndpoint
    stream: str = ""
    consumer: str = ""
    rest: str = ""


ENDPOINTS: Final[tuple[ApiEndpoint, ...]] = (
    ApiEndpoint(
        "account_info",
        "INFO",
        "JetStream usage and limits of the account.",
        Body.IGNORED,
        response=answer.AccountInfoResponse,
        handler="account.info",
    ),
    ApiEndpoint(
        "stream_create",
        "STREAM.CREATE.$s",
        "Create a stream; repeating the same configuration has no effect.",
        Body.ALWAYS,
        ask.StreamConfigRequest,
        answer.StreamCreateResponse,
        handler="streams.create",
        makes="stream",
    ),
    ApiEndpoint(
        "stream_update",
        "STREAM.UPDATE.$s",
        "Change the configuration of a stream.",
        Body.ALWAYS,
        ask.StreamConfigRequest,
        answer.StreamUpdateResponse,
        handler="streams.update",
    ),
    ApiEndpoint(
        "stream_names",
        "STREAM.NAMES",
        "List stream names, 1024 at a time.",
        Body.OPTIONAL,
        ask.StreamNamesRequest,
        answer.StreamNamesResponse,
        handler="streams.names",
    ),
    ApiEndpoint(
        "stream_list",
        "STREAM.LIST",
        "List streams with their states, 256 at a time.",
        Body.OPTIONAL,
        ask.StreamListRequest,
        answer.StreamListResponse,
        handler="streams.list_",
    ),
    ApiEndpoint(
        "stream_info",
        "STREAM.INFO.$s",
        "Configuration and state of a stream.",
        Body.OPTIONAL,
        ask.StreamInfoRequest,
        answer.StreamInfoResponse,
        handler="streams.info",
    ),
    ApiEndpoint(
        "stream_delete",
        "STREAM.DELETE.$s",
        "Delete a stream with its messages and consumers.",
        response=answer.StreamDeleteResponse,
        handler="streams.delete",
    ),
    ApiEndpoint(
        "stream_purge",
        "STREAM.PURGE.$s",
        "Purge messages of a stream.",
        Body.OPTIONAL,
        ask.StreamPurgeRequest,
        answer.StreamPurgeResponse,
        handler="streams.purge",
    ),
    ApiEndpoint(
        "stream_msg_get",
        "STREAM.MSG.GET.$s",
        "Get one message by sequence, subject or time.",
        Body.REQUIRED,
        ask.MsgGetRequest,
        answer.MsgGetResponse,
        handler="messages.get",
        audit=Audit.IF_REFUSED,
    ),
    ApiEndpoint(
        "stream_msg_delete",
        "STREAM.MSG.DELETE.$s",
        "Delete one message.",
        Body.REQUIRED,
        ask.MsgDeleteRequest,
        answer.MsgDeleteResponse,
        handler="messages.delete",
    ),
    ApiEndpoint(
        "stream_snapshot",
        "STREAM.SNAPSHOT.$s",
        "Send a backup of a stream in chunks.",
        Body.REQUIRED,
        ask.StreamSnapshotRequest,
        answer.StreamSnapshotResponse,
        handler="backups.snapshot",
        finds_stream_first=True,
    ),
    ApiEndpoint(
        "stream_restore",
        "STREAM.RESTORE.$s",
        "Restore a stream from the chunks of a backup.",
        Body.REQUIRED,
        ask.StreamRestoreRequest,
        answer.StreamRestoreResponse,
        handler="backups.restore",
    ),
    ApiEndpoint(
        "stream_peer_remove",
        "STREAM.PEER.REMOVE.$s",
        "Remove a replica from a server of a cluster.",
        Body.IGNORED,
        ask.PeerRequest,
        answer.StreamPeerRemoveResponse,
    ),
    ApiEndpoint(
        "stream_peer_evacuate",
        "STREAM.PEER.EVACUATE.$s",
        "Move a replica away from a server of a cluster.",
        Body.IGNORED,
        ask.PeerRequest,
        answer.StreamPeerEvacuateResponse,
    ),
    ApiEndpoint(
        "stream_cancel_move",
        "STREAM.CANCEL_MOVE.$s",
        "Cancel moving a stream between servers of a cluster.",
        Body.IGNORED,
        response=answer.StreamCancelMoveResponse,
    ),
    ApiEndpoint(
        "stream_leader_stepdown",
        "STREAM.LEADER.STEPDOWN.$s",
        "Elect a new leader for a stream.",
        Body.IGNORED,
        ask.StepdownRequest,
        answer.StreamStepdownResponse,
    ),
    ApiEndpoint(
        "consumer_create_ephemeral",
        "CONSUMER.CREATE.$s",
        "Create a consumer with a generated name.",
        Body.ALWAYS,
        ask.ConsumerCreateRequest,
        answer.ConsumerCreateResponse,
        handler="consumers.create",
        makes="consumer",
    ),
    ApiEndpoint(
        "consumer_create",
        "CONSUMER.CREATE.$s.$c",
        "Create or change a consumer.",
        Body.ALWAYS,
        ask.ConsumerCreateRequest,
        answer.ConsumerCreateResponse,
        handler="consumers.create",
        makes="consumer",
    ),
    ApiEndpoint(
        "consumer_create_filtered",
        "CONSUMER.CREATE.$s.$c.$rest",
        "Create or change a consumer, with its filter in the subject for permissions.",
        Body.ALWAYS,
        ask.ConsumerCreateRequest,
        answer.ConsumerCreateResponse,
        handler="consumers.create",
        makes="consumer",
    ),
    ApiEndpoint(
        "consumer_create_durable",
        "CONSUMER.DURABLE.CREATE.$s.$c",
        "Create or change a durable consumer, as older clients do.",
        Body.ALWAYS,
        ask.ConsumerCreateRequest,
        answer.ConsumerCreateResponse,
        handler="consumers.create",
        makes="consumer",
    ),
    ApiEndpoint(
        "consumer_names",
        "CONSUMER.NAMES.$s",
        "List the names of the consumers of a stream, 1024 at a time.",
        Body.OPTIONAL,
        ask.ConsumersRequest,
        answer.ConsumerNamesResponse,
        handler="consumers.names",
    ),
    ApiEndpoint(
        "consumer_list",
        "CONSUMER.LIST.$s",
        "List the consumers of a stream with their states, 256 at a time.",
        Body.OPTIONAL,
        ask.ConsumersRequest,
        answer.ConsumerListResponse,
        handler="consumers.list_",
    ),
    ApiEndpoint(
        "consumer_info",
        "CONSUMER.INFO.$s.$c",
        "Configuration and state of a consumer.",
        response=answer.ConsumerInfoResponse,
        handler="consumers.info",
    ),
    ApiEndpoint(
        "consumer_delete",
        "CONSUMER.DELETE.$s.$c",
        "Delete a consumer.",
        response=answer.ConsumerDeleteResponse,
        handler="consumers.delete",
    ),
    ApiEndpoint(
        "consumer_pause",
        "CONSUMER.PAUSE.$s.$c",
        "Pause delivery until a time, or resume it.",
        Body.OPTIONAL,
        ask.ConsumerPauseRequest,
        answer.ConsumerPauseResponse,
        handler="consumers.pause",
    ),
    ApiEndpoint(
        "consumer_unpin",
        "CONSUMER.UNPIN.$s.$c",
        "Unpin a priority group, so that another client can take over.",
        Body.LENIENT,
        ask.ConsumerUnpinRequest,
        answer.ConsumerUnpinResponse,
        handler="consumers.unpin",
    ),
    ApiEndpoint(
        "consumer_reset",
        "CONSUMER.RESET.$s.$c",
        "Reset a consumer to a sequence.",
        Body.OWN,
        ask.ConsumerResetRequest,
        answer.ConsumerResetResponse,
        handler="consumers.reset",
        audit=Audit.NEVER,
    ),
    ApiEndpoint(
        "consumer_leader_stepdown",
        "CONSUMER.LEADER.STEPDOWN.$s.$c",
        "Elect a new leader for a consumer.",
        Body.IGNORED,
        ask.StepdownRequest,
        answer.ConsumerStepdownResponse,
    ),
    ApiEndpoint(
        "consumer_next",
        "CONSUMER.MSG.NEXT.$s.$c",
        "Request messages from a pull consumer.",
        Body.OWN,
        ask.NextRequest,
    ),
    ApiEndpoint(
        "direct_get",
        "DIRECT.GET.$s",
        "Get messages in their original form, without JSON.",
        Body.OWN,
        ask.MsgGetRequest,
    ),
    ApiEndpoint(
        "direct_get_last",
        "DIRECT.GET.$s.$rest",
        "Get the last message of a subject in its original form.",
        Body.OWN,
        ask.MsgGetRequest,
    ),
)
ENDPOINT_BY_NAME: Final[Mapping[str, ApiEndpoint]] = {
    endpoint.name: endpoint for endpoint in ENDPOINTS
}
# Their handlers are loaded when somebody asks.
OWN_ENDPOINTS: Final[tuple[ApiEndpoint, ...]] = (
    ApiEndpoint(
        "stream_chain_info",
        "STREAM.CHAIN.INFO.$s",
        "The hash chain of a stream: its head and its last checkpoint.",
        response=ChainInfo,
        handler="chains.info",
        prefix=OWN_PREFIX,
    ),
    ApiEndpoint(
        "stream_chain_checkpoint",
        "STREAM.CHAIN.CHECKPOINT.$s",
        "Sign the head of the hash chain now.",
        response=ChainCheckpoint,
        handler="chains.checkpoint",
        prefix=OWN_PREFIX,
    ),
    ApiEndpoint(
        "stream_chain_proof",
        "STREAM.CHAIN.PROOF.$s",
        "Prove that an entry is in the hash chain, or that one head continues another.",
        Body.REQUIRED,
        ChainProofRequest,
        ChainProof,
        handler="chains.proof",
        prefix=OWN_PREFIX,
    ),
    ApiEndpoint(
        "stream_chain_entries",
        "STREAM.CHAIN.ENTRIES.$s",
        "A page of the entries of the hash chain.",
        Body.OPTIONAL,
        ChainEntriesRequest,
        ChainEntries,
        handler="chains.entries",
        prefix=OWN_PREFIX,
    ),
    ApiEndpoint(
        "stream_truncate",
        "STREAM.TRUNCATE.$s",
        "Remove messages by time, number, subject or header; it can be taken back.",
        Body.ALWAYS,
        StreamTruncateRequest,
        StreamTruncateResponse,
        handler="truncation.truncate",
        prefix=OWN_PREFIX,
    ),
    ApiEndpoint(
        "stream_undo",
        "STREAM.UNDO.$s",
        "Bring back what a truncation has removed.",
        Body.OPTIONAL,
        StreamUndoRequest,
        StreamUndoResponse,
        handler="truncation.undo",
        prefix=OWN_PREFIX,
    ),
    ApiEndpoint(
        "template_put",
        "TEMPLATE.PUT.$s",
        "Create or update a template for streams that a first publish creates.",
        Body.ALWAYS,
        TemplatePutRequest,
        TemplatePutResponse,
        handler="templates.put",
        prefix=OWN_PREFIX,
    ),
    ApiEndpoint(
        "template_delete",
        "TEMPLATE.DELETE.$s",
        "Remove a template; its streams stay.",
        response=TemplatePutResponse,
        handler="templates.delete",
        prefix=OWN_PREFIX,
    ),
    ApiEndpoint(
        "template_list",
        "TEMPLATE.LIST",
        "All templates, and how many streams they have made.",
        response=TemplateListResponse,
        handler="templates.list_",
        prefix=OWN_PREFIX,
    ),
    ApiEndpoint(
        "template_try",
        "TEMPLATE.TRY",
        "What a first publish to a subject would do.",
        Body.REQUIRED,
        TemplateTryRequest,
        TemplateTryResponse,
        handler="templates.try_",
        prefix=OWN_PREFIX,
    ),
)
OWN_ENDPOINT_BY_NAME: Final[Mapping[str, ApiEndpoint]] = {
    endpoint.name: endpoint for endpoint in OWN_ENDPOINTS
}


def parse_subject(subject: str) -> EndpointCall | None:
    """Which endpoint a subject means, None if none has it. Domains are taken off before."""
    table = _BY_START if subject.startswith(PREFIX) else _OWN_BY_START
    prefix = PREFIX if table is _BY_START else OWN_PREFIX
    if not subject.startswith(prefix):
        return None
    tokens = subject.removeprefix(prefix).split(".")
    for pattern, endpoint in table.get(tokens[0], ()):
        if (call := _match(tokens, pattern, endpoint)) is not None:
            return call
    return None


def _match(
    tokens: list[str], pattern: tuple[str, ...], endpoint: ApiEndpoint
) -> EndpointCall | None:
    names: dict[str, str] = {}
    if len(tokens) < len(pattern) or not all(tokens):
        return None
    for index, wanted in enumerate(pattern):
        if wanted == "$rest":
            names[wanted] = ".".join(tokens[index:])
            break
        if wanted.startswith("$"):
            names[wanted] = tokens[index]
        elif wanted != tokens[index]:
            return None
    else:
        if len(tokens) > len(pattern):
            return None
    return EndpointCall(endpoint, names.get("$s", ""), names.get("$c", ""), names.get("$rest", ""))


def _by_start(
    endpoints: tuple[ApiEndpoint, ...],
) -> dict[str, list[tuple[tuple[str, ...], ApiEndpoint]]]:
    table: dict[str, list[tuple[tuple[str, ...], ApiEndpoint]]] = {}
    for endpoint in endpoints:
        pattern = tuple(endpoint.subject.split("."))
        table.setdefault(pattern[0], []).append((pattern, endpoint))
    return table


_BY_START: Final = _by_start(ENDPOINTS)
_OWN_BY_START: Final = _by_start(OWN_ENDPOINTS)
