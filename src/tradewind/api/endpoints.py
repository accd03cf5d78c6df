"""The endpoints of the API: subjects, types, what a body may be, who runs them, a line of help.

Owns the table, and the way from a subject to its row and the names in it. Never runs a request.
Server dispatch, client methods and documentation derive from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

import msgspec

from tradewind.api import request_types as ask
from tradewind.api import responses as answer
from tradewind.api.base import ApiStruct
from tradewind.api.errors import BAD_REQUEST, NOT_EMPTY_REQUEST
from tradewind.api.requests import decode_lenient, decode_request, holds_json, is_empty_request

PREFIX: Final = "$JS.API."


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


class Endpoint(msgspec.Struct, frozen=True):
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
        return PREFIX + ".".join(names.get(token, token) for token in self.subject.split("."))


class EndpointCall(msgspec.Struct, frozen=True):
    """What the subject of a request says. `rest` is the filter or subject behind the names."""

    endpoint: Endpoint
    stream: str = ""
    consumer: str = ""
    rest: str = ""


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        "account_info",
        "INFO",
        "What the account uses and may use.",
        Body.IGNORED,
        response=answer.AccountInfoResponse,
        handler="account.info",
    ),
    Endpoint(
        "stream_create",
        "STREAM.CREATE.$s",
        "Make a stream; the same configuration again changes nothing.",
        Body.ALWAYS,
        ask.StreamConfigRequest,
        answer.StreamCreateResponse,
        handler="streams.create",
        makes="stream",
    ),
    Endpoint(
        "stream_update",
        "STREAM.UPDATE.$s",
        "Change the configuration of a stream.",
        Body.ALWAYS,
        ask.StreamConfigRequest,
        answer.StreamUpdateResponse,
        handler="streams.update",
    ),
    Endpoint(
        "stream_names",
        "STREAM.NAMES",
        "The names of streams, 1024 at a time.",
        Body.OPTIONAL,
        ask.StreamNamesRequest,
        answer.StreamNamesResponse,
        handler="streams.names",
    ),
    Endpoint(
        "stream_list",
        "STREAM.LIST",
        "Streams with their states, 256 at a time.",
        Body.OPTIONAL,
        ask.StreamListRequest,
        answer.StreamListResponse,
        handler="streams.list_",
    ),
    Endpoint(
        "stream_info",
        "STREAM.INFO.$s",
        "Configuration and state of a stream.",
        Body.OPTIONAL,
        ask.StreamInfoRequest,
        answer.StreamInfoResponse,
        handler="streams.info",
    ),
    Endpoint(
        "stream_delete",
        "STREAM.DELETE.$s",
        "Remove a stream with its messages and consumers.",
        response=answer.StreamDeleteResponse,
        handler="streams.delete",
    ),
    Endpoint(
        "stream_purge",
        "STREAM.PURGE.$s",
        "Remove messages of a stream.",
        Body.OPTIONAL,
        ask.StreamPurgeRequest,
        answer.StreamPurgeResponse,
        handler="streams.purge",
    ),
    Endpoint(
        "stream_msg_get",
        "STREAM.MSG.GET.$s",
        "One message by sequence, subject or time.",
        Body.REQUIRED,
        ask.MsgGetRequest,
        answer.MsgGetResponse,
        handler="messages.get",
        audit=Audit.IF_REFUSED,
    ),
    Endpoint(
        "stream_msg_delete",
        "STREAM.MSG.DELETE.$s",
        "Remove one message.",
        Body.REQUIRED,
        ask.MsgDeleteRequest,
        answer.MsgDeleteResponse,
        handler="messages.delete",
    ),
    Endpoint(
        "stream_snapshot",
        "STREAM.SNAPSHOT.$s",
        "Send a backup of a stream in chunks.",
        Body.REQUIRED,
        ask.StreamSnapshotRequest,
        answer.StreamSnapshotResponse,
        handler="backups.snapshot",
        finds_stream_first=True,
    ),
    Endpoint(
        "stream_restore",
        "STREAM.RESTORE.$s",
        "Make a stream from the chunks of a backup.",
        Body.REQUIRED,
        ask.StreamRestoreRequest,
        answer.StreamRestoreResponse,
        handler="backups.restore",
    ),
    Endpoint(
        "stream_peer_remove",
        "STREAM.PEER.REMOVE.$s",
        "Take a copy from a server of a cluster.",
        Body.IGNORED,
        ask.PeerRequest,
        answer.StreamPeerRemoveResponse,
    ),
    Endpoint(
        "stream_peer_evacuate",
        "STREAM.PEER.EVACUATE.$s",
        "Move a copy away from a server of a cluster.",
        Body.IGNORED,
        ask.PeerRequest,
        answer.StreamPeerEvacuateResponse,
    ),
    Endpoint(
        "stream_cancel_move",
        "STREAM.CANCEL_MOVE.$s",
        "Stop moving a stream between servers of a cluster.",
        Body.IGNORED,
        response=answer.StreamCancelMoveResponse,
    ),
    Endpoint(
        "stream_leader_stepdown",
        "STREAM.LEADER.STEPDOWN.$s",
        "Let another server of a cluster lead a stream.",
        Body.IGNORED,
        ask.StepdownRequest,
        answer.StreamStepdownResponse,
    ),
    Endpoint(
        "consumer_create_ephemeral",
        "CONSUMER.CREATE.$s",
        "Make a consumer with a name that the server chooses.",
        Body.ALWAYS,
        ask.ConsumerCreateRequest,
        answer.ConsumerCreateResponse,
        handler="consumers.create",
        makes="consumer",
    ),
    Endpoint(
        "consumer_create",
        "CONSUMER.CREATE.$s.$c",
        "Make or change a consumer.",
        Body.ALWAYS,
        ask.ConsumerCreateRequest,
        answer.ConsumerCreateResponse,
        handler="consumers.create",
        makes="consumer",
    ),
    Endpoint(
        "consumer_create_filtered",
        "CONSUMER.CREATE.$s.$c.$rest",
        "Make or change a consumer; permissions can tell the filter.",
        Body.ALWAYS,
        ask.ConsumerCreateRequest,
        answer.ConsumerCreateResponse,
        handler="consumers.create",
        makes="consumer",
    ),
    Endpoint(
        "consumer_create_durable",
        "CONSUMER.DURABLE.CREATE.$s.$c",
        "Make or change a durable consumer, as older clients do.",
        Body.ALWAYS,
        ask.ConsumerCreateRequest,
        answer.ConsumerCreateResponse,
        handler="consumers.create",
        makes="consumer",
    ),
    Endpoint(
        "consumer_names",
        "CONSUMER.NAMES.$s",
        "The names of the consumers of a stream, 1024 at a time.",
        Body.OPTIONAL,
        ask.ConsumersRequest,
        answer.ConsumerNamesResponse,
        handler="consumers.names",
    ),
    Endpoint(
        "consumer_list",
        "CONSUMER.LIST.$s",
        "Consumers of a stream with their states, 256 at a time.",
        Body.OPTIONAL,
        ask.ConsumersRequest,
        answer.ConsumerListResponse,
        handler="consumers.list_",
    ),
    Endpoint(
        "consumer_info",
        "CONSUMER.INFO.$s.$c",
        "Configuration and state of a consumer.",
        response=answer.ConsumerInfoResponse,
        handler="consumers.info",
    ),
    Endpoint(
        "consumer_delete",
        "CONSUMER.DELETE.$s.$c",
        "Remove a consumer.",
        response=answer.ConsumerDeleteResponse,
        handler="consumers.delete",
    ),
    Endpoint(
        "consumer_pause",
        "CONSUMER.PAUSE.$s.$c",
        "Stop delivery until a time, or resume it.",
        Body.OPTIONAL,
        ask.ConsumerPauseRequest,
        answer.ConsumerPauseResponse,
        handler="consumers.pause",
    ),
    Endpoint(
        "consumer_unpin",
        "CONSUMER.UNPIN.$s.$c",
        "Let another client take over a priority group.",
        Body.LENIENT,
        ask.ConsumerUnpinRequest,
        answer.ConsumerUnpinResponse,
        handler="consumers.unpin",
    ),
    Endpoint(
        "consumer_reset",
        "CONSUMER.RESET.$s.$c",
        "Start a consumer again from a sequence.",
        Body.OWN,
        ask.ConsumerResetRequest,
        answer.ConsumerResetResponse,
        handler="consumers.reset",
        audit=Audit.NEVER,
    ),
    Endpoint(
        "consumer_leader_stepdown",
        "CONSUMER.LEADER.STEPDOWN.$s.$c",
        "Let another server of a cluster lead a consumer.",
        Body.IGNORED,
        ask.StepdownRequest,
        answer.ConsumerStepdownResponse,
    ),
    Endpoint(
        "consumer_next",
        "CONSUMER.MSG.NEXT.$s.$c",
        "Ask a pull consumer for messages.",
        Body.OWN,
        ask.NextRequest,
    ),
    Endpoint(
        "direct_get",
        "DIRECT.GET.$s",
        "Messages as they are, without JSON around them.",
        Body.OWN,
        ask.MsgGetRequest,
    ),
    Endpoint(
        "direct_get_last",
        "DIRECT.GET.$s.$rest",
        "The last message of a subject as it is.",
        Body.OWN,
        ask.MsgGetRequest,
    ),
)
ENDPOINT_BY_NAME: Final[Mapping[str, Endpoint]] = {
    endpoint.name: endpoint for endpoint in ENDPOINTS
}


def parse_subject(subject: str) -> EndpointCall | None:
    """Which endpoint a subject means, None if none has it. Domains are taken off before."""
    if not subject.startswith(PREFIX):
        return None
    tokens = subject.removeprefix(PREFIX).split(".")
    for pattern, endpoint in _BY_START.get(tokens[0], ()):
        if (call := _match(tokens, pattern, endpoint)) is not None:
            return call
    return None


def _match(tokens: list[str], pattern: tuple[str, ...], endpoint: Endpoint) -> EndpointCall | None:
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


def _by_start() -> dict[str, list[tuple[tuple[str, ...], Endpoint]]]:
    table: dict[str, list[tuple[tuple[str, ...], Endpoint]]] = {}
    for endpoint in ENDPOINTS:
        pattern = tuple(endpoint.subject.split("."))
        table.setdefault(pattern[0], []).append((pattern, endpoint))
    return table


_BY_START: Final = _by_start()
