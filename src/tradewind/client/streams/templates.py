"""Templates: subjects whose first publish creates a stream. Requires a tradewind-server.

Owns the calls of that part of the API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from tradewind.api.stream_types import StreamConfig
from tradewind.api.template_types import (
    STREAMS_DEFAULT,
    TemplateListResponse,
    TemplatePutRequest,
    TemplatePutResponse,
    TemplateStatus,
    TemplateTryResponse,
)
from tradewind.client.core.duration_input import DurationInput, duration_ns
from tradewind.client.streams.config_settings import config_of, make_config
from tradewind.client.streams.setting_types import StreamTemplateSettings

if TYPE_CHECKING:
    from tradewind.client.streams.api_requests import ApiRequests


class StreamTemplates:
    """The templates of an account: `manager.templates`."""

    def __init__(self, api: ApiRequests) -> None:
        self._api = api

    async def put(
        self,
        name: str,
        *,
        match: str,
        stream: str,
        max_streams: int = STREAMS_DEFAULT,
        idle: DurationInput | None = None,
        config: StreamConfig | Mapping[str, Any] | None = None,
        dry_run: bool = False,
        **settings: Unpack[StreamTemplateSettings],
    ) -> None:
        """Create or change a template; `settings` are those of the streams, as for `streams.add`.

        >>> await templates.put("k8s", match="k8s.*.>", stream="k8s_{1}", max_age="7d")
        """
        body = TemplatePutRequest(
            name=name,
            match=match,
            stream=stream,
            max_streams=max_streams,
            idle=0 if idle is None else duration_ns("idle", idle),
            config=make_config(config_of(StreamConfig, config), settings),
            dry_run=dry_run,
        )
        await self._api.call(TemplatePutResponse, "template_put", name, body=body)

    async def delete(self, name: str) -> None:
        """Delete a template; the streams that it created stay."""
        await self._api.call(TemplatePutResponse, "template_delete", name)

    async def list(self) -> Sequence[TemplateStatus]:
        """All templates, each with the number of its streams."""
        return (await self._api.call(TemplateListResponse, "template_list")).templates

    async def try_subject(self, subject: str) -> TemplateTryResponse:
        """Return what the first publish to this subject would do."""
        body = {"subject": subject}
        return await self._api.call(TemplateTryResponse, "template_try", body=body)
