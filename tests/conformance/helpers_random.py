"""Random scripts of requests, as realistic as possible: from a seed, always the same.

Owns what may occur in a script; `helpers_script` plays it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from conformance.helpers_script import Step

HOUR_NS = 3_600_000_000_000
SECOND_NS = 1_000_000_000
PAST = "2020-01-01T00:00:00Z"
FUTURE = "2090-01-01T00:00:00Z"


class Script:
    """Steps about two streams whose names begin with `prefix`."""

    def __init__(self, seed: int, prefix: str) -> None:
        self._random = random.Random(seed)
        # Where purges choose messages, nothing is ever pending: the official server leaves some of
        # what it purged pending, and its floor jumps over others.
        self._acks = seed % 2 == 0
        # Whether a client waits and listens all the time, or asks only when the script does. A
        # request that does not wait may be left over where acks are awaited, and each server ends
        # it at another moment; so these do not mix.
        self._is_live = seed // 2 % 2 == 1
        self._waiting = 0
        # Streams with consumers of last messages: the official server may lose them in a purge.
        self._lasts: set[str] = set()
        self._streams = [f"{prefix}A", f"{prefix}B"]
        self._consumers = ["one", "two", "three"]
        self._generations = dict.fromkeys(self._streams, 0)
        # What was last asked for; most changes are small ones.
        self._configs: dict[str, dict[str, Any]] = {}
        self._makers: list[tuple[int, Callable[[], list[Step]]]] = [
            (4, self._create_stream),
            (4, self._update_stream),
            (1, self._delete_stream),
            (4, self._stream_info),
            (2, self._lists),
            (3, self._purge),
            (4, self._message_get),
            (3, self._message_delete),
            (5, self._direct_get),
            (24, self._publish),
            (10, self._create_consumer),
            (6, self._consumer_info),
            (2, self._delete_consumer),
            (2, self._pause),
            (2, self._reset),
            (0 if self._is_live else 14, self._pull),
            (14 if self._is_live else 0, self._wait),
            (6 if self._is_live else 0, self._listen),
            (20 if self._is_live else 14, self._ack),
        ]

    def steps(self, count: int) -> list[Step]:
        """A script of at least so many steps; something to work with is there from the start."""
        found = [step for _ in range(3) for step in self._create_stream()]
        found += [step for _ in range(4) for step in self._create_consumer()]
        weights = [weight for weight, _ in self._makers]
        while len(found) < count:
            _, maker = self._random.choices(self._makers, weights)[0]
            found += maker()
            if self._is_live:
                found.append(Step("collect", is_read=True))
        return found

    # ---------------------------------------------------------------- choices

    def _one(self, *values: Any) -> Any:
        return self._random.choice(values)

    def _maybe(self, chance: float) -> bool:
        return self._random.random() < chance

    def _stream(self) -> str:
        return self._one(self._streams[0], *self._streams)

    def _name(self, stream: str) -> str:
        """The name of a stream; another one each time it was deleted."""
        return f"{stream}{self._generations[stream]}"

    def _subject(self, stream: str) -> str:
        return f"{stream.lower()}.{self._one('a', 'b', 'c')}.{self._one('x', 'y')}"

    def _filter(self, stream: str) -> str:
        base = stream.lower()
        return self._one(
            f"{base}.>", f"{base}.a.*", f"{base}.*.x", f"{base}.b.y", f"{base}.none", f"{base}.a.>"
        )

    def _pick(self, fields: dict[str, tuple[Any, ...]], chance: float) -> dict[str, Any]:
        return {name: self._one(*values) for name, values in fields.items() if self._maybe(chance)}

    # ---------------------------------------------------------------- streams

    def _stream_fields(self, chance: float) -> dict[str, Any]:
        return self._pick(
            {
                "retention": ("limits", "limits", "interest", "workqueue"),
                "max_consumers": (-1, 2, 0),
                "max_msgs": (-1, 5, 10, 0, -5),
                "max_bytes": (-1, 400, 100000),
                "max_age": (0, HOUR_NS, 5, 10 * SECOND_NS * 60),
                "max_msgs_per_subject": (-1, 1, 2, 3),
                "max_msg_size": (-1, 30, 100),
                "discard": ("old", "new"),
                "discard_new_per_subject": (True, False),
                "storage": ("memory", "file"),
                "no_ack": (False, False, False, True),
                "duplicate_window": (HOUR_NS, SECOND_NS, 10 * HOUR_NS, 0),
                "compression": ("none", "s2"),
                "allow_direct": (True, True, False),
                "deny_delete": (True, False, False, False),
                "deny_purge": (True, False, False, False),
                "allow_rollup_hdrs": (True, True, False),
                "allow_msg_ttl": (True, True, False),
                "first_seq": (1, 10, 100),
                "description": ("text", ""),
                "metadata": ({"a": "b"}, {}, {"_nats.x": "y"}),
                "consumer_limits": ({}, {"max_ack_pending": 100}, {"inactive_threshold": HOUR_NS}),
                "sealed": (False, False, False, False, False, True),
                "num_replicas": (1, 1, 1, 0, 3, -1),
                "persist_mode": ("default", "", "async"),
                "placement": ({}, {"cluster": "c"}, {"tags": ["t"]}),
                "mirror_direct": (False, False, True),
                "pedantic": (True, False),
            },
            chance,
        )

    def _create_stream(self) -> list[Step]:
        stream = self._stream()
        name = self._name(stream)
        config = {
            "name": name,
            "subjects": [f"{stream.lower()}.>"],
            "storage": "memory",
            "allow_direct": True,
            **self._stream_fields(0.08),
        }
        if self._maybe(0.1):
            config["subject_transform"] = {
                "src": f"{stream.lower()}.a.*",
                "dest": f"{stream.lower()}.b.{{{{wildcard(1)}}}}",
            }
        if self._maybe(0.1):
            config["republish"] = {"src": ">", "dest": f"re{stream}.>"}
        self._configs[name] = config
        return [Step("api", f"STREAM.CREATE.{name}", config)]

    def _update_stream(self) -> list[Step]:
        stream = self._stream()
        name = self._name(stream)
        config = {**self._configs.get(name, {"name": name}), **self._stream_fields(0.06)}
        config.pop("pedantic", None)
        if not self._acks:
            # The official server does not remove unneeded messages when limits become interest.
            config.pop("retention", None)
        if not self._maybe(0.1):
            config.pop("sealed", None)
        return [Step("api", f"STREAM.UPDATE.{name}", config), *self._info_of(stream)]

    def _delete_stream(self) -> list[Step]:
        stream = self._stream()
        name = self._name(stream)
        self._generations[stream] += 1
        return [Step("api", f"STREAM.DELETE.{name}"), *self._create_stream()]

    def _info_of(self, stream: str) -> list[Step]:
        body = {"deleted_details": True, "subjects_filter": ">"}
        return [Step("api", f"STREAM.INFO.{self._name(stream)}", body, is_read=True)]

    def _stream_info(self) -> list[Step]:
        stream = self._stream()
        body = self._pick(
            {
                "deleted_details": (True, False),
                "subjects_filter": (self._filter(stream), ">", ""),
                "offset": (0, 1, 100, -1),
            },
            0.6,
        )
        return [Step("api", f"STREAM.INFO.{self._name(stream)}", body or None, is_read=True)]

    def _lists(self) -> list[Step]:
        stream = self._stream()
        subject = f"{stream.lower()}.{self._one('a.x', '*', '>', 'a.*')}"
        return [
            Step("api", "STREAM.NAMES", {"subject": subject}, is_read=True),
            Step("api", "STREAM.LIST", {"subject": subject}, is_read=True),
            Step("api", f"CONSUMER.NAMES.{self._name(stream)}", is_read=True),
            Step(
                "api",
                f"CONSUMER.LIST.{self._name(stream)}",
                {"offset": self._one(0, 1, 9)},
                is_read=True,
            ),
        ]

    def _purge(self) -> list[Step]:
        stream = self._stream()
        if self._name(stream) in self._lasts:
            return self._info_of(stream)
        body = self._pick(
            {
                "filter": (self._filter(stream), self._subject(stream), ""),
                "seq": (0, 1, 5, 12, 1000),
                "keep": (0, 1, 2),
            },
            0.0 if self._acks else 0.45,
        )
        name = f"STREAM.PURGE.{self._name(stream)}"
        # What was acknowledged has left before, so both remove the same.
        return [*self._info_of(stream), Step("api", name, body or None), *self._info_of(stream)]

    # ---------------------------------------------------------------- messages

    def _sequence(self) -> int:
        return int(
            self._random.choice([0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 103, 10000])
        )

    def _message_get(self) -> list[Step]:
        stream = self._stream()
        body = self._pick(
            {
                "seq": (self._sequence(), self._sequence()),
                "last_by_subj": (self._subject(stream), self._filter(stream)),
                "next_by_subj": (self._subject(stream), self._filter(stream)),
                "start_time": (PAST, FUTURE),
                "no_hdr": (True, False),
            },
            0.35,
        )
        call = f"STREAM.MSG.GET.{self._name(stream)}"
        return [Step("api", call, body, is_read=True)]

    def _message_delete(self) -> list[Step]:
        stream = self._stream()
        body = {"seq": self._sequence(), **self._pick({"no_erase": (True, False)}, 0.5)}
        call = f"STREAM.MSG.DELETE.{self._name(stream)}"
        return [*self._info_of(stream), Step("api", call, body), *self._info_of(stream)]

    def _direct_get(self) -> list[Step]:
        stream = self._stream()
        body = self._pick(
            {
                "seq": (self._sequence(), self._sequence()),
                "last_by_subj": (self._subject(stream), self._filter(stream)),
                "next_by_subj": (self._subject(stream), self._filter(stream)),
                "start_time": (PAST, FUTURE),
                "batch": (1, 3, 100, 0),
                "max_bytes": (50, 1000, 0),
                "multi_last": ([self._filter(stream)], [self._subject(stream), ">"]),
                "up_to_seq": (self._sequence(), self._sequence()),
                "up_to_time": (PAST, FUTURE),
                "no_hdr": (True, False),
            },
            0.22,
        )
        call = f"DIRECT.GET.{self._name(stream)}"
        if self._maybe(0.3):
            call = f"{call}.{self._subject(stream)}"
            body = self._one(None, None, {"no_hdr": True}, {"seq": 1})
        return [Step("direct", call, body, is_read=True)]

    def _publish(self) -> list[Step]:
        stream = self._stream()
        lines = []
        for name, values in {
            "Nats-Msg-Id": ("i1", "i2", "i3", "i4", f"u{self._random.random()}"),
            "Nats-Expected-Stream": (self._name(stream), self._name(stream), "OTHER"),
            "Nats-Expected-Last-Sequence": (str(self._sequence()), "0"),
            "Nats-Expected-Last-Subject-Sequence": (str(self._sequence()), "0"),
            "Nats-Expected-Last-Subject-Sequence-Subject": (self._filter(stream),),
            "Nats-Expected-Last-Msg-Id": ("i1", "i2"),
            "Nats-Rollup": ("sub", "sub", "all", "bad"),
            "Nats-TTL": ("1h", "never", "100", "0", "bad", "500ms"),
            "X-Own": ("value",),
        }.items():
            if self._maybe(0.07):
                lines.append(f"{name}: {self._one(*values)}".encode())
        payload = b"p" * self._one(0, 1, 5, 5, 5, 20, 40, 120)
        # One at a time if a client waits: the number of later messages depends on the pace.
        count = 1 if self._is_live else self._one(1, 1, 1, 2, 4)
        return [
            Step("publish", self._subject(stream), payload, b"\r\n".join(lines))
            for _ in range(count if not lines else 1)
        ]

    # ---------------------------------------------------------------- consumers

    def _consumer_fields(self, stream: str, chance: float) -> dict[str, Any]:
        return self._pick(
            {
                "deliver_policy": (
                    "all",
                    "last",
                    "new",
                    "last_per_subject",
                    "by_start_sequence",
                    "by_start_time",
                ),
                "opt_start_seq": (0, 1, 3, 50),
                "opt_start_time": (PAST, FUTURE),
                "ack_policy": ("explicit", "all"),
                "ack_wait": (HOUR_NS, 2 * HOUR_NS, -1, 0),
                "max_deliver": (-1, 1, 2, 3, 0),
                "backoff": ([HOUR_NS, 2 * HOUR_NS], [HOUR_NS]),
                "filter_subject": (self._filter(stream), self._subject(stream), ""),
                "filter_subjects": (
                    [self._subject(stream), f"{stream.lower()}.none"],
                    [self._filter(stream)],
                    [self._filter(stream), self._subject(stream)],
                ),
                "replay_policy": ("instant", "instant", "original"),
                "rate_limit_bps": (0, 100000000),
                "sample_freq": ("50%", "x", ""),
                "max_waiting": (1, 5, 0, -1),
                "max_ack_pending": (-1, 1, 3, 100, 0) if self._is_live else (-1, 100, 0),
                "flow_control": (True, False),
                "idle_heartbeat": (HOUR_NS, 5),
                "headers_only": (True, False),
                "max_batch": (2, 100, -1),
                "max_expires": (HOUR_NS, 5),
                "max_bytes": (60, 1000),
                "deliver_subject": (f"push.{stream}.1", f"push.{stream}.2", "bad.*", ""),
                "deliver_group": ("group", ""),
                "inactive_threshold": (HOUR_NS, 2 * HOUR_NS, -1),
                "num_replicas": (0, 1, 2, -1),
                "mem_storage": (True, False),
                "metadata": ({"a": "b"}, {}),
                "description": ("text", ""),
                "pause_until": (PAST, FUTURE),
                "priority_groups": (["g"], ["g", "h"], ["bad group"]),
                "priority_policy": ("none", "overflow", "prioritized"),
                "priority_timeout": (HOUR_NS, 0),
            },
            chance,
        )

    def _create_consumer(self) -> list[Step]:
        stream = self._stream()
        name = self._one(*self._consumers)
        config = {
            "durable_name": name,
            "name": name,
            "ack_policy": "explicit",
            "ack_wait": HOUR_NS,
            **self._consumer_fields(stream, self._one(0.0, 0.03, 0.06, 0.1)),
        }
        if not self._acks:
            config["ack_policy"] = "none"
        if name == "one":
            # The official server does not see new messages where a filter was taken away.
            config.pop("filter_subject", None)
            config.pop("filter_subjects", None)
        elif not config.get("filter_subject") and not config.get("filter_subjects"):
            config["filter_subject"] = f"{stream.lower()}.>"
        if self._maybe(0.15):
            config["deliver_subject"] = f"push.{stream}.{name}"
        if config.get("deliver_policy") == "by_start_sequence" and self._maybe(0.8):
            config["opt_start_seq"] = self._sequence()
        if config.get("deliver_policy") == "by_start_time" and self._maybe(0.8):
            config["opt_start_time"] = self._one(PAST, FUTURE)
        if config.get("deliver_policy") == "last_per_subject":
            self._lasts.add(self._name(stream))
            if self._maybe(0.8):
                config["filter_subject"] = f"{stream.lower()}.>"
        body = {
            "stream_name": self._name(stream),
            "config": config,
            **self._pick({"action": ("create", "update", ""), "pedantic": (True, False)}, 0.1),
        }
        call = f"CONSUMER.CREATE.{self._name(stream)}.{name}"
        if self._maybe(0.1):
            call = f"CONSUMER.DURABLE.CREATE.{self._name(stream)}.{name}"
        elif self._maybe(0.1):
            call = f"{call}.{config.get('filter_subject') or self._subject(stream)}"
        return [Step("api", call, body), *self._info_of_consumer(stream, name)]

    def _info_of_consumer(self, stream: str, name: str) -> list[Step]:
        return [Step("api", f"CONSUMER.INFO.{self._name(stream)}.{name}", is_read=True)]

    def _consumer_info(self) -> list[Step]:
        return self._info_of_consumer(self._stream(), self._one(*self._consumers))

    def _delete_consumer(self) -> list[Step]:
        stream = self._stream()
        name = self._one(*self._consumers)
        call = f"CONSUMER.DELETE.{self._name(stream)}.{name}"
        return [Step("api", call), *self._info_of(stream)]

    def _pause(self) -> list[Step]:
        stream = self._stream()
        name = self._one(*self._consumers)
        until = {"pause_until": self._one(FUTURE, PAST)}
        body = self._one(None, None, None, until)
        call = f"CONSUMER.PAUSE.{self._name(stream)}.{name}"
        return [Step("api", call, body), *self._info_of_consumer(stream, name)]

    def _reset(self) -> list[Step]:
        stream = self._stream()
        if self._name(stream) in self._lasts:  # miscounted by the official server
            return self._info_of(stream)
        name = self._one(*self._consumers)
        body = None if self._acks else self._one(None, {"seq": 1})
        exists = Step("api", f"CONSUMER.INFO.{self._name(stream)}.{name}", is_read=True)
        call = f"CONSUMER.RESET.{self._name(stream)}.{name}"
        return [exists, Step("reset", call, body), *self._info_of_consumer(stream, name)]

    def _pull(self) -> list[Step]:
        stream = self._stream()
        name = self._one(*self._consumers)
        batch = self._one(1, 1, 2, 5, 20)
        body: dict[str, Any] = {"batch": batch, "no_wait": True}
        body |= self._pick({"max_bytes": (60, 200, 2000)}, 0.1)
        body |= self._pick(
            {"group": ("g", "h"), "min_pending": (1, 5), "priority": (1, 12), "id": ("x",)}, 0.03
        )
        asked = f"{self._name(stream)}.{name}"
        return [
            *self._info_of_consumer(stream, name),
            Step("pull", asked, body, number=batch),
            *self._info_of_consumer(stream, name),
        ]

    def _wait(self) -> list[Step]:
        stream = self._stream()
        self._waiting += 1
        body: dict[str, Any] = {"batch": self._one(1, 2, 5), "expires": HOUR_NS}
        body |= self._pick({"max_bytes": (60, 200, 2000)}, 0.1)
        asked = f"{self._name(stream)}.{self._one(*self._consumers)}"
        return [Step("wait", asked, body, number=self._waiting)]

    def _listen(self) -> list[Step]:
        stream = self._stream()
        self._waiting += 1
        asked = f"{self._name(stream)}.{self._one(*self._consumers)}"
        return [Step("listen", asked, number=self._waiting)]

    def _ack(self) -> list[Step]:
        payload = self._one(
            b"",
            b"+ACK",
            b"+ACK",
            b"-NAK",
            b"+WPI",
            b"+TERM",
            b"+TERM because",
            b"wrong",
            b'+NXT {"batch":1,"no_wait":true}',
        )
        number = self._random.randrange(1000)
        return [Step("ack", body=payload, number=number)]
