"""Services as they describe themselves: instances, endpoints, requests, errors and times.

Owns the request and the sums per endpoint of all instances. Every service of the account answers
it, so it is sent only while a page shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tradewind.client.connection import Connection
    from tradewind.client.services.service_types import ServiceStats

ANSWER_SECONDS: Final = 2.0
STALL_SECONDS: Final = 0.3
INSTANCES_MAX: Final = 2000
ENDPOINTS_MAX: Final = 1000
FIGURES: Final = ("requests", "errors", "processing_ns")


class EndpointLoad(msgspec.Struct, frozen=True):
    """An endpoint of all instances of a service; `average_ns` is the time of one request."""

    service: str
    name: str
    subject: str
    queue_group: str = ""
    instances: int = 0
    requests: int = 0
    errors: int = 0
    processing_ns: int = 0
    last_error: str = ""

    @property
    def average_ns(self) -> int:
        """The average time of a request, in the words of the service."""
        return self.processing_ns // self.requests if self.requests else 0


class Instance(msgspec.Struct, frozen=True):
    """A running instance of a service."""

    service: str
    id: str
    version: str
    started_ns: int
    requests: int
    errors: int


class ServiceLoads(msgspec.Struct, frozen=True):
    """All services that have answered; `is_cut` says that there are more."""

    endpoints: tuple[EndpointLoad, ...] = ()
    instances: tuple[Instance, ...] = ()
    is_cut: bool = False


async def ask_services(connection: Connection) -> ServiceLoads:
    """Ask all services for their statistics."""
    answers: list[ServiceStats] = []
    async for each in connection.services.stats(timeout=ANSWER_SECONDS, stall=STALL_SECONDS):
        answers.append(each)
        if len(answers) >= INSTANCES_MAX:
            break
    return loads_of(answers)


def loads_of(answers: Iterable[ServiceStats]) -> ServiceLoads:
    """The sums per endpoint, and the instances."""
    endpoints: dict[tuple[str, str, str], EndpointLoad] = {}
    instances: list[Instance] = []
    for answer in answers:
        listed = answer.endpoints or []
        for each in listed:
            key = (answer.name, each.name, each.subject)
            old = endpoints.get(key) or EndpointLoad(*key, queue_group=each.queue_group)
            endpoints[key] = msgspec.structs.replace(
                old,
                instances=old.instances + 1,
                requests=old.requests + max(each.num_requests, 0),
                errors=old.errors + max(each.num_errors, 0),
                processing_ns=old.processing_ns + max(each.processing_time, 0),
                last_error=each.last_error or old.last_error,
            )
        instances.append(
            Instance(
                answer.name,
                answer.id,
                answer.version,
                int(answer.started.timestamp() * 1e9),
                sum(max(each.num_requests, 0) for each in listed),
                sum(max(each.num_errors, 0) for each in listed),
            )
        )
    rows = sorted(endpoints.values(), key=lambda each: (each.service, each.name, each.subject))
    instances.sort(key=lambda each: (each.service, each.id))
    is_cut = len(rows) > ENDPOINTS_MAX or len(instances) >= INSTANCES_MAX
    return ServiceLoads(tuple(rows[:ENDPOINTS_MAX]), tuple(instances), is_cut)


def figures(loads: ServiceLoads) -> tuple[float, ...]:
    """Requests, errors and processing time of all services, for charts."""
    return (
        float(sum(each.requests for each in loads.endpoints)),
        float(sum(each.errors for each in loads.endpoints)),
        float(sum(each.processing_ns for each in loads.endpoints)),
    )
