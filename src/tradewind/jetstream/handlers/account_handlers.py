"""API requests about the account itself.

Owns one function per request.
"""

from __future__ import annotations

import msgspec

from tradewind.api.responses import API_LEVEL, AccountInfoResponse
from tradewind.jetstream.api_request import ApiRequest


def info(request: ApiRequest) -> AccountInfoResponse:
    """INFO."""
    fields = msgspec.structs.asdict(request.tenant.info(request.engine.domain, API_LEVEL))
    return AccountInfoResponse(**fields)
