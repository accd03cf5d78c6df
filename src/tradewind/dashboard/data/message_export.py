"""Found messages as files: JSON lines, CSV and Parquet.

Owns the columns, which are the same in each format. Payloads that are not text are Base64, and say
so; nothing is left out.
"""

from __future__ import annotations

import asyncio
import csv
import io
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api.times import format_time
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.dashboard.data.message_data import ListedMessage

FORMATS: Final = ("jsonl", "csv", "parquet")
COLUMNS: Final = ("stream", "sequence", "time", "subject", "headers", "payload", "encoding")
CHUNK_ROWS: Final = 256
# What spreadsheets take for a formula.
_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")


class ExportError(TradewindError):
    """A format that cannot be written here; the text says what is missing."""


def export(stream: str, messages: Sequence[ListedMessage], kind: str) -> AsyncIterator[bytes]:
    """The pieces of a file. ExportError for a format that there is not, before the first piece."""
    if kind == "jsonl":
        return _json_lines(stream, messages)
    if kind == "csv":
        return _csv(stream, messages)
    if kind == "parquet":
        try:
            import pyarrow.parquet  # noqa: F401 - an extra that few need
        except ImportError:
            raise ExportError(
                "Parquet needs pyarrow: pip install 'tradewind[frames]', or take JSON lines"
            ) from None
        return _parquet(stream, messages)
    raise ExportError(f"format must be one of {', '.join(FORMATS)}, not {kind[:40]!r}")


def row_of(stream: str, message: ListedMessage) -> dict[str, Any]:
    """A message as a row: its payload as text, or as Base64 if it is not UTF-8."""
    try:
        payload, encoding = message.data.decode(), "text"
    except UnicodeDecodeError:
        payload, encoding = b64encode(message.data).decode(), "base64"
    headers: dict[str, list[str]] = {}
    for name, value in message.headers:
        headers.setdefault(name, []).append(value)
    return {
        "stream": stream,
        "sequence": message.sequence,
        "time": format_time(message.time_ns),
        "subject": message.subject,
        "headers": headers,
        "payload": payload,
        "encoding": encoding,
    }


def _chunks(messages: Sequence[ListedMessage]) -> list[Sequence[ListedMessage]]:
    return [messages[at : at + CHUNK_ROWS] for at in range(0, len(messages), CHUNK_ROWS)]


async def _json_lines(stream: str, messages: Sequence[ListedMessage]) -> AsyncIterator[bytes]:
    for part in _chunks(messages):
        yield msgspec.json.Encoder().encode_lines([_printable(row_of(stream, m)) for m in part])
        await asyncio.sleep(0)


def _printable(row: dict[str, Any]) -> dict[str, Any]:
    """Without lone surrogates, which bytes of others can become and JSON cannot hold."""
    subject = row["subject"].encode(errors="replace").decode()
    headers = {
        name.encode(errors="replace").decode(): [
            value.encode(errors="replace").decode() for value in values
        ]
        for name, values in row["headers"].items()
    }
    return {**row, "subject": subject, "headers": headers}


async def _csv(stream: str, messages: Sequence[ListedMessage]) -> AsyncIterator[bytes]:
    yield (",".join(COLUMNS) + "\r\n").encode()
    for part in _chunks(messages):
        text = io.StringIO()
        writer = csv.writer(text)
        for message in part:
            row = _printable(row_of(stream, message))
            row["headers"] = msgspec.json.encode(row["headers"]).decode()
            writer.writerow([_cell(row[name]) for name in COLUMNS])
        yield text.getvalue().encode()
        await asyncio.sleep(0)


def _cell(value: Any) -> Any:
    """A cell that no spreadsheet runs as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value


async def _parquet(stream: str, messages: Sequence[ListedMessage]) -> AsyncIterator[bytes]:
    yield await asyncio.to_thread(_parquet_file, stream, messages)


def _parquet_file(stream: str, messages: Sequence[ListedMessage]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [_printable(row_of(stream, message)) for message in messages]
    headers = pa.map_(pa.string(), pa.list_(pa.string()))
    columns: dict[str, Any] = {
        "stream": pa.array([row["stream"] for row in rows], pa.string()),
        "sequence": pa.array([message.sequence for message in messages], pa.uint64()),
        "time": pa.array([message.time_ns for message in messages], pa.timestamp("ns", tz="UTC")),
        "subject": pa.array([row["subject"] for row in rows], pa.string()),
        "headers": pa.array([list(row["headers"].items()) for row in rows], headers),
        "payload": pa.array([message.data for message in messages], pa.binary()),
    }
    made = io.BytesIO()
    pq.write_table(pa.table(columns), made, compression="zstd")
    return made.getvalue()
