"""A row of the table of endpoints: its columns, and what follows from them alone.

Owns the description of an endpoint: subject, body, types, handler, audit, what it may run beside,
and the forms of the previews. The rows are in `endpoints`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

import msgspec

from tradewind.api.base import ApiStruct
from tradewind.api.errors import BAD_REQUEST, NOT_EMPTY_REQUEST
from tradewind.api.requests import decode_lenient, decode_request, holds_json, is_empty_request

PREFIX: Final = "$JS.API."
# The API that only this server has.
OWN_PREFIX: Final = "$TW.API."
LEGACY_PREFIX: Final = "$JS."


class Body(Enum):
    """How an endpoint treats the body of a request."""

    # Also for requests that only a cluster can serve, which are refused before.
    IGNORED = auto()
    # Refused with 10038 unless it is empty.
    NONE = auto()
    # Read if it looks like JSON, else ignored.
    OPTIONAL = auto()
    # Refused with 10003 if it is empty.
    REQUIRED = auto()
    # Read in any case; nothing means zero values.
    ALWAYS = auto()
    # Read without strictness, and refused if it is not JSON.
    LENIENT = auto()
    # The body has a form of its own, which its handler reads.
    OWN = auto()


class Audit(Enum):
    """Whether the requests of an endpoint are counted and published for auditors."""

    ALWAYS = auto()
    IF_REFUSED = auto()
    # The consumer itself answers in nats-server.
    NEVER = auto()


class Concurrency(Enum):
    """The requests of the same account that one may run beside; all others wait for each other."""

    NONE = ""
    # Requests that follow each other and create, change or delete things of one kind.
    NEW_STREAMS = "new streams"
    NEW_CONSUMERS = "new consumers"
    CHANGED_STREAMS = "changed streams"
    OLD_STREAMS = "old streams"
    OLD_CONSUMERS = "old consumers"
    # The endpoint has an order of its own: its handler gets the message as it came.
    ALL = "all"


class LegacyWords(Enum):
    """The preview of JetStream that a form belongs to, which determines its words and errors."""

    SETS = auto()
    STREAMS = auto()


class LegacyForm(msgspec.Struct, frozen=True):
    """The form of an endpoint in a preview; `subject` as in `ApiEndpoint`, after `$JS.`.

    Its handler is `module:function`; without one it is forwarded to the current subject.
    """

    subject: str
    words: LegacyWords
    handler: str = ""


class ApiEndpoint(msgspec.Struct, frozen=True):
    """A row of the table. `subject` follows the prefix; $s, $c and $rest are placeholders for
    names. It is "" for requests that only the previews had.
    """

    name: str
    subject: str
    help: str
    body: Body = Body.NONE
    request: type[ApiStruct] | None = None
    # None: it answers with messages instead of JSON.
    response: type[ApiStruct] | None = None
    # The handler, as `module:function`. Empty for requests that only a cluster can serve, and for
    # those that each stream or consumer receives itself.
    handler: str = ""
    audit: Audit = Audit.ALWAYS
    beside: Concurrency = Concurrency.NONE
    # The body is checked before the API level that a request demands.
    reads_body_first: bool = False
    # The stream is looked up before the body is checked.
    finds_stream_first: bool = False
    # The request changes nothing, so that a client may send it again.
    is_read: bool = False
    # For the system account, answered by `dispatch` itself, if at all; others get no answer.
    is_system: bool = False
    prefix: str = PREFIX
    # Other requests that a client must be allowed to make: the names of their rows, for the same
    # stream and consumer. For an endpoint that nats-server does not have, this is said in any case.
    needs: tuple[str, ...] | None = None
    # More permissions depend on the body: the handler checks (`jetstream.deeds`) for these.
    needs_by_body: tuple[str, ...] = ()
    legacy: tuple[LegacyForm, ...] = ()

    @property
    def needs_cluster(self) -> bool:
        """Whether a single server refuses the request before any other check."""
        return self.response is not None and not self.handler

    @property
    def is_dispatched(self) -> bool:
        """Whether one place receives the requests of all streams, in the order of the account."""
        answered = self.response is not None or self.is_system
        return bool(self.subject) and answered and self.beside is not Concurrency.ALL

    @property
    def start(self) -> str:
        """The subject before the first name, with the dot; all of it if there is no name."""
        return self.prefix + self.subject.partition("$")[0]

    def decode(self, body: bytes, *, strict: bool = True) -> ApiStruct | None:
        """Decode the request in a body; ApiError if the endpoint does not accept it.

        A missing optional body gives a request of zero values. None if the endpoint has no request,
        or decodes it itself.
        """
        if self.body is Body.NONE and not is_empty_request(body):
            raise NOT_EMPTY_REQUEST()
        if self.request is None or self.body in (Body.OWN, Body.IGNORED):
            return None
        if self.body is Body.REQUIRED and is_empty_request(body):
            raise BAD_REQUEST()
        if self.body is Body.LENIENT:
            return decode_lenient(self.request, body)
        if self.body is Body.OPTIONAL and not holds_json(body):
            return self.request()
        return decode_request(self.request, body, strict=strict)

    def subject_for(self, stream: str = "", consumer: str = "", rest: str = "") -> str:
        """The full subject of a request."""
        names = {"$s": stream, "$c": consumer, "$rest": rest}
        return self.prefix + ".".join(names.get(token, token) for token in self.subject.split("."))


class EndpointCall(msgspec.Struct, frozen=True):
    """The parts of a request's subject. `rest` is the filter or subject after the names."""

    endpoint: ApiEndpoint
    stream: str = ""
    consumer: str = ""
    rest: str = ""
