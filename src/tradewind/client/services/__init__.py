"""Services: running them, finding them, asking them."""

from tradewind.client.services.services import Request, Service

__all__ = ["Request", "Service"]
