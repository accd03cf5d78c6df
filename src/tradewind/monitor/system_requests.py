"""The requests of the system account: bodies, responses, and the functions that build them.

Owns the documents of requests and responses and the table of endpoints. It never subscribes or
publishes, which is up to `system_answers`.
"""

from __future__ import annotations

import gc
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from tradewind.monitor.accountz import account_detail
from tradewind.monitor.facade import MonitorView
from tradewind.monitor.formats import present
from tradewind.monitor.page_options import (
    AccountStatzOptions,
    AccountzOptions,
    ConnzOptions,
    HealthzOptions,
    JszOptions,
    LeafzOptions,
    Options,
    ProfilezOptions,
    SubszOptions,
)
from tradewind.monitor.parameters import PageError, quoted
from tradewind.monitor.system_events import SystemEventServer
from tradewind.route.permission_rules import PermissionRules
from tradewind.subjects import is_subset, is_valid_literal

if TYPE_CHECKING:
    from tradewind.monitor.monitor_documents import AccountStatz
    from tradewind.monitor.stepping import Stepped
    from tradewind.monitor.views import AccountView

_Document = TypeVar("_Document")

_SCAN_PAGE = 4096
# The zlib window bits: a header of gzip, and a window of 32 KiB.
_GZIP_FORMAT = 31
_COMPRESSION_LEVEL = 1
_PING = "PING"
_COMMAND = "tradewind-server"


class RequestError(msgspec.Struct):
    """The reason why a request was not answered with data."""

    code: int
    description: str


class MonitorReply(msgspec.Struct, kw_only=True):
    """The envelope of almost every response."""

    server: SystemEventServer
    data: Any = UNSET
    error: RequestError | UnsetType = UNSET


class ServerId(msgspec.Struct, kw_only=True):
    """The response to IDZ, which has no envelope."""

    name: str
    host: str
    id: str


class SubjectRules(msgspec.Struct, kw_only=True):
    """Lists of allowed and denied subjects."""

    allow: list[str] | UnsetType = UNSET
    deny: list[str] | UnsetType = UNSET


class ResponseRules(msgspec.Struct, kw_only=True):
    """How many responses may be published without a permission of their own, and for how long
    (nanoseconds).
    """

    max: int
    ttl: int


class UserPermissions(msgspec.Struct, kw_only=True):
    """The permissions of a user."""

    publish: SubjectRules
    subscribe: SubjectRules
    responses: ResponseRules | UnsetType = UNSET


class UserInfo(msgspec.Struct, kw_only=True):
    """The identity of the requesting client."""

    user: str
    account: str
    account_name: str | UnsetType = UNSET
    user_name: str | UnsetType = UNSET
    permissions: UserPermissions | UnsetType = UNSET
    expires: int | UnsetType = UNSET


class ClientRequest(msgspec.Struct):
    """The body of KICK and LDM."""

    cid: int = 0


class ConnectionsRequest(msgspec.Struct):
    """The body of CONNS, whose subject names the account as well."""

    acc: str = ""


class CountRequest(msgspec.Struct):
    """The body of NSUBS."""

    acc: str = ""
    subject: str = ""


class SystemEndpoint(msgspec.Struct, frozen=True):
    """One kind of request: the type of its body, and the function that builds the data of the
    response, or the steps to build it.

    `build` also receives the name of the account that the request is about, empty if it is about
    the whole server.
    """

    options: type[Options]
    build: Callable[[MonitorView, Any, str], Any]


class NoAnswerError(Exception):
    """Raised for a request that gets no response."""


def _health(view: MonitorView, options: HealthzOptions, _name: str) -> Any:
    status, report = view.healthz(options)
    report.status_code = status
    return report


def _jsz(view: MonitorView, options: JszOptions, _name: str) -> Any:
    if options.leader_only and view.jetstream is None:
        raise NoAnswerError
    return view.jsz(options)


def _variables(view: MonitorView) -> dict[str, Any]:
    """The variables that Go programs publish about themselves, as far as this one has them. Flags
    may hold passwords, so only the name of the command is included.
    """
    size = view.usage().memory_bytes
    collections = sum(generation["collections"] for generation in gc.get_stats())
    return {
        "memstats": {"Alloc": size, "Sys": size, "HeapAlloc": size, "NumGC": collections},
        "cmdline": [_COMMAND],
    }


def _profile(options: ProfilezOptions) -> dict[str, Any]:
    """The response about a profile: profiles are those of Go, of which this server has none."""
    reason = f"Profile {quoted(options.name)} not found"
    if not options.name:
        reason = "Profile name not specified"
    return {"profile": None, "error": reason}


SERVER_ENDPOINTS: dict[str, SystemEndpoint] = {
    "VARZ": SystemEndpoint(Options, lambda view, _options, _name: view.varz()),
    "CONNZ": SystemEndpoint(ConnzOptions, lambda view, options, _name: view.connz(options)),
    "SUBSZ": SystemEndpoint(SubszOptions, lambda view, options, _name: view.subsz(options)),
    "ROUTEZ": SystemEndpoint(Options, lambda view, _options, _name: view.routez()),
    "GATEWAYZ": SystemEndpoint(Options, lambda view, _options, _name: view.gatewayz()),
    "LEAFZ": SystemEndpoint(LeafzOptions, lambda view, options, _name: view.leafz(options)),
    "ACCOUNTZ": SystemEndpoint(
        AccountzOptions, lambda view, options, _name: view.accountz(options)
    ),
    "JSZ": SystemEndpoint(JszOptions, _jsz),
    "HEALTHZ": SystemEndpoint(HealthzOptions, _health),
    "EXPVARZ": SystemEndpoint(Options, lambda view, _options, _name: _variables(view)),
    # There is neither a group of servers nor a queue between threads that could be shown.
    "RAFTZ": SystemEndpoint(Options, lambda _view, _options, _name: {}),
    "IPQUEUESZ": SystemEndpoint(Options, lambda _view, _options, _name: {}),
    "PROFILEZ": SystemEndpoint(ProfilezOptions, lambda _view, options, _name: _profile(options)),
}


