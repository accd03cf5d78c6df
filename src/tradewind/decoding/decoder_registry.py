"""Decoders by their names.

Owns which name means which format, and its options. A name that is no format is a decoder of the
user: `module:function`, or an entry point in the group `tradewind.decoders`. The module never reads
a payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa

from tradewind.decoding.avro_payloads import AvroReader
from tradewind.decoding.csv_payloads import CsvReader
from tradewind.decoding.decoder_contract import Decoder, DecodingError
from tradewind.decoding.installed_decoders import installed_decoders
from tradewind.decoding.json_columns import JsonDecoder
from tradewind.decoding.json_payloads import JsonReader
from tradewind.decoding.msgpack_payloads import MsgpackReader
from tradewind.decoding.plain_payloads import RawDecoder, TextDecoder
from tradewind.decoding.protobuf_payloads import ProtobufReader
from tradewind.decoding.row_decoding import ObjectDecoder, renamed
from tradewind.decoding.schema_sources import SchemaContext, find_schema, is_reference
from tradewind.decoding.type_texts import columns_of
from tradewind.decoding.user_decoders import (
    UserDecoder,
    function_at,
    is_place,
)
from tradewind.decoding.written_schemas import WrittenSchemas

INFER: Final = "infer"
RAW: Final = "raw"
NO_CONTEXT: Final = SchemaContext()
FORMATS: Final = ("json", "text", "raw", "csv", "msgpack", "avro", "protobuf")
_DELIMITERS: Final = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}


def open_decoder(
    payload: str,
    schema: str | Mapping[str, str] = INFER,
    *,
    reserved: Iterable[str] = (),
    widens: bool = False,
    context: SchemaContext = NO_CONTEXT,
) -> Decoder:
    """The decoder of a format; DecodingError says what is wrong with the name or the schema.

    `reserved` are columns that the table has beside those of the payload: a field with such a name
    becomes `payload_<name>`. With `widens`, a known `bigint` becomes `double` if it must. `context`
    says where schemas are that are not in `schema` itself; they are read here, once.
    """
    name, _, options = payload.partition("?")
    if options and name != "csv":
        raise DecodingError(f"payload {payload!r}: only csv has options; write {name!r}")
    if RAW in (name, schema):
        return RawDecoder()
    if name == "text":
        if schema != INFER:
            raise DecodingError("payload text has one column, `text`; leave the schema out")
        return TextDecoder()
    taken = tuple(sorted({each.lower() for each in reserved}))
    place = name if is_place(name) or name in FORMATS else installed_decoders().get(name, "")
    if not place:
        raise DecodingError(
            f"payload {name!r} is no format; it must be one of {', '.join(_names())}, or"
            " module:function"
        )
    if place in ("avro", "protobuf"):
        return ObjectDecoder(_schema_reader(place, schema, context), taken, widens)
    given = _given(schema, place, context)
    if given is not None:
        renamed(given, taken)  # refuses what cannot be columns, before anything is read
    if place == "json":
        return JsonDecoder(JsonReader(given), taken, widens)
    if place == "msgpack":
        return ObjectDecoder(MsgpackReader(given), taken, widens)
    if place == "csv":
        return ObjectDecoder(csv_reader(options, given), taken, widens)
    function_at(place)
    return UserDecoder(place, given, taken, widens)


def _schema_reader(
    name: str, schema: str | Mapping[str, str], context: SchemaContext
) -> AvroReader | ProtobufReader:
    """The reader of a format that cannot be read without its schema."""
    if not isinstance(schema, str) or not is_reference(schema):
        raise DecodingError(
            f"payload {name} needs a schema: file:PATH, bucket:NAME or registry:URL"
        )
    found = find_schema(schema, name, context)
    assert isinstance(found, WrittenSchemas)
    return AvroReader(found) if name == "avro" else ProtobufReader(found)


def _given(schema: str | Mapping[str, str], name: str, context: SchemaContext) -> pa.Schema | None:
    if schema == INFER:
        return None
    if isinstance(schema, str) and is_reference(schema):
        found = find_schema(schema, name, context)
        assert isinstance(found, pa.Schema)
        return found
    return columns_of(schema)


def _names() -> list[str]:
    return [*FORMATS, *sorted(set(installed_decoders()) - set(FORMATS))]


def csv_reader(options: str, given: pa.Schema | None) -> CsvReader:
    """A reader with options: `header&delimiter=;`."""
    delimiter, has_header = ",", False
    for option in filter(None, options.split("&")):
        key, _, value = option.partition("=")
        if key == "header" and value in ("", "true", "false"):
            has_header = value != "false"
        elif key == "delimiter" and (len(value) == 1 or value in _DELIMITERS):
            delimiter = _DELIMITERS.get(value, value)
        else:
            raise DecodingError(
                f"payload csv: option {option!r} is unknown; there are header, and delimiter= with"
                " one character or tab, comma, semicolon, pipe"
            )
    return CsvReader(given, delimiter, has_header)
