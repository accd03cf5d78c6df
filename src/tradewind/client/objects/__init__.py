"""Object stores: files cut into chunks."""

from tradewind.client.objects.objects import ObjectStore

__all__ = ["ObjectStore"]
