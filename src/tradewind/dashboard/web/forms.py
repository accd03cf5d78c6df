"""Read form data of visitors, within limits.

Owns the limits on bodies. It never interprets the fields, which is up to the views.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect

from tradewind.dashboard.data.transfer_data import BrokenOffError
from tradewind.dashboard.views.call import BadFormError

if TYPE_CHECKING:
    from starlette.requests import Request

FORM_BYTES_MAX: Final = 4 << 20
FIELDS_MAX: Final = 100
# A file is processed piece by piece, so only its length is bounded.
FILE_BYTES_MAX: Final = 1 << 40


async def file_body(request: Request) -> AsyncGenerator[bytes, None]:
    """The raw bytes of an uploaded file, in pieces as they arrive."""
    received = 0
    try:
        async for chunk in request.stream():
            received += len(chunk)
            if received > FILE_BYTES_MAX:
                raise BadFormError(f"a file must have at most {FILE_BYTES_MAX >> 40} TiB")
            if chunk:
                yield chunk
    except ClientDisconnect:
        raise BrokenOffError("the browser cancelled the request") from None


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form; the last one counts if a name comes twice."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise BadFormError("a form must be sent as application/x-www-form-urlencoded")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise BadFormError(f"a form must have at most {FORM_BYTES_MAX >> 20} MiB")
    try:
        pairs = parse_qsl(
            body.decode(),
            keep_blank_values=True,
            max_num_fields=FIELDS_MAX,
            errors="strict",
        )
    except (ValueError, UnicodeDecodeError):
        raise BadFormError(f"a form must have at most {FIELDS_MAX} fields, in UTF-8") from None
    # Browsers send line ends as CR LF.
    return {name: value.replace("\r\n", "\n") for name, value in pairs}
