"""Whether messages of one Protobuf type can be read with another one.

Owns which changes keep messages readable: fields are known by number, types of one group share
their bytes, and a field that is gone is unknown to the reader, which is allowed. Names are free.
"""

from __future__ import annotations

from typing import Any, Final

from tradewind.schemas.protobuf_check import message_descriptor

# From narrow to wide: a value that does not fit would be cut.
_READABLE: Final = {
    "TYPE_INT32": ("TYPE_INT32", "TYPE_INT64"),
    "TYPE_UINT32": ("TYPE_UINT32", "TYPE_UINT64", "TYPE_INT64"),
    "TYPE_BOOL": ("TYPE_BOOL", "TYPE_INT32", "TYPE_INT64", "TYPE_UINT32", "TYPE_UINT64"),
    "TYPE_ENUM": ("TYPE_ENUM", "TYPE_INT32", "TYPE_INT64"),
    "TYPE_SINT32": ("TYPE_SINT32", "TYPE_SINT64"),
    "TYPE_STRING": ("TYPE_STRING", "TYPE_BYTES"),
}


def protobuf_problem(writer: Any, reader: Any) -> str:
    """Why messages of the writer's type cannot be read with the reader's; empty if they can.

    Both are a descriptor set and the name of a message.
    """
    comparison = _TypeComparison()
    return comparison.match(message_descriptor(*writer), message_descriptor(*reader), "")


class _TypeComparison:
    """One comparison; types may hold themselves, so each pair is compared once."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()

    def match(self, writer: Any, reader: Any, path: str) -> str:
        """Why messages of one type cannot be read as the other."""
        pair = (writer.full_name, reader.full_name)
        if pair in self._seen:
            return ""
        self._seen.add(pair)
        written = writer.fields_by_number
        for number, field in reader.fields_by_number.items():
            where = f"{path}/{field.name}"
            known = written.get(number)
            if field.is_required and (known is None or not known.is_required):
                return f"{where}: is required now, and was not before"
            if known is not None and (problem := self._field(known, field, where)):
                return problem
        return ""

    def _field(self, writer: Any, reader: Any, where: str) -> str:
        number = reader.number
        if writer.is_repeated != reader.is_repeated:
            return f"{where}: field {number} is repeated in one version only"
        old, new = _type_name(writer), _type_name(reader)
        if new not in _READABLE.get(old, (old,)):
            return f"{where}: field {number} was {_short(old)}, and is {_short(new)} now"
        if _is_one_of_several(reader) and not _is_one_of_several(writer):
            return f"{where}: field {number} has moved into a oneof"
        if new == "TYPE_ENUM":
            return _enum_problem(writer.enum_type, reader.enum_type, where)
        if reader.message_type is not None:
            return self.match(writer.message_type, reader.message_type, where)
        return ""


def _enum_problem(writer: Any, reader: Any, where: str) -> str:
    """Closed enums lose values that they do not list."""
    if not reader.is_closed:
        return ""
    lost = sorted(set(writer.values_by_number) - set(reader.values_by_number))
    return f"{where}: value {lost[0]} of the enum is gone" if lost else ""


def _is_one_of_several(field: Any) -> bool:
    group = field.containing_oneof
    return group is not None and len(group.fields) > 1


def _type_name(field: Any) -> str:
    return _NAMES[field.type]


def _short(name: str) -> str:
    return name.removeprefix("TYPE_").lower()


# The numbers of types, as descriptors have them.
_NAMES: Final = dict(
    enumerate(
        (
            *("TYPE_DOUBLE", "TYPE_FLOAT", "TYPE_INT64", "TYPE_UINT64", "TYPE_INT32"),
            *("TYPE_FIXED64", "TYPE_FIXED32", "TYPE_BOOL", "TYPE_STRING", "TYPE_GROUP"),
            *("TYPE_MESSAGE", "TYPE_BYTES", "TYPE_UINT32", "TYPE_ENUM", "TYPE_SFIXED32"),
            *("TYPE_SFIXED64", "TYPE_SINT32", "TYPE_SINT64"),
        ),
        start=1,
    )
)
