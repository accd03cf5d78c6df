"""A raw client that publishes to streams and reads every byte of the answers."""

from __future__ import annotations

import itertools
import json
from typing import Any

from harness import RawClient, ServerProcess

STORE_NOT_CREATED = 10049
WAIT_SECONDS = 20
_numbers = itertools.count(1)


class Publisher:
    """A connection with an inbox; the streams that it makes are removed by `close`."""

    def __init__(self, server: ServerProcess) -> None:
        self.kind = server.kind
        self.client = RawClient(server.port).connect(no_responders=True)
        self._inbox = f"inbox{next(_numbers)}"
        self._requests = 0
        self._streams: list[str] = []
        self.client.send(f"SUB {self._inbox}.* 1\r\n")

    def close(self) -> None:
        for name in self._streams:
            self.send(f"$JS.API.STREAM.DELETE.{name}")
            # What the test has not waited for may come before the answer.
            while f" {self._inbox}.{self._requests} " not in self.client.read_message()[0]:
                pass
        self.client.close()

    # ---------------------------------------------------------------- messages

    def send(self, subject: str, payload: bytes = b"", header: bytes = b"") -> None:
        """Publish with a new inbox as reply; header lines are separated by CRLF."""
        self._requests += 1
        head = f"{subject} {self._inbox}.{self._requests}".encode()
        if not header:
            self.client.send(b"PUB %s %d\r\n%s\r\n" % (head, len(payload), payload))
            return
        block = header if header.startswith(b"NATS/") else b"NATS/1.0\r\n%s\r\n\r\n" % header
        sizes = b"%d %d" % (len(block), len(block) + len(payload))
        self.client.send(b"HPUB %s %s\r\n%s%s\r\n" % (head, sizes, block, payload))

    def publish(self, subject: str, payload: bytes = b"", header: bytes = b"") -> bytes:
        """Publish; gives header block and body of the reply."""
        self.send(subject, payload, header)
        _, block, body = self.client.read_message()
        return block + body

    def refusal(self, subject: str, payload: bytes = b"", header: bytes = b"") -> tuple[int, str]:
        """Publish; gives code and text of the error, (0, "") if it was stored or a duplicate."""
        reply = json.loads(self.publish(subject, payload, header))
        error = reply.get("error")
        if error is None:
            return 0, ""
        assert reply["seq"] == 0
        return error["err_code"], error["description"]

    def answers(self, subject: str, payload: bytes = b"", header: bytes = b"") -> list[list[str]]:
        """Publish; gives the header lines and the body of each reply, up to the last one.

        The last one is a status, or the only one. Times are left out.
        """
        self.send(subject, payload, header)
        found: list[list[str]] = []
        while True:
            _, block, body = self.client.read_message()
            lines = [line for line in block.decode().split("\r\n") if line]
            found.append(
                [line for line in lines if not line.startswith("Nats-Time-Stamp: ")]
                + [body.decode()]
            )
            is_one_of_many = any(line.startswith("Nats-Num-Pending: ") for line in lines)
            if not is_one_of_many or lines[0] != "NATS/1.0":
                return found

    # ---------------------------------------------------------------- API

    def api(self, call: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Call the API; an error is part of the answer."""
        payload = b"" if body is None else json.dumps(body).encode()
        answer: dict[str, Any] = json.loads(self.publish(f"$JS.API.{call}", payload))
        return answer

    def create(self, **config: Any) -> str:
        """Make a stream that listens to `<name in lower case>.>`; gives its name."""
        name = f"S{next(_numbers)}"
        document = {"name": name, "subjects": [f"{name.lower()}.>"], **config}
        answer = self.api(f"STREAM.CREATE.{name}", document)
        # The official server removes the folder of all streams behind the last one, and may do so
        # just when the next one is made.
        while answer.get("error", {}).get("err_code") == STORE_NOT_CREATED:
            answer = self.api(f"STREAM.CREATE.{name}", document)
        assert "error" not in answer, answer
        self._streams.append(name)
        return name

    def update(self, name: str, **changes: Any) -> None:
        """Change a stream."""
        config = self.api(f"STREAM.INFO.{name}")["config"]
        config.pop("metadata", None)
        answer = self.api(f"STREAM.UPDATE.{name}", config | changes)
        assert "error" not in answer, answer

    def state(self, name: str) -> dict[str, Any]:
        """The state of a stream with subjects and deleted sequences, without times."""
        request = {"subjects_filter": ">", "deleted_details": True}
        state: dict[str, Any] = self.api(f"STREAM.INFO.{name}", request)["state"]
        return {key: value for key, value in state.items() if not key.endswith("_ts")}

    def sequences(self, name: str) -> list[int]:
        """The sequences of all messages."""
        state = self.state(name)
        missing = set(state.get("deleted", []))
        return [
            seq for seq in range(state["first_seq"], state["last_seq"] + 1) if seq not in missing
        ]
