"""API requests about streams: create, update, info, delete, purge.

Owns one function per request. It never checks configurations (`tradewind.api`) and never orders the
steps of a change (`stream_catalog`).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tradewind.api import errors
from tradewind.api.purge_condition import check_created
from tradewind.api.request_types import (
    StreamConfigRequest,
    StreamInfoRequest,
    StreamListRequest,
    StreamNamesRequest,
    StreamPurgeRequest,
)
from tradewind.api.responses import (
    StreamCreateResponse,
    StreamDeleteResponse,
    StreamInfoResponse,
    StreamListResponse,
    StreamNamesResponse,
    StreamPurgeResponse,
    StreamUpdateResponse,
)
from tradewind.jetstream import stream_catalog
from tradewind.jetstream.api_request import ApiRequest, DurableAnswer
from tradewind.jetstream.infos import fields_of, plain_config, stream_info
from tradewind.jetstream.lanes import Steps, let_others_go_first
from tradewind.stream.stream_queries import SUBJECTS_PAGE, deleted_list, subject_page, with_details
from tradewind.subjects import tokens_collide

NAMES_PAGE: Final = 1024
LIST_PAGE: Final = 256
# Descriptions that are written in one go.
INFOS_PER_STEP: Final = 64
# Tokens that are compared in one go, and what comparing a subject costs at least.
COMPARED_PER_STEP: Final = 20_000
COMPARED_PER_SUBJECT: Final = 4
# Subjects that are looked at in one go for stream info, and this many are sorted in the loop.
SUBJECTS_PER_STEP: Final = 20_000
SUBJECTS_SORTED_MAX: Final = 5_000
# Deleted sequences that are written in one go.
DELETED_PER_STEP: Final = 100_000


def create(request: ApiRequest) -> Steps[StreamCreateResponse]:
    """STREAM.CREATE."""
    content: StreamConfigRequest = request.content
    if content.name != request.call.stream:
        raise errors.STREAM_MISMATCH()
    config = plain_config(content)
    stream_catalog.check_schemas(config, request.tenant, request.requester)
    hosted = yield from stream_catalog.create_stream(
        request.engine, request.tenant, config, pedantic=content.pedantic
    )
    info = stream_info(request.engine, hosted, domain=False)
    return StreamCreateResponse(**fields_of(info), did_create=True)


def update(request: ApiRequest) -> Steps[StreamUpdateResponse]:
    """STREAM.UPDATE."""
    content: StreamConfigRequest = request.content
    config = plain_config(content)
    stream_catalog.check_schemas(config, request.tenant, request.requester)
    hosted = yield from stream_catalog.update_stream(
        request.engine,
        request.tenant,
        request.call.stream,
        config,
        pedantic=content.pedantic,
    )
    return StreamUpdateResponse(**fields_of(stream_info(request.engine, hosted)))


def names(request: ApiRequest) -> Steps[StreamNamesResponse]:
    """STREAM.NAMES."""
    content: StreamNamesRequest = request.content
    found = yield from _matching(request, content.subject)
    offset = min(max(content.offset, 0), len(found))
    return StreamNamesResponse(
        total=len(found),
        offset=offset,
        limit=NAMES_PAGE,
        streams=found[offset : offset + NAMES_PAGE] or None,
    )


def list_(request: ApiRequest) -> Steps[StreamListResponse]:
    """STREAM.LIST."""
    content: StreamListRequest = request.content
    found = yield from _matching(request, content.subject)
    offset = min(max(content.offset, 0), len(found))
    streams = []
    for number, name in enumerate(found[offset : offset + LIST_PAGE]):
        if number and number % INFOS_PER_STEP == 0:
            yield let_others_go_first
        # The stream may have been deleted meanwhile.
        if (hosted := request.tenant.streams.get(name)) is not None:
            streams.append(stream_info(request.engine, hosted, dynamic=False))
    return StreamListResponse(
        total=len(found),
        offset=offset,
        limit=LIST_PAGE,
        streams=streams,
        offline=dict(request.tenant.problems),
    )


def _matching(request: ApiRequest, subject: str) -> Steps[list[str]]:
    """The names of the streams whose subjects overlap this one, or of all streams if it is
    empty.
    """
    streams = request.tenant.streams
    if not subject:
        return sorted(streams)
    # Only so many tokens of it can be compared with any subject of a stream.
    tokens = subject.split(".")
    found: list[str] = []
    compared = 0
    for name, hosted in list(streams.items()):
        for own in hosted.config.subjects:
            compared += COMPARED_PER_SUBJECT + own.count(".")
            if compared > COMPARED_PER_STEP:
                compared = 0
                yield let_others_go_first
            if tokens_collide(tokens, own.split(".")):
                found.append(name)
                break
    return sorted(found)


def info(request: ApiRequest) -> Steps[StreamInfoResponse]:
    """STREAM.INFO."""
    content: StreamInfoRequest = request.content
    hosted = request.hosted()
    details: dict[str, bytes] = {}
    total, offset = 0, max(content.offset, 0)
    if content.subjects_filter:
        page = subject_page(hosted.stream.store, content.subjects_filter)
        while page.collect(SUBJECTS_PER_STEP):
            yield let_others_go_first
        if page.count > SUBJECTS_SORTED_MAX:
            yield partial(page.write, offset, SUBJECTS_PAGE)
        else:
            page.write(offset, SUBJECTS_PAGE)
        total = page.count
        if total > offset:
            details["subjects"] = page.text
    if content.deleted_details:
        deleted = deleted_list(hosted.stream.store)
        while deleted.collect(DELETED_PER_STEP):
            yield let_others_go_first
        if deleted.count:
            details["deleted"] = deleted.text
    # The stream may have been deleted meanwhile.
    members = fields_of(stream_info(request.engine, request.hosted(), cluster=True))
    members["state"] = with_details(members["state"], details)
    return StreamInfoResponse(
        **members,
        total=total,
        offset=offset if total else 0,
        limit=SUBJECTS_PAGE if total else 0,
    )


def delete(request: ApiRequest) -> Steps[StreamDeleteResponse]:
    """STREAM.DELETE, also for a stream that is offline."""
    tenant, name = request.tenant, request.call.stream
    if name in tenant.problems and name not in tenant.streams:
        yield from stream_catalog.delete_offline_stream(request.engine, tenant, name)
    else:
        yield from stream_catalog.delete_stream(request.engine, request.hosted())
    return StreamDeleteResponse(success=True)


def purge(request: ApiRequest) -> Steps[DurableAnswer]:
    """STREAM.PURGE."""
    content: StreamPurgeRequest = request.content
    if content.seq and content.keep:
        raise errors.BAD_REQUEST()
    hosted = request.hosted()
    check_created(request.header, request.call.stream, hosted.stream.created_ns)
    total, step_size = 0, hosted.stream.upkeep.step_size
    steps = hosted.stream.purge_steps(content.filter, seq=content.seq, keep=content.keep)
    for number, purged in enumerate(steps):
        total += purged
        # A step ends early if it had to look at many messages; most requests need only one.
        if purged >= step_size or number:
            yield let_others_go_first
    response = StreamPurgeResponse(success=True, purged=total)
    return DurableAnswer(hosted, response, errors.STREAM_PURGE_FAILED)
