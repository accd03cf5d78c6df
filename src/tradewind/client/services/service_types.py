"""The self-description of services: the JSON of `$SRV.PING`, `$SRV.INFO` and `$SRV.STATS`.

Owns the fields, which all NATS clients share. Unknown fields of newer services are ignored, and
missing fields get their defaults.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

from msgspec import Struct, field

TYPE_PREFIX: Final = "io.nats.micro.v1."
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class EndpointInfo(Struct, frozen=True, kw_only=True):
    """Where an endpoint listens. Without a `queue_group` every instance gets each request."""

    name: str
    subject: str
    queue_group: str = ""
    metadata: dict[str, str] | None = field(default_factory=dict)


class EndpointStats(Struct, frozen=True, kw_only=True):
    """The statistics of an endpoint since the service started or its counters were reset.

    Times are nanoseconds. `data` is what the service's own `stats_handler` gave.
    """

    name: str
    subject: str
    queue_group: str = ""
    num_requests: int = 0
    num_errors: int = 0
    last_error: str = ""
    processing_time: int = 0
    average_processing_time: int = 0
    data: Any = None


class ServicePing(
    Struct, tag_field="type", tag=TYPE_PREFIX + "ping_response", frozen=True, kw_only=True
):
    """One running instance of a service."""

    name: str
    id: str
    version: str
    metadata: dict[str, str] | None = field(default_factory=dict)


class ServiceInfo(
    Struct, tag_field="type", tag=TYPE_PREFIX + "info_response", frozen=True, kw_only=True
):
    """An instance, what it is for and where it listens."""

    name: str
    id: str
    version: str
    metadata: dict[str, str] | None = field(default_factory=dict)
    description: str | None = ""
    endpoints: list[EndpointInfo] | None = field(default_factory=list)


class ServiceStats(
    Struct, tag_field="type", tag=TYPE_PREFIX + "stats_response", frozen=True, kw_only=True
):
    """An instance and its statistics."""

    name: str
    id: str
    version: str
    metadata: dict[str, str] | None = field(default_factory=dict)
    started: datetime.datetime = EPOCH
    endpoints: list[EndpointStats] | None = field(default_factory=list)
