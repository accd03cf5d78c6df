"""Services: running, discovering and calling them."""

from tradewind.client.services.services import Request, Service

__all__ = ["Request", "Service"]
