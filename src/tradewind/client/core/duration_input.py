"""Durations as a program writes them: seconds, a timedelta, or a text such as "30s" or "7d".

Owns the conversion to nanoseconds, which the API uses, and its errors. A number means seconds in
every argument and setting of the client; nanoseconds exist only in JSON and in configurations.
"""

from __future__ import annotations

import datetime
import math
from typing import Final

from tradewind.client.errors import OptionsError
from tradewind.durations import (
    DURATION_NS_MAX,
    SECOND_NS,
    DurationTooLong,
    exact_setting_ns,
)

DurationInput = float | str | datetime.timedelta
RIGHT: Final = 'such as 30, timedelta(seconds=30), "30s", "1h30m" or "7d"'
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


def duration_ns(name: str, value: object) -> int:
    """Nanoseconds of a duration; OptionsError that names the argument if it is none or negative."""
    nanoseconds: int | None = None
    if isinstance(value, datetime.timedelta):
        nanoseconds = value // _MICROSECOND * 1000
    elif isinstance(value, str):
        nanoseconds = _text_ns(name, value)
    elif isinstance(value, int) and not isinstance(value, bool):
        nanoseconds = value * SECOND_NS
    elif isinstance(value, float) and math.isfinite(value):
        whole, part = divmod(value, 1)  # a product of large numbers would not be exact
        nanoseconds = int(whole) * SECOND_NS + round(part * SECOND_NS)
    elif value == math.inf:
        nanoseconds = DURATION_NS_MAX + 1
    if nanoseconds is None:
        raise OptionsError(f"{name} must be a duration {RIGHT}, not {value!r}; numbers are seconds")
    if nanoseconds < 0:
        raise OptionsError(f"{name} must not be negative, not {value!r}; numbers are seconds")
    if nanoseconds > DURATION_NS_MAX:
        raise OptionsError(f"{name} must be at most 292 years, not {value!r}; numbers are seconds")
    return nanoseconds


def _text_ns(name: str, text: str) -> int | None:
    try:
        return exact_setting_ns(text)
    except DurationTooLong as error:
        raise OptionsError(f"{name} must be at most 292 years: {error}") from None
    except ValueError:
        return None
