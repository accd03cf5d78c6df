"""The endpoints of the API: subjects, types, bodies, handlers, and a line of help.

Owns the one table of them, and finding the row and the names for a subject. It never executes a
request. Derived from the table are:

- the subscriptions of the server, which handler runs, whether it is audited, what it may run beside
  (`jetstream.dispatch`, `jetstream.handlers`), and the forms of the previews (`jetstream.legacy`);
- the subjects that mean JetStream where others decide about them: which a domain maps and which do
  not cross leaf connections (`broker`), which an account may have from another one, and which
  permissions the parts of a transaction need;
- subjects and repeatable requests of the client, and the names of `tradewind schema`.

Roles and users have no notion of endpoints: their permissions are subjects. The documentation has a
table of its own (docs/reference/JETSTREAM.md), which a test keeps equal to this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tradewind.api import request_types as ask
from tradewind.api import responses as answer
from tradewind.api.chain import (
    ChainCheckpoint,
    ChainEntries,
    ChainEntriesRequest,
    ChainInfo,
    ChainProof,
    ChainProofRequest,
)
from tradewind.api.endpoint_row import (
    OWN_PREFIX,
    PREFIX,
    ApiEndpoint,
    Audit,
    Body,
    Concurrency,
    EndpointCall,
    LegacyForm,
    LegacyWords,
)
from tradewind.api.template_types import (
    TemplateListResponse,
    TemplatePutRequest,
    TemplatePutResponse,
    TemplateTryRequest,
    TemplateTryResponse,
)
from tradewind.api.transaction_types import TransactionRequest, TransactionResponse
from tradewind.api.truncation_types import (
    StreamTruncateRequest,
    StreamTruncateResponse,
    StreamUndoRequest,
    StreamUndoResponse,
)


def _legacy_set(subject: str, function: str = "") -> LegacyForm:
    return _legacy_form(subject, LegacyWords.SETS, function)


def _legacy_stream(subject: str, function: str = "") -> LegacyForm:
    return _legacy_form(subject, LegacyWords.STREAMS, function)


def _legacy_form(subject: str, words: LegacyWords, function: str) -> LegacyForm:
    handler = f"tradewind.jetstream.legacy.legacy_requests:{function}" if function else ""
    return LegacyForm(subject, words, handler)


ENDPOINTS: Final[tuple[ApiEndpoint, ...]] = (
    ApiEndpoint(
        "account_info",
        "INFO",
        "JetStream usage and limits of the account.",
        Body.IGNORED,
        response=answer.AccountInfoResponse,
        handler="tradewind.jetstream.handlers.account_handlers:info",
        is_read=True,
        legacy=(
            _legacy_stream("ENABLED", "enabled"),
            _legacy_stream("INFO", "account_info"),
        ),
    ),
    ApiEndpoint(
        "stream_create",
        "STREAM.CREATE.$s",
        "Create a stream; repeating the same configuration has no effect.",
        Body.ALWAYS,
        ask.StreamConfigRequest,
        answer.StreamCreateResponse,
        handler="tradewind.jetstream.handlers.stream_handlers:create",
        beside=Concurrency.NEW_STREAMS,
        legacy=(
            _legacy_set("MSGSET.CREATE", "create_stream"),
            _legacy_stream("STREAM.$s.CREATE", "create_stream"),
        ),
    ),
    ApiEndpoint(
        "stream_update",
        "STREAM.UPDATE.$s",
        "Change the configuration of a stream.",
        Body.ALWAYS,
        ask.StreamConfigRequest,
        answer.StreamUpdateResponse,
        handler="tradewind.jetstream.handlers.stream_handlers:update",
        beside=Concurrency.CHANGED_STREAMS,
        legacy=(_legacy_stream("STREAM.$s.UPDATE", "update_stream"),),
    ),
    ApiEndpoint(
        "stream_names",
        "STREAM.NAMES",
        "List stream names, 1024 at a time.",
        Body.OPTIONAL,
        ask.StreamNamesRequest,
        answer.StreamNamesResponse,
        handler="tradewind.jetstream.handlers.stream_handlers:names",
        is_read=True,
        legacy=(
            _legacy_set("MSGSETS", "list_streams"),
            _legacy_stream("STREAM.LIST", "list_streams"),
        ),
    ),
    ApiEndpoint(
        "stream_list",
        "STREAM.LIST",
        "List streams with their states, 256 at a time.",
        Body.OPTIONAL,
        ask.StreamListRequest,
        answer.StreamListResponse,
        handler="tradewind.jetstream.handlers.stream_handlers:list_",
        is_read=True,
    ),
    ApiEndpoint(
        "stream_info",
        "STREAM.INFO.$s",
        "Configuration and state of a stream.",
        Body.OPTIONAL,
        ask.StreamInfoRequest,
        answer.StreamInfoResponse,
        handler="tradewind.jetstream.handlers.stream_handlers:info",
        is_read=True,
        legacy=(
            _legacy_set("MSGSET.INFO", "set_info"),
            _legacy_stream("STREAM.$s.INFO", "stream_info"),
        ),
    ),
    ApiEndpoint(
        "stream_delete",
        "STREAM.DELETE.$s",
        "Delete a stream with its messages and consumers.",
        response=answer.StreamDeleteResponse,
        handler="tradewind.jetstream.handlers.stream_handlers:delete",
        beside=Concurrency.OLD_STREAMS,
        legacy=(
            _legacy_set("MSGSET.DELETE", "delete_stream"),
            _legacy_stream("STREAM.$s.DELETE", "delete_stream"),
        ),
    ),
    ApiEndpoint(
        "stream_purge",
        "STREAM.PURGE.$s",
        "Purge messages of a stream.",
        Body.OPTIONAL,
        ask.StreamPurgeRequest,
        answer.StreamPurgeResponse,
        handler="tradewind.jetstream.handlers.stream_handlers:purge",
        legacy=(
            _legacy_set("MSGSET.PURGE", "purge"),
            _legacy_stream("STREAM.$s.PURGE", "purge"),
        ),
    ),
    ApiEndpoint(
        "stream_msg_get",
        "STREAM.MSG.GET.$s",
        "Get one message by sequence, subject or time.",
        Body.REQUIRED,
        ask.MsgGetRequest,
        answer.MsgGetResponse,
        handler="tradewind.jetstream.handlers.message_handlers:get",
        audit=Audit.IF_REFUSED,
        is_read=True,
        legacy=(
            _legacy_set("BYSEQ.$s", "set_message"),
            _legacy_stream("STREAM.$s.MSG.BYSEQ", "stream_message"),
        ),
    ),
    ApiEndpoint(
        "stream_msg_delete",
        "STREAM.MSG.DELETE.$s",
        "Delete one message.",
        Body.REQUIRED,
        ask.MsgDeleteRequest,
        answer.MsgDeleteResponse,
        handler="tradewind.jetstream.handlers.message_handlers:delete",
        legacy=(
            _legacy_set("MSGSET.MSG.DELETE", "delete_message"),
            _legacy_stream("STREAM.$s.MSG.DELETE", "delete_message"),
        ),
    ),
    ApiEndpoint(
        "stream_snapshot",
        "STREAM.SNAPSHOT.$s",
        "Send a backup of a stream in chunks.",
        Body.REQUIRED,
        ask.StreamSnapshotRequest,
        answer.StreamSnapshotResponse,
        handler="tradewind.jetstream.handlers.backup_handlers:snapshot",
        finds_stream_first=True,
    ),
    ApiEndpoint(
        "stream_restore",
        "STREAM.RESTORE.$s",
        "Restore a stream from the chunks of a backup.",
        Body.REQUIRED,
        ask.StreamRestoreRequest,
        answer.StreamRestoreResponse,
        handler="tradewind.jetstream.handlers.backup_handlers:restore",
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
        handler="tradewind.jetstream.handlers.consumer_handlers:create",
        beside=Concurrency.NEW_CONSUMERS,
        reads_body_first=True,
        legacy=(_legacy_stream("STREAM.$s.EPHEMERAL.CONSUMER.CREATE", "create_ephemeral"),),
    ),
    ApiEndpoint(
        "consumer_create",
        "CONSUMER.CREATE.$s.$c",
        "Create or change a consumer.",
        Body.ALWAYS,
        ask.ConsumerCreateRequest,
        answer.ConsumerCreateResponse,
        handler="tradewind.jetstream.handlers.consumer_handlers:create",
        beside=Concurrency.NEW_CONSUMERS,
        reads_body_first=True,
    ),
    ApiEndpoint(
        "consumer_create_filtered",
        "CONSUMER.CREATE.$s.$c.$rest",
        "Create or change a consumer, with its filter in the subject for permissions.",
        Body.ALWAYS,
        ask.ConsumerCreateRequest,
        answer.ConsumerCreateResponse,
        handler="tradewind.jetstream.handlers.consumer_handlers:create",
        beside=Concurrency.NEW_CONSUMERS,
        reads_body_first=True,
    ),
    ApiEndpoint(
        "consumer_create_durable",
        "CONSUMER.DURABLE.CREATE.$s.$c",
        "Create or change a durable consumer, as older clients do.",
        Body.ALWAYS,
        ask.ConsumerCreateRequest,
        answer.ConsumerCreateResponse,
        handler="tradewind.jetstream.handlers.consumer_handlers:create",
        beside=Concurrency.NEW_CONSUMERS,
        reads_body_first=True,
        legacy=(
            _legacy_set("OBSERVABLE.CREATE", "create_observable"),
            _legacy_stream("STREAM.$s.CONSUMER.$c.CREATE", "create_consumer"),
        ),
    ),
    ApiEndpoint(
        "consumer_names",
        "CONSUMER.NAMES.$s",
        "List the names of the consumers of a stream, 1024 at a time.",
        Body.OPTIONAL,
        ask.ConsumersRequest,
        answer.ConsumerNamesResponse,
        handler="tradewind.jetstream.handlers.consumer_handlers:names",
        is_read=True,
        legacy=(
            _legacy_set("OBSERVABLES", "list_observables"),
            _legacy_stream("STREAM.$s.CONSUMERS", "list_consumers"),
        ),
    ),
    ApiEndpoint(
        "consumer_list",
        "CONSUMER.LIST.$s",
        "List the consumers of a stream with their states, 256 at a time.",
        Body.OPTIONAL,
        ask.ConsumersRequest,
        answer.ConsumerListResponse,
        handler="tradewind.jetstream.handlers.consumer_handlers:list_",
        is_read=True,
    ),
    ApiEndpoint(
        "consumer_info",
        "CONSUMER.INFO.$s.$c",
        "Configuration and state of a consumer.",
        response=answer.ConsumerInfoResponse,
        handler="tradewind.jetstream.handlers.consumer_handlers:info",
        reads_body_first=True,
        is_read=True,
        legacy=(
            _legacy_set("OBSERVABLE.INFO", "observable_info"),
            _legacy_stream("STREAM.$s.CONSUMER.$c.INFO", "consumer_info"),
        ),
    ),
    ApiEndpoint(
        "consumer_delete",
        "CONSUMER.DELETE.$s.$c",
        "Delete a consumer.",
        response=answer.ConsumerDeleteResponse,
        handler="tradewind.jetstream.handlers.consumer_handlers:delete",
        beside=Concurrency.OLD_CONSUMERS,
        legacy=(
            _legacy_set("OBSERVABLE.DELETE", "delete_observable"),
            _legacy_stream("STREAM.$s.CONSUMER.$c.DELETE", "delete_consumer"),
        ),
    ),
    ApiEndpoint(
        "consumer_pause",
        "CONSUMER.PAUSE.$s.$c",
        "Pause delivery until a time, or resume it.",
        Body.OPTIONAL,
        ask.ConsumerPauseRequest,
        answer.ConsumerPauseResponse,
        handler="tradewind.jetstream.handlers.consumer_handlers:pause",
        reads_body_first=True,
    ),
    ApiEndpoint(
        "consumer_unpin",
        "CONSUMER.UNPIN.$s.$c",
        "Unpin a priority group, so that another client can take over.",
        Body.LENIENT,
        ask.ConsumerUnpinRequest,
        answer.ConsumerUnpinResponse,
        handler="tradewind.jetstream.handlers.consumer_handlers:unpin",
    ),
    ApiEndpoint(
        "consumer_reset",
        "CONSUMER.RESET.$s.$c",
        "Reset a consumer to a sequence.",
        Body.OWN,
        ask.ConsumerResetRequest,
        answer.ConsumerResetResponse,
        handler="tradewind.jetstream.handlers.consumer_handlers:reset",
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
        legacy=(
            _legacy_set("RN.$s.$c"),
            _legacy_stream("STREAM.$s.CONSUMER.$c.NEXT"),
        ),
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
    # ---------------------------------------------------------------- the system account
    ApiEndpoint(
        "account_purge",
        "ACCOUNT.PURGE.$rest",
        "Remove all streams of an account.",
        Body.IGNORED,
        is_system=True,
    ),
    ApiEndpoint(
        "account_streams",
        "ACCOUNT.STREAM.$rest",
        "Move streams of an account between servers of a cluster.",
        Body.IGNORED,
        is_system=True,
    ),
    ApiEndpoint(
        "meta",
        "META.$rest",
        "Elect a new leader of a cluster.",
        Body.IGNORED,
        is_system=True,
    ),
    ApiEndpoint(
        "server",
        "SERVER.$rest",
        "Remove a server from a cluster.",
        Body.IGNORED,
        is_system=True,
    ),
    # ---------------------------------------------------------------- what only this server has
    ApiEndpoint(
        "transaction",
        "COMMIT",
        "Publish, acknowledge and delete messages together, or not at all.",
        Body.OWN,
        TransactionRequest,
        TransactionResponse,
        handler="tradewind.jetstream.transactions.transaction_requests:serve_transaction",
        audit=Audit.NEVER,
        beside=Concurrency.ALL,
        prefix=OWN_PREFIX,
        needs=(),
        needs_by_body=("stream_msg_delete", "consumer_reset"),
    ),
    ApiEndpoint(
        "stream_chain_info",
        "STREAM.CHAIN.INFO.$s",
        "The hash chain of a stream: its head and its last checkpoint.",
        response=ChainInfo,
        handler="tradewind.jetstream.handlers.chain_handlers:info",
        prefix=OWN_PREFIX,
        needs=(),
        is_read=True,
    ),
    ApiEndpoint(
        "stream_chain_checkpoint",
        "STREAM.CHAIN.CHECKPOINT.$s",
        "Sign the head of the hash chain now.",
        response=ChainCheckpoint,
        handler="tradewind.jetstream.handlers.chain_handlers:checkpoint",
        prefix=OWN_PREFIX,
        needs=(),
    ),
    ApiEndpoint(
        "stream_chain_proof",
        "STREAM.CHAIN.PROOF.$s",
        "Prove that an entry is in the hash chain, or that one head continues another.",
        Body.REQUIRED,
        ChainProofRequest,
        ChainProof,
        handler="tradewind.jetstream.handlers.chain_handlers:proof",
        prefix=OWN_PREFIX,
        needs=(),
        is_read=True,
    ),
    ApiEndpoint(
        "stream_chain_entries",
        "STREAM.CHAIN.ENTRIES.$s",
        "A page of the entries of the hash chain.",
        Body.OPTIONAL,
        ChainEntriesRequest,
        ChainEntries,
        handler="tradewind.jetstream.handlers.chain_handlers:entries",
        prefix=OWN_PREFIX,
        needs=(),
        is_read=True,
    ),
    ApiEndpoint(
        "stream_truncate",
        "STREAM.TRUNCATE.$s",
        "Remove messages by time, number, subject or header; it can be taken back.",
        Body.ALWAYS,
        StreamTruncateRequest,
        StreamTruncateResponse,
        handler="tradewind.jetstream.handlers.truncation_handlers:truncate",
        prefix=OWN_PREFIX,
        needs=("stream_purge",),
    ),
    ApiEndpoint(
        "stream_undo",
        "STREAM.UNDO.$s",
        "Bring back what a truncation has removed.",
        Body.OPTIONAL,
        StreamUndoRequest,
        StreamUndoResponse,
        handler="tradewind.jetstream.handlers.truncation_handlers:undo",
        prefix=OWN_PREFIX,
        needs=("stream_restore", "stream_update"),
    ),
    ApiEndpoint(
        "backup_cut",
        "BACKUP.CUT",
        "Send the state of all streams and consumers of the account in one moment.",
        Body.REQUIRED,
        ask.BackupCutRequest,
        answer.BackupCutResponse,
        handler="tradewind.jetstream.handlers.account_backup_handlers:cut",
        prefix=OWN_PREFIX,
        needs=(),
        needs_by_body=("stream_snapshot",),
    ),
    ApiEndpoint(
        "backup_read",
        "BACKUP.READ.$s",
        "Send the messages of a stream from a sequence on, in chunks.",
        Body.REQUIRED,
        ask.BackupReadRequest,
        answer.StreamSnapshotResponse,
        handler="tradewind.jetstream.handlers.account_backup_handlers:read",
        prefix=OWN_PREFIX,
        needs=("stream_snapshot",),
    ),
    ApiEndpoint(
        "template_put",
        "TEMPLATE.PUT.$s",
        "Create or update a template for streams that a first publish creates.",
        Body.ALWAYS,
        TemplatePutRequest,
        TemplatePutResponse,
        handler="tradewind.jetstream.handlers.template_handlers:put",
        prefix=OWN_PREFIX,
        needs=(),
        needs_by_body=("stream_create", "stream_delete"),
    ),
    ApiEndpoint(
        "template_delete",
        "TEMPLATE.DELETE.$s",
        "Remove a template; its streams stay.",
        response=TemplatePutResponse,
        handler="tradewind.jetstream.handlers.template_handlers:delete",
        prefix=OWN_PREFIX,
        needs=(),
    ),
    ApiEndpoint(
        "template_list",
        "TEMPLATE.LIST",
        "All templates, and how many streams they have made.",
        response=TemplateListResponse,
        handler="tradewind.jetstream.handlers.template_handlers:list_",
        prefix=OWN_PREFIX,
        needs=(),
    ),
    ApiEndpoint(
        "template_try",
        "TEMPLATE.TRY",
        "What a first publish to a subject would do.",
        Body.REQUIRED,
        TemplateTryRequest,
        TemplateTryResponse,
        handler="tradewind.jetstream.handlers.template_handlers:try_",
        prefix=OWN_PREFIX,
        needs=(),
    ),
    # ---------------------------------------------------------------- what only the previews had
    ApiEndpoint(
        "preview_templates",
        "",
        "Templates of streams, of which there are none any more.",
        legacy=(
            _legacy_stream("TEMPLATE.LIST", "list_templates"),
            _legacy_stream("TEMPLATE.*.CREATE", "create_template"),
            _legacy_stream("TEMPLATE.*.INFO", "missing_template"),
            _legacy_stream("TEMPLATE.*.DELETE", "missing_template"),
        ),
    ),
)
ENDPOINT_BY_NAME: Final[Mapping[str, ApiEndpoint]] = {
    endpoint.name: endpoint for endpoint in ENDPOINTS
}
# The API that nats-server has too, as far as an account may use it.
NATS_ENDPOINTS: Final = tuple(
    each for each in ENDPOINTS if each.prefix == PREFIX and each.subject and not each.is_system
)
API_SUBJECTS: Final = tuple(dict.fromkeys(f"{endpoint.prefix}>" for endpoint in ENDPOINTS))


def heard_subjects(prefix: str) -> tuple[str, ...]:
    """The subjects that the server subscribes to below a prefix to receive all dispatched requests.

    None of them matches the subscription of a stream or consumer, so that a request for a missing
    one has no responders.
    """
    rows = [each for each in ENDPOINTS if each.prefix == prefix and each.subject]
    elsewhere = {each.subject.partition(".")[0] for each in rows if not each.is_dispatched}
    heard: dict[str, None] = {}
    for endpoint in rows:
        if endpoint.is_dispatched:
            tokens = endpoint.subject.split(".")
            size = 2 if tokens[0] in elsewhere else 1
            rest = [">"] if len(tokens) > size else []
            heard[".".join(tokens[:size] + rest)] = None
    return tuple(prefix + subject for subject in heard)


def subjects_by_word(prefix: str) -> tuple[str, ...]:
    """The subjects that cover everything below a prefix: one for each first word."""
    rows = [each.subject for each in ENDPOINTS if each.prefix == prefix and each.subject]
    words = {subject.partition(".")[0]: "." in subject for subject in rows}
    return tuple(f"{word}.>" if has_more else word for word, has_more in words.items())


def parse_subject(subject: str, *, is_system: bool = False) -> EndpointCall | None:
    """The endpoint of a subject, None if there is none. The domain must have been removed.

    `is_system`: the request is from the system account, which has endpoints of its own.
    """
    prefix = PREFIX if subject.startswith(PREFIX) else OWN_PREFIX
    if not subject.startswith(prefix):
        return None
    table = _SYSTEM_BY_START if is_system else _BY_START[prefix]
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


_Rows = dict[str, list[tuple[tuple[str, ...], ApiEndpoint]]]


def _by_start(prefix: str, *, is_system: bool) -> _Rows:
    table: _Rows = {}
    for endpoint in ENDPOINTS:
        if endpoint.prefix == prefix and endpoint.subject and endpoint.is_system == is_system:
            pattern = tuple(endpoint.subject.split("."))
            table.setdefault(pattern[0], []).append((pattern, endpoint))
    return table


_BY_START: Final = {prefix: _by_start(prefix, is_system=False) for prefix in (PREFIX, OWN_PREFIX)}
_SYSTEM_BY_START: Final = _by_start(PREFIX, is_system=True)
