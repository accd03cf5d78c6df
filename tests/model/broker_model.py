"""A server as one would draw it on a board: lists of sessions and subscriptions, searched from end
to end. It gives what each operation must write, and where the server is free to choose.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from permission_model import denials, publish_allowed, subscribe_allowed
from subject_model import matches

from tradewind.route.permission_rules import PermissionRules

NO_RULES = PermissionRules()


@dataclass
class Subscription:
    subject: str
    queue: str
    delivered: int = 0
    delivered_max: int = 0


@dataclass
class ModelUser:
    account: str
    rules: PermissionRules = NO_RULES


@dataclass
class ModelSession:
    """One connection; `responses` maps a reply to (answers left, deadline)."""

    user: ModelUser
    connected: bool = False
    closed: bool = False
    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    responses: dict[str, list[int]] = field(default_factory=dict)
    in_msgs: int = 0
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0

    def ok(self) -> list[bytes]:
        return [b"+OK\r\n"] if self.verbose else []


@dataclass
class Delivery:
    """One frame that a session may get for one of its subscriptions; `counts`: as a message."""

    session: ModelSession
    subscription: Subscription
    frame: bytes
    size: int
    counts: bool = True


@dataclass
class Outcome:
    """The outcome of an operation: `answer` goes to its sender; then all of `certain`, and one of
    each of `choices`.
    """

    answer: list[bytes] = field(default_factory=list)
    certain: list[Delivery] = field(default_factory=list)
    choices: list[list[Delivery]] = field(default_factory=list)


@dataclass
class Message:
    subject: str
    reply: str
    header: bytes
    payload: bytes


class ModelServer:
    def __init__(self) -> None:
        self.sessions: list[ModelSession] = []
        self.now_ns = 0

    # ---------------------------------------------------------------- operations

    def connect(self, session: ModelSession, user: ModelUser, options: dict[str, bool]) -> Outcome:
        if session.connected:
            session.subscriptions.clear()
        for name, value in options.items():
            setattr(session, name, value)
        session.connected = True
        session.user = user
        session.responses.clear()
        session.subscriptions = {
            sid: kept
            for sid, kept in session.subscriptions.items()
            if subscribe_allowed(user.rules, kept.subject, kept.queue)
        }
        return Outcome(session.ok())

    def subscribe(self, session: ModelSession, subject: str, queue: str, sid: str) -> Outcome:
        if not subscribe_allowed(session.user.rules, subject, queue):
            using = f' using queue "{queue}"' if queue else ""
            text = f'Permissions Violation for Subscription to "{subject}"{using}'
            return Outcome([error(text)])
        session.subscriptions.setdefault(sid, Subscription(subject, queue))
        return Outcome(session.ok())

    def unsubscribe(self, session: ModelSession, sid: str, count_max: int) -> Outcome:
        found = session.subscriptions.get(sid)
        if found is not None:
            found.delivered_max = count_max
            if found.delivered >= count_max:
                del session.subscriptions[sid]
        return Outcome(session.ok())

    def publish(self, session: ModelSession, message: Message) -> Outcome:
        session.in_msgs += 1
        session.in_bytes += len(message.header) + len(message.payload)
        outcome = Outcome()
        tokens = message.subject.split(".")
        if session.pedantic and ("*" in tokens or ">" in tokens or "" in tokens):
            outcome.answer.append(error("Invalid Publish Subject"))
        if not self._may_publish(session, message.subject):
            text = f'Permissions Violation for Publish to "{message.subject}"'
            outcome.answer.append(error(text))
            return outcome
        outcome.answer += session.ok()
        groups: dict[str, list[Delivery]] = {}
        for target in self.sessions:
            for sid, subscription in target.subscriptions.items():
                if not self._receives(session, target, subscription, message.subject):
                    continue
                delivery = deliver(target, subscription, sid, message)
                if subscription.queue:
                    groups.setdefault(subscription.queue, []).append(delivery)
                else:
                    outcome.certain.append(delivery)
        outcome.choices = list(groups.values())
        if not outcome.certain and not groups and message.reply and session.no_responders:
            outcome.choices = self._no_responders(session, message)
        return outcome

    def close(self, session: ModelSession) -> None:
        session.closed = True
        session.subscriptions.clear()

    # ---------------------------------------------------------------- rules

    def _may_publish(self, session: ModelSession, subject: str) -> bool:
        if publish_allowed(session.user.rules, subject):
            return True
        entry = session.responses.get(subject)
        if entry is None or entry[1] <= self.now_ns:
            return False
        entry[0] -= 1
        if entry[0] == 0:
            del session.responses[subject]
        return True

    def _receives(
        self,
        origin: ModelSession,
        target: ModelSession,
        subscription: Subscription,
        subject: str,
    ) -> bool:
        return (
            target.user.account == origin.user.account
            and matches(subscription.subject, subject)
            and (target is not origin or target.echo)
            and subject not in denials(target.user.rules, subscription.queue)
        )

    def _no_responders(self, session: ModelSession, message: Message) -> list[list[Delivery]]:
        """One status message through any one of the publisher's own subscriptions to the reply."""
        status = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % message.subject.encode()
        answer = Message(message.reply, "", status, b"")
        own = [
            Delivery(session, found, frame(answer, sid, with_header=True), len(status), False)
            for sid, found in session.subscriptions.items()
            if not found.queue and matches(found.subject, message.reply)
        ]
        return [own] if own else []

    def happened(self, delivery: Delivery, reply: str) -> None:
        """The server has made this delivery."""
        if not delivery.counts:
            return
        session, subscription = delivery.session, delivery.subscription
        session.out_msgs += 1
        session.out_bytes += delivery.size
        subscription.delivered += 1
        if subscription.delivered == subscription.delivered_max:
            session.subscriptions = {
                sid: kept for sid, kept in session.subscriptions.items() if kept is not subscription
            }
        rule = session.user.rules.responses
        if rule is not None and reply:
            session.responses[reply] = [rule.count_max, self.now_ns + rule.expires_ns]


def error(text: str) -> bytes:
    return f"-ERR '{text}'\r\n".encode()


def frame(message: Message, sid: str, *, with_header: bool) -> bytes:
    """MSG, or HMSG for a receiver that understands headers."""
    header = message.header if with_header else b""
    body = header + message.payload
    words = [message.subject, sid]
    words += [message.reply] if message.reply else []
    words += [str(len(header))] if header else []
    line = " ".join(["HMSG" if header else "MSG", *words, str(len(body))])
    return line.encode() + b"\r\n" + body + b"\r\n"


def deliver(
    session: ModelSession, subscription: Subscription, sid: str, message: Message
) -> Delivery:
    size = len(message.payload) + (len(message.header) if session.headers else 0)
    return Delivery(session, subscription, frame(message, sid, with_header=session.headers), size)
