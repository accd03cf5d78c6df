"""Health checks of the server and the report of /healthz.

Owns the registry of checks and the format of the report. It never checks a part itself: each part
adds its own check, which returns a problem if it finds one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tradewind.monitor.formats import present
from tradewind.monitor.monitor_documents import Health, HealthError
from tradewind.monitor.page_options import HealthzOptions
from tradewind.status_codes import BAD_REQUEST, OK, UNAVAILABLE


class HealthProblem(msgspec.Struct, frozen=True):
    """One problem: `status` 503 means unavailable, 404 not found, 400 an invalid request, 200 a
    warning.
    """

    text: str
    status: int = UNAVAILABLE
    type: str = "UNKNOWN"
    account: str = ""
    stream: str = ""
    consumer: str = ""


HealthCheck = Callable[[HealthzOptions], list[HealthProblem]]


def _question_problems(options: HealthzOptions) -> list[HealthProblem]:
    if options.stream and not options.account:
        text = '"account" must not be empty when checking stream health'
    elif options.consumer and not options.stream:
        text = '"stream" must not be empty when checking consumer health'
    else:
        return []
    return [HealthProblem(text, BAD_REQUEST, "BAD_REQUEST")]


class HealthRegistry:
    """The health checks of this server, called in the order in which they were added."""

    def __init__(self) -> None:
        self._checks: list[HealthCheck] = []

    def add(self, check: HealthCheck) -> None:
        """Add a check; it must be quick and must not raise."""
        self._checks.append(check)

    def report(self, options: HealthzOptions) -> tuple[int, Health]:
        """The HTTP status and the document; without `details` only the first problem is
        included.
        """
        problems = _question_problems(options)
        if not problems:
            problems = [problem for check in self._checks for problem in check(options)]
        if not problems:
            return OK, Health(status="ok")
        status = max(problem.status for problem in problems)
        if not options.details:
            first = next(problem for problem in problems if problem.status == status)
            word = {OK: "ok", BAD_REQUEST: "error"}.get(status, "unavailable")
            return status, Health(status=word, error=first.text)
        errors = [
            HealthError(
                type=problem.type,
                account=present(problem.account),
                stream=present(problem.stream),
                consumer=present(problem.consumer),
                error=problem.text,
            )
            for problem in problems
        ]
        word = {OK: "ok", UNAVAILABLE: "unavailable"}.get(status, "error")
        return status, Health(status=word, errors=errors)
