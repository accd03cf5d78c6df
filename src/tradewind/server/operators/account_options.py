"""Translates the claims of an account into the settings of a configuration file.

Owns the translation, so that limits, mappings, exports, imports and JetStream of an account work
the same in both cases. It never checks claims: they were checked on arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tradewind import nkeys
from tradewind.durations import SECOND_NS
from tradewind.jwt import AccountClaims, JwtError, decode_as
from tradewind.jwt.claims import (
    EVERYBODY,
    ActivationClaims,
    Export,
    Import,
    JetStreamLimits,
    TraceFields,
)
from tradewind.options import AccountOptions, TraceRule
from tradewind.route import sharing
from tradewind.route.remapping import Destination, MappingRule
from tradewind.server.auth.restrictions import permission_rules
from tradewind.subjects import is_subset

FindClaims = Callable[[str], AccountClaims | None]
# This server runs alone, so this is the tier of every stream.
_TIER = "R1"
_RESPONSES = {"Stream": sharing.STREAMED, "Chunked": sharing.CHUNKED}


def account_options(claims: AccountClaims, find: FindClaims, now_ns: int) -> AccountOptions:
    """The options of an account; `find` returns the claims of accounts that it imports from."""
    fields = claims.nats
    jetstream = jetstream_limits(claims)
    return AccountOptions(
        claims.sub,
        default_permissions=permission_rules(fields.default_permissions),
        max_connections=fields.limits.conn,
        nkey=claims.sub,
        mappings=tuple(
            MappingRule(
                source,
                tuple(Destination(one.subject, one.weight or 100, one.cluster) for one in places),
            )
            for source, places in sorted(fields.mappings.items())
        ),
        exports=tuple(_export(export) for export in fields.exports),
        imports=tuple(_import(entry, claims, find, now_ns) for entry in fields.imports),
        trace_rule=_trace_rule(fields.trace),
        jetstream=jetstream is not None,
        jetstream_limits=jetstream or {},
    )


def _trace_rule(trace: TraceFields | None) -> TraceRule | None:
    """The trace rule of an account; a sampling of 0 means all messages."""
    return TraceRule(trace.dest, trace.sampling or 100) if trace is not None else None


def jetstream_limits(claims: AccountClaims) -> dict[str, int] | None:
    """The JetStream limits of an account; None if it may store nothing."""
    if not claims.has_jetstream():
        return None
    limits: JetStreamLimits | None = claims.nats.limits
    if claims.nats.limits.tiered_limits:
        limits = claims.nats.limits.tiered_limits.get(_TIER)
    if limits is None:
        return None
    return {
        "is_tiered": int(bool(claims.nats.limits.tiered_limits)),
        "max_memory": limits.mem_storage,
        "max_file": limits.disk_storage,
        "max_streams": limits.streams,
        "max_consumers": limits.consumer,
        "max_ack_pending": limits.max_ack_pending or -1,
        "memory_max_stream_bytes": limits.mem_max_stream_bytes or -1,
        "store_max_stream_bytes": limits.disk_max_stream_bytes or -1,
        "max_bytes_required": int(limits.max_bytes_required),
    }


def _export(export: Export) -> sharing.Export:
    if export.type == "stream":
        return sharing.StreamExport(
            export.subject,
            account_token_position=export.account_token_position,
            token_required=export.token_req,
        )
    latency = None
    if export.service_latency is not None:
        sampling = export.service_latency.sampling
        latency = sharing.ServiceLatency(
            export.service_latency.results,
            sharing.SAMPLING_BY_HEADERS if isinstance(sampling, str) else sampling,
        )
    return sharing.ServiceExport(
        export.subject,
        account_token_position=export.account_token_position,
        token_required=export.token_req,
        response_type=_RESPONSES.get(export.response_type, sharing.SINGLETON),
        response_threshold_ns=export.response_threshold or sharing.RESPONSE_THRESHOLD_DEFAULT_NS,
        latency=latency,
        allow_trace=export.allow_trace,
    )


def _import(
    entry: Import, importer: AccountClaims, find: FindClaims, now_ns: int
) -> sharing.Import:
    activated = is_activated(entry, importer, find(entry.account), now_ns)
    remote = remote_subject(entry)
    if entry.type == "stream":
        return sharing.StreamImport(
            entry.account,
            entry.subject,
            prefix=entry.to,
            to=entry.local_subject,
            allow_trace=entry.allow_trace,
            is_activated=activated,
        )
    local = entry.subject if remote != entry.subject else entry.local_subject
    return sharing.ServiceImport(
        entry.account, remote, to=local, share=entry.share, is_activated=activated
    )


def remote_subject(entry: Import) -> str:
    """The subject that the exporter sees; the old form of services has the local subject first."""
    is_old = entry.type == "service" and entry.to and not entry.local_subject
    return entry.to if is_old else entry.subject


def is_activated(
    entry: Import, importer: AccountClaims, exporter: AccountClaims | None, now_ns: int
) -> bool:
    """Whether the exporter has permitted this import by a token that is valid now."""
    if not entry.token or exporter is None:
        return False
    try:
        token = decode_as(ActivationClaims, entry.token)
    except JwtError:
        return False
    issuer_account = token.nats.issuer_account or token.iss
    is_signed = token.iss == exporter.sub or token.iss in exporter.scopes()
    if issuer_account != entry.account or not is_signed or token.sub != importer.sub:
        return False
    if 0 < token.exp * SECOND_NS <= now_ns or token.nbf * SECOND_NS > now_ns:
        return False
    return not any(
        _is_revoked(export, importer.sub, token.iat)
        for export in exporter.nats.exports
        if export.type == entry.type and is_subset(remote_subject(entry), export.subject)
    )


def next_change_ns(claims: AccountClaims, now_ns: int) -> int:
    """The earliest time at which the token of an import becomes valid or expires; 0: never."""
    times = []
    for entry in claims.nats.imports:
        if entry.token:
            with suppress(JwtError):
                token = decode_as(ActivationClaims, entry.token)
                times += [token.exp * SECOND_NS, token.nbf * SECOND_NS]
    return min((time for time in times if time > now_ns), default=0)


def _is_revoked(export: Export, importer: str, issued_at: int) -> bool:
    times = (export.revocations.get(importer), export.revocations.get(EVERYBODY))
    return any(time is not None and time >= issued_at for time in times)


def exporters(claims: AccountClaims) -> set[str]:
    """The accounts that an account imports from."""
    return {
        entry.account
        for entry in claims.nats.imports
        if entry.account != claims.sub and nkeys.is_public(entry.account, nkeys.ACCOUNT)
    }
