"""The errors of requests that only Tradewind has (`$TW.API`): codes above those of nats-server.

Owns the numbers and the texts; see `errors` for how a kind is used.
"""

from __future__ import annotations

from typing import Final

from tradewind.api.errors import ErrorKind

TRANSACTION_INVALID: Final = ErrorKind(400, 20001, "{err}")
TRANSACTION_NO_STREAM: Final = ErrorKind(404, 20002, "no stream stores subject {subject}")
TRANSACTION_NOT_ALLOWED: Final = ErrorKind(403, 20003, "publishing to {subject} is not allowed")
TRANSACTION_NOT_AWAITED: Final = ErrorKind(
    409, 20004, "message {seq} is not waiting for an acknowledgement"
)
TRANSACTION_REDELIVERED: Final = ErrorKind(
    409,
    20005,
    "message {seq} was delivered again: this is delivery {given}, the last one is {last}",
)
TRANSACTION_TOO_LARGE: Final = ErrorKind(
    400, 20006, "there are {count} {things}, at most {most} are allowed"
)
TRANSACTION_BUSY: Final = ErrorKind(429, 20007, "too many transactions wait for the disk")
TRANSACTION_FAILED: Final = ErrorKind(
    503,
    20008,
    "the journal could not be written; it is unknown whether the transaction happened: {err}",
)
TRANSACTION_NOT_DONE: Final = ErrorKind(
    409, 20009, "message {seq} cannot be delivered again: {err}"
)
SUBJECTS_TOO_INTRICATE: Final = ErrorKind(
    400, 20401, "too many of the subjects could overlap: use fewer wildcards before the last token"
)
DEAD_LETTER_INVALID: Final = ErrorKind(400, 20101, "consumer metadata {key}: {err}")
STREAM_NO_CHAIN: Final = ErrorKind(
    404, 20201, "stream {stream} has no chain: create it with the metadata tradewind.chain"
)
CHAIN_INVALID: Final = ErrorKind(400, 20202, "stream metadata {key}: {err}")
CHAIN_REQUEST_INVALID: Final = ErrorKind(400, 20203, "{err}")
CHAIN_FAILED: Final = ErrorKind(503, 20204, "the chain cannot be read or written: {err}")
NOT_ALLOWED: Final = ErrorKind(
    403, 20301, "this needs the permission to publish to {subject}, which you do not have"
)
STORE_READ_ONLY: Final = ErrorKind(
    403,
    20501,
    "{what} is refused: the server serves its store without changes (read_only in the jetstream"
    " block)",
)
STREAM_RECREATED: Final = ErrorKind(
    409, 20601, "stream {stream} was created at {created}, not at {expected}"
)
EXPECTED_CREATED_INVALID: Final = ErrorKind(
    400, 20602, "header {name} must be a time such as 2026-01-31T12:00:00Z, not {value!r}"
)
SCHEMA_INVALID: Final = ErrorKind(400, 20701, "stream metadata {key}: {err}")
SCHEMA_VIOLATED: Final = ErrorKind(400, 20702, "the payload does not obey schema {schema}: {err}")
NO_CLIENT: Final = ErrorKind(403, 20302, "this request must be sent by a client")

OWN_KINDS: Final = {
    kind.err_code: kind for kind in list(globals().values()) if isinstance(kind, ErrorKind)
}
