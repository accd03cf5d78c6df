"""API requests of backups of an account: one moment of all streams, and parts of a stream.

Owns the checks of both requests. The cut is in `account_cuts`, the transfer in `snapshots`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.api import errors
from tradewind.api.endpoints import ENDPOINT_BY_NAME
from tradewind.api.request_types import BackupCutRequest, BackupReadRequest
from tradewind.api.responses import BackupCutResponse, StreamSnapshotResponse
from tradewind.jetstream.account_cuts import take_cut
from tradewind.jetstream.api_request import Answer, ApiRequest, DurableAnswer
from tradewind.jetstream.snapshots import StreamArchive
from tradewind.subjects import is_valid_literal

if TYPE_CHECKING:
    from tradewind.jetstream.lanes import Steps


def cut(request: ApiRequest) -> Steps[Answer]:
    """BACKUP.CUT."""
    content: BackupCutRequest = request.content
    request.requester.check_deed(ENDPOINT_BY_NAME["stream_snapshot"], "*")
    if not is_valid_literal(content.deliver_subject):
        raise errors.SNAPSHOT_DELIVER_SUBJECT_INVALID()
    taken = yield from take_cut(request.engine, request.tenant, content)
    begin = request.engine.snapshots.prepare(taken, content)
    response = BackupCutResponse(
        streams=len(taken.parts), complete=taken.is_complete, time=taken.time
    )
    # Nothing leaves the server that a power failure could take back.
    first, *others = taken.unsettled() or (None,)
    return DurableAnswer(first, response, errors.STREAM_SNAPSHOT, begin, others=tuple(others))


def read(request: ApiRequest) -> DurableAnswer:
    """BACKUP.READ."""
    content: BackupReadRequest = request.content
    hosted = request.hosted()
    if not is_valid_literal(content.deliver_subject):
        raise errors.SNAPSHOT_DELIVER_SUBJECT_INVALID()
    state = hosted.stream.state(hosted.shown_count)
    source = StreamArchive(
        request.engine, hosted, state, request.client, [], max(content.first_seq, 1)
    )
    begin = request.engine.snapshots.prepare(source, content)
    response = StreamSnapshotResponse(config=hosted.config, state=state)
    return DurableAnswer(hosted, response, errors.STREAM_SNAPSHOT, begin)
