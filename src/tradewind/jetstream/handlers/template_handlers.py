"""Requests of Tradewind's own API about templates: make, list, try, delete.

Owns one function per request. Loaded with the first of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.api.endpoints import ENDPOINT_BY_NAME
from tradewind.api.errors import STREAM_INVALID_CONFIG, ApiError
from tradewind.api.names import has_schema_rule
from tradewind.api.template_types import (
    TemplateListResponse,
    TemplatePutRequest,
    TemplatePutResponse,
    TemplateStatus,
    TemplateTryRequest,
    TemplateTryResponse,
    stream_for,
)
from tradewind.subjects import is_valid_literal

if TYPE_CHECKING:
    from tradewind.jetstream.api_request import Answer, ApiRequest
    from tradewind.jetstream.lanes import Steps


def put(request: ApiRequest) -> Steps[Answer]:
    """TEMPLATE.PUT."""
    content: TemplatePutRequest = request.content
    if content.name != request.call.stream:
        raise STREAM_INVALID_CONFIG(err="name must match the subject")
    # The names of the streams depend on subjects, so any is possible.
    request.requester.check_deed(ENDPOINT_BY_NAME["stream_create"], "*")
    if content.idle:
        request.requester.check_deed(ENDPOINT_BY_NAME["stream_delete"], "*")
    if has_schema_rule(content.config.metadata):
        from tradewind.jetstream.schema_keeper import check_template_settings

        check_template_settings(content.config, request.requester)
    registry = request.engine.template_registry()
    yield from registry.of(request.tenant).put(content, dry_run=content.dry_run)
    registry.listen()
    return TemplatePutResponse(success=True)


def delete(request: ApiRequest) -> Steps[Answer]:
    """TEMPLATE.DELETE."""
    registry = request.engine.template_registry()
    yield from registry.of(request.tenant).delete(request.call.stream)
    registry.listen()
    return TemplatePutResponse(success=True)


def list_(request: ApiRequest) -> Answer:
    """TEMPLATE.LIST."""
    templates = request.engine.template_registry().of(request.tenant)
    return TemplateListResponse(
        templates=[
            TemplateStatus(template=each, streams=templates.streams_of(each.name))
            for _, each in sorted(templates.all.items())
        ]
    )


def try_(request: ApiRequest) -> Answer:
    """TEMPLATE.TRY."""
    content: TemplateTryRequest = request.content
    if not is_valid_literal(content.subject):
        raise STREAM_INVALID_CONFIG(err="subject must not contain wildcards")
    templates = request.engine.template_registry().of(request.tenant)
    template = templates.find(content.subject)
    if template is None:
        return TemplateTryResponse(reason="no template matches this subject")
    try:
        config = stream_for(template, content.subject)
    except ApiError as error:
        return TemplateTryResponse(template=template.name, reason=error.description)
    problem = templates.problem(template, config)
    reason = "" if problem is None else problem.description
    if request.tenant.account.has_interest(content.subject):
        reason = "someone already subscribes to this subject"
    return TemplateTryResponse(
        template=template.name,
        stream=config.name,
        subjects=config.subjects,
        would_create=not reason,
        reason=reason,
    )
