"""The contract of a decoder of payloads.

Owns the interface between users of payloads (lake tables, pipelines, SQL) and modules that know a
format (JSON, Avro, ...). A decoder is a value: it can be pickled, travels to executors, and returns
the same columns for the same payloads and fields, so that a repeated batch is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from tradewind.errors import TradewindError

if TYPE_CHECKING:
    import pyarrow as pa

# The column of what the others do not hold.
RESCUED_COLUMN: Final = "_rescued"


class DecodingError(TradewindError):
    """A format, a schema or a registry that cannot be used; the text says what would be right."""


@dataclass(frozen=True, slots=True)
class DecodedPayloads:
    """The columns of some payloads; all three have one entry per payload, in their order.

    `columns` is a struct with the fields that were asked for. `rescued` is a JSON object with what
    a payload has beside them, or what does not fit their types, by field; null if there is nothing.
    `reasons` says why a payload could not be decoded at all; null if it could. The columns of such
    a payload are null.
    """

    columns: pa.StructArray
    rescued: pa.StringArray
    reasons: pa.StringArray


class Decoder(Protocol):
    """One format with its schema."""

    def fields(self, payloads: pa.BinaryArray, known: pa.Schema) -> pa.Schema:
        """The known fields and those that these payloads add, the known ones first and unchanged
        except that numbers may be wider.

        A decoder with a schema that was given returns that schema, whatever the payloads hold.
        """

    def decode(self, payloads: pa.BinaryArray, fields: pa.Schema) -> DecodedPayloads:
        """The payloads as these fields; null payloads are null in all columns, without a reason."""
