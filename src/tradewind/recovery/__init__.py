"""Disaster recovery: a stream, its mirror on another server, and changing over between them.

`DisasterRecovery` is for programs without an event loop, `AsyncDisasterRecovery` for those with
one. Both work with any NATS server; `tradewind dr` is the command line. `tradewind move` shares the
parts that freeze a stream, compare two copies and place consumers.
"""

from __future__ import annotations

from tradewind.recovery.asynchronous import AsyncDisasterRecovery
from tradewind.recovery.contents import Comparison, RangeDifference
from tradewind.recovery.protection_status import ConsumerProtection, RecoveryState, StreamStatus
from tradewind.recovery.recovery import DisasterRecovery
from tradewind.recovery.recovery_errors import RecoveryError
from tradewind.recovery.recovery_journal import RecoveryJournal, RecoveryKind, RecoveryStep

__all__ = [
    "AsyncDisasterRecovery",
    "Comparison",
    "ConsumerProtection",
    "DisasterRecovery",
    "RangeDifference",
    "RecoveryError",
    "RecoveryJournal",
    "RecoveryKind",
    "RecoveryState",
    "RecoveryStep",
    "StreamStatus",
]
