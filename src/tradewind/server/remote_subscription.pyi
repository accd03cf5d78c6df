from tradewind.client.core.protocol import SubscriptionCore
from tradewind.jetstream.replication.inbox import Inbox

class RemoteSubscription(SubscriptionCore):
    def __init__(self, subject: str, inbox: Inbox) -> None: ...
