"""The codes of responses: of the status messages of NATS, of API errors and of monitoring pages.

Owns the numbers, which are those of HTTP where HTTP has one. The texts beside them belong to those
who write them.
"""

from __future__ import annotations

from typing import Final

# Idle heartbeats and flow control.
HEARTBEAT: Final = 100
OK: Final = 200
# A batch of direct gets, or a backup, is complete.
NO_CONTENT: Final = 204
BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404
REQUEST_TIMEOUT: Final = 408
CONFLICT: Final = 409
WRONG_PIN: Final = 423
FAILED: Final = 500
# There is no subscriber.
NO_RESPONDERS: Final = 503
# A server is there, but cannot serve now.
UNAVAILABLE: Final = 503
