"""Bytes in use and bytes promised to streams, by kind of storage.

Owns four numbers each, of a stream, of its account and of the server. They change in every turn in
which something is stored. The bytes that a stream may store without asking are its *credit*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tradewind import invariants

if TYPE_CHECKING:
    from collections.abc import Callable

    from tradewind.stream.ingest import Ingest

CREDIT_BYTES: Final = 67108864

is_checked = invariants.are_checked()


class Usage:
    """The bytes of one stream, of the streams of an account, or of all of them."""

    def __init__(
        self,
        memory: int = 0,
        storage: int = 0,
        reserved_memory: int = 0,
        reserved_storage: int = 0,
    ) -> None:
        self.memory = memory
        self.storage = storage
        self.reserved_memory = reserved_memory
        self.reserved_storage = reserved_storage

    def replace(self, old: Usage, new: Usage) -> None:
        """Replace one part of the sum."""
        self.memory += new.memory - old.memory
        self.storage += new.storage - old.storage
        self.reserved_memory += new.reserved_memory - old.reserved_memory
        self.reserved_storage += new.reserved_storage - old.reserved_storage


def check_sums(account: Usage, server: Usage) -> None:
    """Assert that no sum is negative, and that no account exceeds the server."""
    assert 0 <= account.memory <= server.memory, (account.memory, server.memory)
    assert 0 <= account.storage <= server.storage, (account.storage, server.storage)
    assert 0 <= account.reserved_memory <= server.reserved_memory, (
        account.reserved_memory,
        server.reserved_memory,
    )
    assert 0 <= account.reserved_storage <= server.reserved_storage, (
        account.reserved_storage,
        server.reserved_storage,
    )


class UsageShare:
    """The share of one stream in the sums of its account and of the server.

    `room_share()` returns how much each stream of the account could still store. `kept_bytes` are
    the bytes stored beside the messages of the stream, which count like those.
    """

    def __init__(
        self, ingest: Ingest, of_account: Usage, of_server: Usage, room_share: Callable[[], int]
    ) -> None:
        self._ingest = ingest
        self._of_account = of_account
        self._of_server = of_server
        self._room_share = room_share
        self._counted = Usage()
        self._is_tight = True
        self.kept_bytes = 0

    def update(self) -> None:
        """Called when the stream has stored or removed messages; its reservation is unchanged."""
        usage = self._counted
        more = self._ingest.store.bytes + self.kept_bytes - usage.memory - usage.storage
        if more:
            if not self._ingest.store.keeps_tombstones:
                usage.memory += more
                self._of_account.memory += more
                self._of_server.memory += more
            else:
                usage.storage += more
                self._of_account.storage += more
                self._of_server.storage += more
            if is_checked:
                check_sums(self._of_account, self._of_server)
        if self._is_tight or self._ingest.credit_bytes < CREDIT_BYTES // 2:
            self.grant_credit()

    def grant_credit(self) -> None:
        """Set how many bytes the stream may store without asking.

        While there is room for the credit of every stream, none can use up that of another;
        otherwise it is distributed anew in every turn.
        """
        share = self._room_share()
        self._is_tight = share < CREDIT_BYTES
        self._ingest.credit_bytes = min(share, CREDIT_BYTES)

    def count(self, usage: Usage) -> None:
        """Set the bytes that the stream uses and reserves."""
        self._of_account.replace(self._counted, usage)
        self._of_server.replace(self._counted, usage)
        self._counted = usage
        if is_checked:
            check_sums(self._of_account, self._of_server)
