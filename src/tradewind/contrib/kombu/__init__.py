"""A transport of kombu and a result backend of Celery for NATS servers with JetStream.

    import tradewind.contrib.kombu

    app = Celery(broker="tradewind://127.0.0.1:4222", backend="tradewind://127.0.0.1:4222")

Importing it registers `tradewind://` and `nats://` as broker URLs with kombu. The extra `celery`
installs both libraries.
"""

from __future__ import annotations

from typing import Final

from kombu.transport import TRANSPORT_ALIASES

from tradewind.contrib.kombu.kombu_transport import TradewindTransport

PATH: Final = "tradewind.contrib.kombu:TradewindTransport"

for _scheme in ("tradewind", "nats"):
    TRANSPORT_ALIASES.setdefault(_scheme, PATH)

__all__ = ["TradewindTransport"]
