"""Exports and imports of accounts, as plain data.

Owns the data structure between the description of accounts (configuration file or claims) and the
broker, which builds bridges from it. It makes no checks, which is up to
`route.sharing_rules`.

The *remote* subject is the one in the exporting account, the *local* one that in the importing
account.
"""

from __future__ import annotations

from typing import Final

import msgspec

RESPONSE_THRESHOLD_DEFAULT_NS: Final = 2 * 60 * 1_000_000_000
SAMPLING_BY_HEADERS: Final = 0

# The number of responses to a service request, in the words of monitoring.
SINGLETON: Final = "Singleton"
STREAMED: Final = "Streamed"
CHUNKED: Final = "Chunked"
RESPONSE_TYPES: Final = (SINGLETON, STREAMED, CHUNKED)


class ServiceLatency(msgspec.Struct, frozen=True):
    """The subject for response times, and the percentage of requests that are measured.

    With SAMPLING_BY_HEADERS the headers of each request decide.
    """

    subject: str
    sampling: int = 100


class StreamExport(msgspec.Struct, frozen=True):
    """Messages that other accounts may subscribe to.

    If `accounts` is None, every account may. `account_token_position` counts from 1, 0 means none:
    the importer puts its own name there. `token_required`: only imports that are `is_activated`
    may.
    """

    subject: str
    accounts: frozenset[str] | None = None
    account_token_position: int = 0
    token_required: bool = False


class ServiceExport(msgspec.Struct, frozen=True):
    """Subjects that other accounts may send requests to; the first fields as in `StreamExport`."""

    subject: str
    accounts: frozenset[str] | None = None
    account_token_position: int = 0
    token_required: bool = False
    response_type: str = SINGLETON
    response_threshold_ns: int = RESPONSE_THRESHOLD_DEFAULT_NS
    latency: ServiceLatency | None = None
    allow_trace: bool = False


class StreamImport(msgspec.Struct, frozen=True):
    """Subscriptions that reach into another account.

    `subject` is remote. `prefix` is that of the file, without a dot at its end; it and `to` are not
    used together. `is_activated`: the creator of the description has seen a token for it.
    """

    account: str
    subject: str
    prefix: str = ""
    to: str = ""
    allow_trace: bool = False
    is_activated: bool = False


class ServiceImport(msgspec.Struct, frozen=True):
    """Requests that continue in another account. `subject` is remote, `to` local; empty: the same.
    `share`: the service learns all details of the requester, else only its account.

    `share`: the service learns all about the requester, else only its account.
    """

    account: str
    subject: str
    to: str = ""
    share: bool = False
    is_activated: bool = False

    @property
    def local(self) -> str:
        """The subject that members of the importing account publish to."""
        return self.to or self.subject


Export = StreamExport | ServiceExport
Import = StreamImport | ServiceImport
