from tradewind.client.core.protocol import MessageInbox
from tradewind.jetstream.replication.inbox import Inbox

class RemoteSubscription(MessageInbox):
    def __init__(self, subject: str, inbox: Inbox) -> None: ...
