from collections.abc import Callable

from tradewind.broker.accounts import Account, InternalMessage, SubscriptionInfo
from tradewind.broker.leaf_session import AccountLeaves
from tradewind.broker.message_trace import MessageTrace
from tradewind.broker.session import Session
from tradewind.broker.turn import Turn
from tradewind.broker.turn_watch import TurnWatch
from tradewind.faults import Faults
from tradewind.otel.recorder import SpanRecorder
from tradewind.route.watches import Changes

class Router:
    @property
    def faults(self) -> Faults: ...
    # The trace of the message that is being published.
    trace: MessageTrace | None
    # The recorder of messages that carry a sampled traceparent.
    spans: SpanRecorder | None
    # Called as on_trace(session, subject, sid, reply, body) for every delivery.
    on_trace: Callable[[Session, bytes, bytes, bytes, bytes], None] | None
    @property
    def pressure(self) -> bool: ...
    @property
    def has_work(self) -> bool: ...
    @property
    def crowded_count(self) -> int: ...
    @property
    def turn(self) -> Turn: ...
    @property
    def changes(self) -> Changes: ...
    @property
    def largest_pending(self) -> int: ...
    @property
    def in_msgs(self) -> int: ...
    @property
    def in_bytes(self) -> int: ...
    @property
    def out_msgs(self) -> int: ...
    @property
    def out_bytes(self) -> int: ...
    def __init__(self, seed: int) -> None: ...
    @property
    def telling(self) -> list[AccountLeaves]: ...
    def tell_interest(self) -> None: ...
    def drop_leaving(self) -> None: ...
    @property
    def has_touched(self) -> bool: ...
    def run_internal(
        self,
        on_error: Callable[[InternalMessage, Exception], None],
        watch: TurnWatch,
        count_max: int = 64,
    ) -> int: ...
    def run_resumed(
        self, on_error: Callable[[Session, Exception], None], watch: TurnWatch
    ) -> None: ...
    def ask_internal(
        self,
        account: Account,
        subject: bytes,
        payload: bytes,
        reply: bytes = b"",
        header: bytes = b"",
    ) -> int: ...
    def publish_internal(
        self,
        account: Account,
        subject: bytes,
        payload: bytes,
        reply: bytes = b"",
        header: bytes = b"",
    ) -> int: ...
    def describe(self, account: Account, handle: int) -> SubscriptionInfo: ...
