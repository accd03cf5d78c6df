"""Object stores: files stored in chunks."""

from tradewind.client.objects.objects import ObjectStore

__all__ = ["ObjectStore"]
