"""Displays received messages: title, headers and body, raw, JSON, or as a file.

Owns the output formats of `tradewind sub`. It never receives anything.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tradewind.api.times import format_time
from tradewind.cli.frame.message_text import as_document, write_body
from tradewind.cli.frame.output import flush, json_bytes, line, note, print_json_line
from tradewind.durations import format_duration
from tradewind.visible_text import visible

if TYPE_CHECKING:
    from tradewind.client.core.message import Metadata, Msg
    from tradewind.schemas.schema_table import SchemaTable

# The value of a body that has no schema.
UNDECODED: Final = object()


@dataclass(slots=True, kw_only=True)
class MessageStyle:
    """How a message is shown."""

    raw: bool = False
    json: bool = False
    dump: str = ""
    headers_only: bool = False
    subjects_only: bool = False
    timestamp: bool = False
    delta: bool = False
    translate: str = ""
    is_stream: bool = False
    decodes: bool = False
    schemas: SchemaTable | None = None
    began: float = field(default_factory=time.monotonic)

    def show(self, number: int, message: Msg, word: str = "Received") -> None:
        """Print one message."""
        if self.dump:
            self._dump(number, message, word)
        elif self.json:
            print_json_line(self._document(message))
        elif self.subjects_only:
            line(message.subject)
        elif self.raw:
            write_body(self._body(message), self.translate, raw=True)
        else:
            line(self._title(number, message, word))
            self._show_content(message)
        flush()

    def _body(self, message: Msg) -> bytes:
        """The body; as JSON if it was asked for, and its subject has a schema that it obeys."""
        value = self._value(message)
        return message.data if value is UNDECODED else json_bytes(value)

    def _value(self, message: Msg) -> Any:
        if self.schemas is None:
            return UNDECODED
        from tradewind.schemas.schema_documents import HEADER
        from tradewind.schemas.schema_errors import SchemaError

        try:
            document = self.schemas.document_for(message.subject, message.headers.get(HEADER) or "")
            if document is None:
                return UNDECODED
            from tradewind.schemas.payload_values import decode_value

            return decode_value(document, message.data)
        except SchemaError as error:
            note(f"{message.subject}: {error}")
            return UNDECODED

    def _document(self, message: Msg) -> dict[str, Any]:
        """A message for machines, with the value of its body if it was asked for."""
        value = self._value(message)
        document = _document(message)
        return document if value is UNDECODED else {**document, "value": value}

    def _title(self, number: int, message: Msg, word: str) -> str:
        info = metadata_of(message)
        mark = f"[#{number}]"
        if self.timestamp:
            mark += time.strftime(" @ %H:%M:%S")
        elif self.delta:
            passed_ns = round((time.monotonic() - self.began) * 1e6) * 1000
            mark += f" @ {format_duration(passed_ns)}"
        if info is None:
            reply = f' with reply "{message.reply}"' if message.reply else ""
            return f'{mark} {word} on "{message.subject}"{reply}'
        if self.is_stream:
            at = info.timestamp.astimezone().isoformat(timespec="seconds")
            return (
                f"{mark} {word} JetStream message: stream: {info.stream} seq "
                f"{info.stream_sequence} / subject: {message.subject} / time: {at}"
            )
        return (
            f"{mark} {word} JetStream message: consumer: {info.stream} > {info.consumer} / "
            f"subject: {message.subject} / delivered: {info.delivered_count} / consumer seq: "
            f"{info.consumer_sequence} / stream seq: {info.stream_sequence}"
        )

    def _show_content(self, message: Msg) -> None:
        fields = list(message.headers.fields())
        for name, value in fields:
            line(visible(f"{name}: {value}"))
        if fields:
            line()
        if not self.headers_only:
            write_body(self._body(message), self.translate)
            line()

    def _dump(self, number: int, message: Msg, word: str) -> None:
        document = json_bytes(
            as_document(message.subject, message.reply, message.headers, message.data)
        )
        if self.dump == "-":
            sys.stdout.flush()
            sys.stdout.buffer.write(document + b"\0")
            sys.stdout.buffer.flush()
            return
        info = metadata_of(message)
        name = f"{number if info is None else info.stream_sequence}"
        name += ".json" if word == "Received" else "_reply.json"
        (Path(self.dump) / name).write_bytes(document)


def _document(message: Msg) -> dict[str, Any]:
    """A message for machines; the body is Base64."""
    headers = message.headers
    document: dict[str, Any] = {"subject": message.subject, "data": message.data}
    document["hdrs"] = {name: headers.get_all(name) for name in headers}
    info = metadata_of(message)
    if info is None:
        return {**document, "reply": message.reply}
    stored = {"stream": info.stream, "seq": info.stream_sequence}
    return {**document, **stored, "time": format_time(info.timestamp_ns)}


def metadata_of(message: Msg) -> Metadata | None:
    """Where a message stands in a stream; None if no consumer delivered it."""
    if not message.reply.startswith("$JS.ACK."):
        return None
    from tradewind.client.errors import NotJetStreamError

    try:
        return message.metadata
    except NotJetStreamError:
        return None
