"""The HTTP pages as an ASGI application: one small function per page, all based on a MonitorView.

Owns paths, status codes and content types. It never opens a socket (`http` does) and has no state
except the view's request counts. Pages are for people and scrapers on a trusted network, so there
is no login; they never show a secret.
"""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tradewind._version import __version__
from tradewind.faults import INTERNAL_ERROR
from tradewind.monitor import prometheus
from tradewind.monitor.facade import MonitorView
from tradewind.monitor.formats import compact_json
from tradewind.monitor.json_steps import json_steps
from tradewind.monitor.leafz import leafz_from_query
from tradewind.monitor.page_options import (
    AccountStatzOptions,
    AccountzOptions,
    connz_from_query,
    health_from_query,
    jsz_from_query,
    metrics_from_query,
    subsz_from_query,
)
from tradewind.monitor.parameters import PageError, boolean
from tradewind.monitor.stepping import Stepped, in_steps, result_of

Query = Mapping[str, str]
Page = Callable[[MonitorView, Query], Response | Stepped[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]

_CORS = {"Access-Control-Allow-Origin": "*"}
# The number of bytes of a long page that are written at a time.
_PART_BYTES = 64 * 1024
_PLAIN = "text/plain; charset=utf-8"
# label, path: the links of the index
_INDEX = (
    ("General", "/varz"),
    ("JetStream", "/jsz"),
    ("Connections", "/connz"),
    ("Accounts", "/accountz"),
    ("Account statistics", "/accstatz"),
    ("Subscriptions", "/subsz"),
    ("Routes", "/routez"),
    ("Leaf nodes", "/leafz"),
    ("Gateways", "/gatewayz"),
    ("Health", "/healthz"),
    ("Metrics", "/metrics"),
)


def _json(view: MonitorView, document: Any) -> Stepped[Response]:
    """A document, which may be built in steps, encoded in steps."""
    pieces = yield from json_steps((yield from result_of(document)), indented=True)
    if len(pieces) == 1:
        return Response(pieces[0], headers=_CORS, media_type="application/json")
    return _LongPage(view, pieces, _CORS, "application/json")


class _LongPage(Response):
    """A document that is sent in parts, each in its own turn."""

    def __init__(
        self, view: MonitorView, pieces: list[bytes], headers: Mapping[str, str], media_type: str
    ) -> None:
        length = {"Content-Length": str(sum(map(len, pieces)))}
        super().__init__(None, headers={**headers, **length}, media_type=media_type)
        self._view = view
        self._pieces = pieces

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the document. The pieces are consumed, because freeing all of them would be a long
        step.
        """
        status, headers = self.status_code, self.raw_headers
        await send({"type": "http.response.start", "status": status, "headers": headers})
        pieces, part, size = self._pieces[::-1], [], 0
        self._pieces.clear()
        while pieces:
            part.append(pieces.pop())
            size += len(part[-1])
            if size >= _PART_BYTES or not pieces:
                body = {"body": b"".join(part), "more_body": bool(pieces)}
                await send({"type": "http.response.body", **body})
                part, size = [], 0
                self._view.broker.watch.end_turn()
                await asyncio.sleep(0)


def _text(text: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return Response(text, status_code=status, headers=headers, media_type=_PLAIN)


def _not_found() -> Response:
    return _text("404 page not found\n", 404, {"X-Content-Type-Options": "nosniff"})


def _varz(view: MonitorView, _query: Query) -> Stepped[Response]:
    return _json(view, view.varz())


def _connz(view: MonitorView, query: Query) -> Stepped[Response]:
    return _json(view, view.connz(connz_from_query(query)))


def _subsz(view: MonitorView, query: Query) -> Stepped[Response]:
    return _json(view, view.subsz(subsz_from_query(query)))


def _accountz(view: MonitorView, query: Query) -> Stepped[Response]:
    return _json(view, view.accountz(AccountzOptions(account=query.get("acc", ""))))


def _accstatz(view: MonitorView, query: Query) -> Stepped[Response]:
    return _json(view, view.accstatz(AccountStatzOptions(include_unused=boolean(query, "unused"))))


def _routez(view: MonitorView, query: Query) -> Stepped[Response]:
    if query.get("subs", "").lower() != "detail":
        boolean(query, "subs")
    return _json(view, view.routez())


def _leafz(view: MonitorView, query: Query) -> Stepped[Response]:
    return _json(view, view.leafz(leafz_from_query(query)))


def _gatewayz(view: MonitorView, query: Query) -> Stepped[Response]:
    boolean(query, "accs")
    return _json(view, view.gatewayz())


def _jsz(view: MonitorView, query: Query) -> Stepped[Response]:
    options = jsz_from_query(query)
    if options.leader_only and view.jetstream is None:
        raise PageError("filtered response: not leader")
    return _json(view, view.jsz(options))


def _healthz(view: MonitorView, query: Query) -> Response:
    status, report = view.healthz(health_from_query(query))
    body = compact_json(report)
    return Response(body, status_code=status, headers=_CORS, media_type="application/json")


def _raftz(_view: MonitorView, _query: Query) -> Response:
    return _text("No Raft nodes registered", 404)


def _ipqueuesz(view: MonitorView, query: Query) -> Stepped[Response]:
    boolean(query, "all")
    return _json(view, {})


def _metrics(view: MonitorView, query: Query) -> Stepped[Response]:
    pieces = yield from view.metrics(metrics_from_query(query))
    if len(pieces) == 1:
        return Response(pieces[0], media_type=prometheus.CONTENT_TYPE)
    return _LongPage(view, pieces, {}, prometheus.CONTENT_TYPE)


# Each is counted in /varz under the first of its paths; the official server does not count the last
# group.
_COUNTED: tuple[tuple[tuple[str, ...], Page], ...] = (
    (("/varz",), _varz),
    (("/connz",), _connz),
    (("/subsz", "/subscriptionsz"), _subsz),
    (("/accountz",), _accountz),
    (("/accstatz",), _accstatz),
    (("/routez",), _routez),
    (("/leafz",), _leafz),
    (("/gatewayz",), _gatewayz),
    (("/jsz",), _jsz),
    (("/healthz",), _healthz),
    (("/metrics",), _metrics),
)
_UNCOUNTED: tuple[tuple[str, Page], ...] = (("/raftz", _raftz), ("/ipqueuesz", _ipqueuesz))


@dataclass(frozen=True)
class Guest:
    """An application of another package below its own path, with a link on the index."""

    label: str
    path: str
    application: ASGIApp

    def __post_init__(self) -> None:
        taken = {path for paths, _ in _COUNTED for path in paths} | {p for p, _ in _UNCOUNTED}
        if not re.fullmatch(r"/[A-Za-z0-9_-]+", self.path) or self.path in taken:
            raise ValueError(
                f"path of a monitoring application must be free and like /name, not {self.path!r}"
            )


def _contained(view: MonitorView, guest: Guest) -> ASGIApp:
    """The application, whose exceptions are counted and logged once, like those of other pages."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_noting(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await guest.application(scope, receive, send_noting)
        except Exception as error:
            view.broker.faults.contain("page", error, guest.path)
            if not started:
                await _text(INTERNAL_ERROR, 500)(scope, receive, send)

    return application


def _index_page(base_path: str, guests: Sequence[Guest]) -> Page:
    """The index. Its links are relative, so that they work behind a proxy that adds a path."""
    # The page itself is at the base path without a final slash, so its last part is repeated in the
    # links.
    prefix = "." + ("/" + base_path.rsplit("/", 1)[-1] if base_path else "")
    links = "\n".join(
        f'<li><a href="{html.escape(prefix + path)}">{label}</a> <code>{path}</code></li>'
        for label, path in (*_INDEX, *((html.escape(g.label), g.path) for g in guests))
    )

    def page(view: MonitorView, _query: Query) -> Response:
        name = html.escape(view.broker.server_name)
        text = (
            '<!DOCTYPE html>\n<html lang="en">\n'
            '<head><meta charset="utf-8"><title>Tradewind</title></head>\n'
            f"<body>\n<h1>Tradewind {__version__}</h1>\n<p>{name}</p>\n"
            f"<ul>\n{links}\n</ul>\n</body>\n</html>\n"
        )
        return Response(text, media_type="text/html; charset=utf-8")

    return page


def _built(view: MonitorView, page: Page, query: Query) -> Stepped[Response]:
    return (yield from result_of(page(view, query)))


def _endpoint(view: MonitorView, page: Page, counted_as: str = "") -> Endpoint:
    watch = view.broker.watch

    async def endpoint(request: Request) -> Response:
        if counted_as:
            view.request_counts[counted_as] += 1
        kind, path = f"page {counted_as or 'other'}", request.url.path
        try:
            return await in_steps(watch, kind, path, _built(view, page, request.query_params))
        except PageError as error:
            return _text(str(error), error.status)
        except Exception as error:
            view.broker.faults.contain("page", error, request.url.path)
            return _text(INTERNAL_ERROR, 500)
        finally:
            watch.end_turn()

    return endpoint


async def _unknown(_request: Request, _error: Exception) -> Response:
    return _not_found()


def normal_base_path(text: str) -> str:
    """The path `/nats` for any of `nats`, `/nats`, `/nats/`; empty for `/` and nothing."""
    parts = [part for part in text.split("/") if part]
    return "".join(f"/{part}" for part in parts)


def build_application(
    view: MonitorView, base_path: str = "", guests: Sequence[Guest] = ()
) -> Starlette:
    """All pages below `base_path`; everything else is a 404 in plain text."""
    base = normal_base_path(base_path)
    index = _endpoint(view, _index_page(base, guests), "/")
    routes: list[BaseRoute] = [Route(base or "/", index)]
    for guest in guests:
        # Relative, so that it works behind a proxy that adds a path.
        slash = RedirectResponse(guest.path.removeprefix("/") + "/")
        routes.append(Route(base + guest.path, slash))
        routes.append(Mount(base + guest.path, _contained(view, guest)))
    for paths, page in _COUNTED:
        endpoint = _endpoint(view, page, paths[0])
        routes += [Route(base + path, endpoint) for path in paths]
    routes += [Route(base + path, _endpoint(view, page)) for path, page in _UNCOUNTED]
    for route in routes:
        if isinstance(route, Route):  # any method is answered the same way, as by nats-server
            route.methods = None
    application = Starlette(routes=routes, exception_handlers={404: _unknown, 405: _unknown})
    application.router.redirect_slashes = False
    return application
