"""A client of schema registries that speak Confluent's HTTP interface.

Owns the requests, their limits and a cache of schemas by id, which never change. The module never
decodes a payload.
"""

from __future__ import annotations

import base64
import http.client
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import msgspec

from tradewind.decoding.decoder_contract import DecodingError
from tradewind.errors import JSON_ERRORS

ANSWER_BYTES_MAX: Final = 4 << 20
TIMEOUT_SECONDS: Final = 10.0
# Schemas that a process remembers, and ids that a registry does not have, with when to ask again.
CACHED_MAX: Final = 1024
MISSING_SECONDS: Final = 60.0
REFERENCES_MAX: Final = 100
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class NoSuchSchemaError(ValueError):
    """The registry answers that it has no such subject or id."""


class SchemaReference(msgspec.Struct):
    """Another schema that one imports: its name there, and where it is in the registry."""

    name: str
    subject: str
    version: int


class RegisteredSchema(msgspec.Struct):
    """An answer of the registry. Avro is what has no type."""

    schema: str
    schema_type: str = msgspec.field(default="AVRO", name="schemaType")
    references: list[SchemaReference] = []


@dataclass(frozen=True)
class SchemaRegistry:
    """A registry at an address; a value that can be pickled."""

    url: str
    authorization: str = field(default="", repr=False)

    @classmethod
    def at(cls, url: str) -> SchemaRegistry:
        """The registry at `http(s)://[user:password@]host[:port][/path]`."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        if parts.scheme not in ("http", "https") or not host or parts.query:
            raise DecodingError("schema registry: the address must be http://host:port or https://")
        authorization = ""
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = f"Basic {base64.b64encode(login.encode()).decode()}"
        place = f"[{host}]" if ":" in host else host
        place = f"{place}:{port}" if port else place
        return cls(f"{parts.scheme}://{place}{parts.path.rstrip('/')}", authorization)

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest schema of a subject."""
        path = f"/subjects/{quote(subject, safe='')}/versions/latest?format=serialized"
        try:
            return self._schema(path)
        except NoSuchSchemaError:
            raise DecodingError(
                f"schema registry {self.url} has no subject {subject}; name another one with"
                f" registry:{self.url}#SUBJECT"
            ) from None

    def by_id(self, number: int) -> RegisteredSchema:
        """The schema of an id; NoSuchSchemaError if the registry has none."""
        return _CACHE.schema(self, f"/schemas/ids/{number}?format=serialized", f"id {number}")

    def referenced(self, reference: SchemaReference) -> RegisteredSchema:
        """A schema that another one imports."""
        subject = quote(reference.subject, safe="")
        path = f"/subjects/{subject}/versions/{reference.version}?format=serialized"
        return _CACHE.schema(self, path, f"subject {reference.subject}")

    def _schema(self, path: str) -> RegisteredSchema:
        answer = self._answer(path)
        try:
            return msgspec.json.decode(answer, type=RegisteredSchema)
        except JSON_ERRORS as error:
            raise DecodingError(f"schema registry {self.url}{path}: {error}") from None

    def _answer(self, path: str) -> bytes:
        parts = urlsplit(self.url)
        kind: Any = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        headers = {"Accept": _ACCEPT}
        if self.authorization:
            headers["Authorization"] = self.authorization
        connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
        try:
            connection.request("GET", parts.path + path, headers=headers)
            with connection.getresponse() as response:
                answer: bytes = response.read(ANSWER_BYTES_MAX + 1)
                status: int = response.status
        except (OSError, http.client.HTTPException) as error:
            raise DecodingError(f"schema registry {self.url} cannot be reached: {error}") from None
        finally:
            connection.close()
        if status == 404:
            raise NoSuchSchemaError("not found")
        if status != 200:
            raise DecodingError(f"schema registry {self.url}{path} answers {status}, not 200")
        if len(answer) > ANSWER_BYTES_MAX:
            raise DecodingError(f"schema registry {self.url}: more than {ANSWER_BYTES_MAX} bytes")
        return answer


class _SchemaCache:
    """The answers of registries, for all decoders of the process."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[str, str], RegisteredSchema] = OrderedDict()
        self._missing: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._lock = threading.Lock()

    def schema(self, registry: SchemaRegistry, path: str, what: str) -> RegisteredSchema:
        key = (registry.url, path)
        missing = NoSuchSchemaError(f"schema registry {registry.url} has no schema with {what}")
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
            if self._missing.get(key, 0.0) > time.monotonic():
                raise missing
        try:
            schema = registry._schema(path)
        except NoSuchSchemaError:
            with self._lock:
                self._missing[key] = time.monotonic() + MISSING_SECONDS
                if len(self._missing) > CACHED_MAX:
                    self._missing.popitem(last=False)
            raise missing from None
        with self._lock:
            self._found[key] = schema
            if len(self._found) > CACHED_MAX:
                self._found.popitem(last=False)
        return schema


_CACHE: Final = _SchemaCache()
