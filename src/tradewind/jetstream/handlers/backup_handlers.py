"""API requests to back up and restore a stream.

Owns the checks of both requests. The transfer after the response is in `snapshots` and `restores`.
"""

from __future__ import annotations

import msgspec

from tradewind.api import errors
from tradewind.api.limits import check_resources
from tradewind.api.request_types import (
    StreamRestoreRequest,
    StreamSnapshotRequest,
)
from tradewind.api.responses import StreamRestoreResponse, StreamSnapshotResponse
from tradewind.api.stream_rules import check_stream_config
from tradewind.jetstream.api_request import ApiRequest, DurableAnswer
from tradewind.jetstream.snapshots import StreamArchive
from tradewind.jetstream.stream_catalog import check_schemas, reserved
from tradewind.subjects import is_valid_literal


def snapshot(request: ApiRequest) -> DurableAnswer:
    """STREAM.SNAPSHOT."""
    content: StreamSnapshotRequest = request.content
    hosted = request.hosted()
    if not is_valid_literal(content.deliver_subject):
        raise errors.SNAPSHOT_DELIVER_SUBJECT_INVALID()
    state = hosted.stream.state(hosted.shown_count)
    consumers = [] if content.no_consumers else list(hosted.consumers.values())
    source = StreamArchive(request.engine, hosted, state, request.client, consumers)
    begin = request.engine.snapshots.prepare(source, content)
    response = StreamSnapshotResponse(config=hosted.config, state=state)
    # Nothing leaves the server that a power failure could take back.
    return DurableAnswer(hosted, response, errors.STREAM_SNAPSHOT, begin)


def restore(request: ApiRequest) -> StreamRestoreResponse:
    """STREAM.RESTORE."""
    content: StreamRestoreRequest = request.content
    engine, tenant, name = request.engine, request.tenant, request.call.stream
    wanted = content.config
    if not wanted.name:
        wanted = msgspec.structs.replace(wanted, name=name)
    if wanted.name != name:
        raise errors.STREAM_MISMATCH()
    if "/" in name or "\\" in name:
        raise errors.STREAM_NAME_CONTAINS_PATH_SEPARATORS()
    config = check_stream_config(
        wanted,
        streams=tenant.configs,
        pedantic=False,
        server=engine.server_limits,
        account=tenant.limits,
    )
    if config.num_replicas > 1:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    check_schemas(config, tenant, request.requester)
    check_resources(config, reserved(engine, tenant), tenant.limits, engine.server_limits)
    if name in tenant.streams:
        raise errors.STREAM_NAME_EXISTS_RESTORE_FAILED()
    if name in tenant.problems:
        raise errors.STREAM_OFFLINE_REASON(err=tenant.problems[name])
    subject = engine.restores.begin(tenant, config, request.client)
    return StreamRestoreResponse(deliver_subject=subject)
