"""The requests of `jsm` to a server, in the API of the first preview.

Owns the subjects, the bodies and parsing the responses. It never prints and never prompts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tradewind.cli.frame.failures import CommandError
from tradewind.client.errors import NoRespondersError
from tradewind.status_codes import NO_RESPONDERS

if TYPE_CHECKING:
    from tradewind.client.core.message import Msg
    from tradewind.sync import Connection

OK: Final = "+OK"
REFUSED: Final = "-ERR"
Answer = TypeVar("Answer")
_Names: Any = list[str] | None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of an account; -1 means no limit."""

    max_memory: int = -1
    max_storage: int = -1
    max_msg_sets: int = -1
    max_observables: int = -1


class LegacyAccountInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of an account, and its limits."""

    memory: int = 0
    storage: int = 0
    msg_sets: int = 0
    limits: Limits = Limits()


class SetConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A message set as it is to be; ages are nanoseconds, -1 means no limit."""

    name: str
    subjects: list[str] = []
    retention: str = "stream_limits"
    max_observables: int = -1
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: int = 0
    max_msg_size: int = -1
    storage: str = "file"
    num_replicas: int = 1
    no_ack: bool = False


class SetState(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a message set in numbers."""

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    observable_count: int = 0


class SetInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A message set as it is."""

    config: SetConfig
    stats: SetState


class ObservableConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An observable as it is to be; without a delivery subject it is pulled from."""

    delivery_subject: str = ""
    durable_name: str = ""
    msg_set_seq: int = 0
    start_time: str = ""
    deliver_all: bool = False
    deliver_last: bool = False
    ack_policy: str = "none"
    ack_wait: int = 0
    subject: str = ""
    replay_policy: str = "instant"


class Pair(msgspec.Struct, frozen=True, rename={"observable": "ObsSeq", "message_set": "SetSeq"}):
    """A place in the deliveries of an observable, and in its message set."""

    observable: int = 0
    message_set: int = 0


class ObservableState(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """How far an observable has come; `delivered` is what comes next."""

    delivered: Pair = Pair()
    ack_floor: Pair = Pair()
    pending: dict[str, int] | None = None
    redelivery: dict[str, int] | None = None


class LegacyMessage(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A message as a set holds it."""

    subject: str = ""
    data: bytes = b""
    time: str = ""


class LegacyApi:
    """Requests over one connection."""

    def __init__(self, connection: Connection, timeout: float) -> None:
        self.connection = connection
        self.timeout = timeout

    def ask(self, subject: str, body: str | bytes = b"") -> str:
        """The answer as it came, a refusal too."""
        try:
            answer = self.connection.request(subject, body, timeout=self.timeout)
        except NoRespondersError:
            raise CommandError(
                f"no response on {subject}: this server does not support the first preview",
                "start one that does:  tradewind-server -js",
                "with nats-server use:  tradewind stream, tradewind consumer",
            ) from None
        return answer.data.decode("utf-8", "replace")

    def account(self) -> LegacyAccountInfo:
        """Usage and limits of the account."""
        return self._read("$JS.INFO", "", LegacyAccountInfo)

    def sets(self) -> list[str]:
        """The names of all message sets."""
        return self._names("$JS.MSGSETS", "")

    def add_set(self, config: SetConfig) -> str:
        """Make a message set; the answer of the server."""
        return self.ask("$JS.MSGSET.CREATE", msgspec.json.encode(config))

    def set_info(self, name: str) -> SetInfo:
        """Configuration and state of a message set."""
        return self._read("$JS.MSGSET.INFO", name, SetInfo)

    def message(self, name: str, seq: int) -> LegacyMessage:
        """One message of a set."""
        return self._read(f"$JS.BYSEQ.{name}", str(seq), LegacyMessage)

    def observables(self, name: str) -> list[str]:
        """The names of the observables of a message set."""
        return self._names("$JS.OBSERVABLES", name)

    def add_observable(self, name: str, config: ObservableConfig) -> str:
        """Make an observable; the answer of the server."""
        request = {"msg_set_name": name, "config": config}
        return self.ask("$JS.OBSERVABLE.CREATE", msgspec.json.encode(request))

    def observable_state(self, name: str, observable: str) -> ObservableState:
        """How far an observable has come."""
        return self._read("$JS.OBSERVABLE.INFO", f"{name} {observable}", ObservableState)

    def observable_config(self, name: str, observable: str) -> dict[str, Any]:
        """The configuration of an observable, which only the second preview can tell."""
        subject = f"$JS.STREAM.{name}.CONSUMER.{observable}.INFO"
        config: dict[str, Any] = self._read(subject, "", dict[str, Any])["config"]
        return config

    def next_message(self, name: str, observable: str) -> Msg:
        """The next message of an observable that is pulled from.

        It comes under the subject it was published on, so it needs a subscription of its own.
        """
        subject = f"$JS.RN.{name}.{observable}"
        inbox = self.connection.new_inbox()
        with self.connection.subscribe(inbox, max_msgs=1) as subscription:
            self.connection.publish(subject, b"", reply=inbox)
            message = subscription.next(timeout=self.timeout)
        if message.status == NO_RESPONDERS and not message.data:
            raise CommandError(
                f"message set {name!r} has no pull observable {observable!r}",
                f"list them:  jsm ls-obs {name}",
            )
        return message

    def acknowledge(self, message: Msg) -> None:
        """Say that a message is done; returns when the server has heard it."""
        self.connection.publish(message.reply, OK)
        self.connection.flush(self.timeout)

    def _names(self, subject: str, body: str) -> list[str]:
        """A list of names, which is null if there are none."""
        names: list[str] | None = self._read(subject, body, _Names)
        return names or []

    def _read(self, subject: str, body: str, answer_type: type[Answer]) -> Answer:
        text = self.ask(subject, body)
        if text.startswith(REFUSED):
            raise CommandError(text.removeprefix(REFUSED).strip().strip("'"))
        try:
            return msgspec.json.decode(text, type=answer_type)
        except msgspec.DecodeError as error:
            raise CommandError(f"the server's response to {subject}: {error}") from None