def _account_connz(view: MonitorView, options: ConnzOptions, name: str) -> Any:
    options.acc = name
    return view.connz(options)


def _account_subsz(view: MonitorView, options: SubszOptions, name: str) -> Any:
    """The subscriptions of an account, always with the list, whatever the body says, as on the
    official server.
    """
    options.account = name
    options.subscriptions = True
    return view.subsz(options)


def _account_jsz(view: MonitorView, options: JszOptions, name: str) -> Any:
    if view.jetstream is None:
        raise PageError("jetstream not enabled")
    return view.jetstream.account_jsz(name, options)


def _account_statz(
    view: MonitorView, options: AccountStatzOptions, name: str
) -> Stepped[AccountStatz]:
    """The statistics of one account, or of all accounts under the name PING; no response if there
    are none.
    """
    if name != _PING:
        options.accounts = [name]
    page = yield from view.accstatz(options)
    if not page.account_statz:
        raise NoAnswerError
    return page


ACCOUNT_ENDPOINTS: dict[str, SystemEndpoint] = {
    "CONNZ": SystemEndpoint(ConnzOptions, _account_connz),
    "SUBSZ": SystemEndpoint(SubszOptions, _account_subsz),
    "LEAFZ": SystemEndpoint(
        LeafzOptions,
        lambda view, options, name: view.leafz(msgspec.structs.replace(options, account=name)),
    ),
    "JSZ": SystemEndpoint(JszOptions, _account_jsz),
    "INFO": SystemEndpoint(Options, lambda view, _options, name: account_detail(view.broker, name)),
    "STATZ": SystemEndpoint(AccountStatzOptions, _account_statz),
}
# The requests that every account may send about itself: subject -> endpoint.
OWN_ENDPOINTS = {
    "$SYS.REQ.ACCOUNT.PING.CONNZ": "CONNZ",
    "$SYS.REQ.SERVER.PING.CONNZ": "CONNZ",
    "$SYS.REQ.ACCOUNT.PING.STATZ": "STATZ",
}
_DECODERS: dict[type[Options], msgspec.json.Decoder[Any]] = {
    endpoint.options: msgspec.json.Decoder(endpoint.options)
    for endpoint in (*SERVER_ENDPOINTS.values(), *ACCOUNT_ENDPOINTS.values())
}


def decode_options(payload: bytes, kind: type[Options]) -> Any:
    """The options in the body of a request; an empty body means the defaults. Raises
    msgspec.DecodeError.
    """
    return (decode_nullable(_DECODERS[kind], payload) if payload else None) or kind()


def decode_nullable(decoder: msgspec.json.Decoder[_Document], body: bytes) -> _Document | None:
    """The decoded body; None if it is null, which means the defaults."""
    return None if body.strip() == b"null" else decode_body(decoder, body)


def decode_body(decoder: msgspec.json.Decoder[_Document], body: bytes) -> _Document:
    """The decoded body; every error in it is a msgspec.DecodeError."""
    try:
        return decoder.decode(body)
    except (RecursionError, UnicodeDecodeError) as error:
        raise msgspec.DecodeError(f"invalid JSON: {error}") from None


def user_permissions(rules: PermissionRules) -> UserPermissions:
    """A user's rules in the form of USER.INFO."""
    responses: ResponseRules | UnsetType = UNSET
    if rules.responses is not None:
        responses = ResponseRules(max=rules.responses.count_max, ttl=rules.responses.expires_ns)
    return UserPermissions(
        publish=SubjectRules(
            allow=present(list(rules.publish_allow or ())), deny=present(list(rules.publish_deny))
        ),
        subscribe=SubjectRules(
            allow=present(list(rules.subscribe_allow or ())),
            deny=present(list(rules.subscribe_deny)),
        ),
        responses=responses,
    )


def accepted_encoding(header: bytes) -> str:
    """The value of Accept-Encoding in a header block, in lower case; empty if it is missing."""
    for line in header.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == b"accept-encoding":
            return value.strip().lower().decode("ascii", "replace")
    return ""


def encoded(pieces: list[bytes], encoding: str) -> Stepped[tuple[bytes, bytes]]:
    """The header block and the body, in steps. Only gzip is supported; for other encodings, the
    response says that it is not encoded.
    """
    if not encoding:
        return b"", b"".join(pieces)
    if encoding == "gzip":
        packer = zlib.compressobj(_COMPRESSION_LEVEL, zlib.DEFLATED, _GZIP_FORMAT)
        packed = []
        for piece in pieces:
            packed.append(packer.compress(piece))
            yield
        packed.append(packer.flush())
        return b"NATS/1.0\r\nContent-Encoding: gzip\r\n\r\n", b"".join(packed)
    return b"NATS/1.0\r\nContent-Encoding: identity\r\n\r\n", b"".join(pieces)


def count_subscribers(account: AccountView, subject: str, queue: str = "") -> Stepped[int]:
    """The number of client subscriptions that a subject reaches, in steps; a wildcard counts the
    subscriptions that it covers.
    """
    if is_valid_literal(subject):
        return sum(queue in ("", s.queue) for s in account.matching(subject))
    count = 0
    for offset in range(0, account.subscription_count, _SCAN_PAGE):
        yield
        page = account.all_subscriptions(offset, _SCAN_PAGE)
        count += sum(queue in ("", s.queue) and is_subset(s.subject, subject) for s in page)
    return count
