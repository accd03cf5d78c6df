"""Values of payloads as values of columns, and what is left of them.

Owns which value fits which type. A value fits only if it is exactly the same in the column; what
does not is returned as left over, so that nothing is lost. The module never knows a format.
"""

from __future__ import annotations

import binascii
import math
import re
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

import msgspec
import pyarrow as pa

# No value at all: null is one.
ABSENT: Final[Any] = object()
# Returns the value in the column, and what is left over or ABSENT.
Fit = Callable[[Any], tuple[Any, Any]]
_EXACT_FLOAT: Final = 1 << 53
_FLOAT32_MAX: Final = 3.4028235677973366e38
_DECIMALS: Final = Context(prec=80, traps=[InvalidOperation])
_MICROSECONDS: Final = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")
_BITS: Final = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}


def _encoded(value: Any) -> Any:
    """For the JSON library: what it does not know by itself."""
    if isinstance(value, msgspec.msgpack.Ext):
        return {"ext": value.code, "data": bytes(value.data)}
    return str(value)


_ENCODER: Final = msgspec.json.Encoder(decimal_format="number", enc_hook=_encoded)


def json_text(value: Any) -> str:
    """A value as JSON: bytes in base64, times as ISO 8601, numbers that JSON has not as text."""
    return _ENCODER.encode(plain(value)).decode()


def plain(value: Any) -> Any:
    """A value that JSON can hold without loss: no NaN, and names as keys.

    A map whose keys are no names is a list of pairs.
    """
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: plain(one) for key, one in value.items()}
        return [[plain(key), plain(one)] for key, one in value.items()]
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def fit_for(kind: pa.DataType) -> Fit:
    """The function that fits values into columns of a type."""
    if pa.types.is_struct(kind):
        return _struct_fit([(field.name, fit_for(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_fit(fit_for(kind.value_type))
    if pa.types.is_map(kind):
        return _map_fit(fit_for(kind.item_type))
    if pa.types.is_decimal(kind):
        return _decimal_fit(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return _zoned_fit if kind.tz else _local_fit
    if kind in _BITS:
        return _integer_fit(_BITS[kind])
    for is_kind, fit in _SCALAR_FITS:
        if is_kind(kind):
            return fit
    # An Arrow type of a decoder of the user: Arrow itself checks the values.
    return lambda value: (value, ABSENT)


def _struct_fit(fields: list[tuple[str, Fit]]) -> Fit:
    def fit(value: Any) -> tuple[Any, Any]:
        if not isinstance(value, dict):
            return None, value
        fitted, left, seen = {}, {}, 0
        for name, inner in fields:
            if name not in value:
                continue
            seen += 1
            one = value[name]
            if one is None:
                continue
            fitted[name], rest = inner(one)
            if rest is not ABSENT:
                left[name] = rest
        if seen < len(value):
            names = {name for name, _ in fields}
            left |= {
                name: one for name, one in value.items() if name not in names and one is not None
            }
        return fitted, left or ABSENT

    return fit


def _list_fit(inner: Fit) -> Fit:
    def fit(value: Any) -> tuple[Any, Any]:
        if not isinstance(value, list | tuple):
            return None, value
        fitted, is_whole = [], True
        for one in value:
            item, rest = (None, ABSENT) if one is None else inner(one)
            fitted.append(item)
            is_whole = is_whole and rest is ABSENT
        # The place in the list matters, so all of it is kept.
        return fitted, ABSENT if is_whole else value

    return fit


def _map_fit(inner: Fit) -> Fit:
    def fit(value: Any) -> tuple[Any, Any]:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            return None, value
        fitted, left = [], {}
        for key, one in value.items():
            item, rest = (None, ABSENT) if one is None else inner(one)
            fitted.append((key, item))
            if rest is not ABSENT:
                left[key] = rest
        return fitted, left or ABSENT

    return fit


def _integer_fit(bits: int) -> Fit:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def fit(value: Any) -> tuple[Any, Any]:
        if type(value) is int:
            return (value, ABSENT) if least <= value <= most else (None, value)
        if isinstance(value, float | Decimal) and -_EXACT_FLOAT <= value <= _EXACT_FLOAT:
            whole = int(value)
            if whole == value and least <= whole <= most:
                return whole, ABSENT
        return None, value

    return fit


def _double_fit(value: Any) -> tuple[Any, Any]:
    if type(value) is float:
        return value, ABSENT
    if type(value) is int:
        if -_EXACT_FLOAT <= value <= _EXACT_FLOAT:
            return float(value), ABSENT
        try:
            is_exact = int(float(value)) == value
        except OverflowError:
            is_exact = False
        return (float(value), ABSENT) if is_exact else (None, value)
    if isinstance(value, Decimal) and math.isfinite(float(value)):
        return float(value), ABSENT
    return None, value


def _float_fit(value: Any) -> tuple[Any, Any]:
    number, rest = _double_fit(value)
    if number is not None and math.isfinite(number) and abs(number) >= _FLOAT32_MAX:
        return None, value
    return number, rest


def _boolean_fit(value: Any) -> tuple[Any, Any]:
    return (value, ABSENT) if isinstance(value, bool) else (None, value)


def _string_fit(value: Any) -> tuple[Any, Any]:
    """Fit any value as text; a value that is not a text is also left over, with its type."""
    return (value, ABSENT) if isinstance(value, str) else (json_text(value), value)


def _binary_fit(value: Any) -> tuple[Any, Any]:
    if isinstance(value, bytes):
        return value, ABSENT
    if isinstance(value, str):
        try:
            return b64decode(value, validate=True), ABSENT
        except (binascii.Error, ValueError):
            return None, value
    return None, value


def _zoned_fit(value: Any) -> tuple[Any, Any]:
    moment, rest = _moment(value)
    if moment is None:
        return None, value
    try:
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        return None, value
    return moment, rest


def _local_fit(value: Any) -> tuple[Any, Any]:
    moment, rest = _moment(value)
    return (None, value) if moment is None or moment.tzinfo else (moment, rest)


def _moment(value: Any) -> tuple[datetime | None, Any]:
    if isinstance(value, datetime):
        return value, ABSENT
    if isinstance(value, str) and len(value) <= 64:
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None, value
        # More digits than a column has are left over.
        return moment, value if _MICROSECONDS.search(value) else ABSENT
    return None, value


def _date_fit(value: Any) -> tuple[Any, Any]:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value, ABSENT
    if isinstance(value, str) and len(value) <= 64:
        try:
            return date.fromisoformat(value), ABSENT
        except ValueError:
            return None, value
    return None, value


def _decimal_fit(precision: int, scale: int) -> Fit:
    unit = Decimal(1).scaleb(-scale)

    def fit(value: Any) -> tuple[Any, Any]:
        if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
            return None, value
        if isinstance(value, str) and len(value) > 128:
            return None, value
        try:
            exact = Decimal(repr(value) if isinstance(value, float) else value)
            number = exact.quantize(unit, context=_DECIMALS)
        except (InvalidOperation, ValueError):
            return None, value
        if number != exact or len(number.as_tuple().digits) > precision:
            return None, value
        return number, ABSENT

    return fit


_SCALAR_FITS: Final[tuple[tuple[Callable[[pa.DataType], bool], Fit], ...]] = (
    (pa.types.is_float64, _double_fit),
    (pa.types.is_float32, _float_fit),
    (pa.types.is_boolean, _boolean_fit),
    (pa.types.is_string, _string_fit),
    (pa.types.is_large_string, _string_fit),
    (pa.types.is_binary, _binary_fit),
    (pa.types.is_large_binary, _binary_fit),
    (pa.types.is_date32, _date_fit),
)
