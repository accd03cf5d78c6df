"""Bodies that are no valid requests, or not the ones that their endpoints expect.

Members of the wrong type, unknown, repeated or in another case, together with broken syntax,
streams and consumers that are not there, and header fields.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator

from helpers_faults import FaultCase, Scene, header_block
from helpers_fields import SETTINGS, fields, nested

from tradewind.api.base import ApiStruct
from tradewind.api.endpoint_row import ApiEndpoint
from tradewind.api.endpoints import NATS_ENDPOINTS

# Values as they are written, each wrong for most fields.
RAW_VALUES = (
    '"5"', "5", "-1", "1.5", "1e3", "-0", "18446744073709551616", "null", "true", '""', '"x"',
    "{}", "[]", "[{}]", '[""]', "[1]",
    '{"a":"b"}', '{"a":1}', '"2020-01-01T00:00:00Z"', '"\\ud800"', '"z.a"', "[[]]", '{"name":5}',
)  # fmt: skip
UNKNOWN = ("unknown", "", "Name ", "naïve", "\u017feq")  # the last one is "seq" to Go
BROKEN = (
    lambda text: text[:-1],
    lambda text: text[: len(text) // 2],
    lambda text: text + "x",
    lambda text: text + "{}",
    lambda text: text + " ",
    lambda text: "\ufeff" + text,
    lambda text: text.replace(":", "=", 1),
    lambda text: text.replace('"', "'", 1),
    lambda text: text[:-1] + ",}",
    lambda text: "[" + text + "]",
    lambda text: " \t\r\n" + text,
    lambda text: text.replace("{", "{\x00", 1),
    lambda _text: "",
    lambda _text: "null",
    lambda _text: "{}",
    lambda _text: "x",
    lambda _text: '"text"',
)
# A backup without a receiver would stay in progress for a while, so it is refused at the end.
UNHEARD = {"stream_snapshot": {"deliver_subject": ""}}
HEADERS = ({"Nats-Required-Api-Level": "99"}, {"Nats-Required-Api-Level": "0"}, {"X": "y"})


def json_scenes() -> list[Scene]:
    """One for each endpoint of the API, with what is there before it."""
    return [
        Scene(
            f"json {endpoint.name}",
            endpoint.name,
            {**base, **UNHEARD.get(endpoint.name, {})},
            (),
            before,
        )
        for endpoint in NATS_ENDPOINTS
        for before, base in [SETTINGS[endpoint.name]]
    ]


def json_cases(scene: Scene, count: int, seed: str) -> Iterator[FaultCase]:
    """Two or three faults at a time; the same ones for the same seed."""
    chance = random.Random(f"{scene.name} {seed}")
    endpoint = next(each for each in NATS_ENDPOINTS if each.name == scene.subject)
    makers = (_wrong_value, _wrong_value, _odd_member)
    for _ in range(count):
        text = json.dumps(scene.base)
        for _ in range(chance.choice((1, 2, 2))):
            text = chance.choice(makers)(chance, endpoint, text)
        # Only nats-server keeps a placement that has nothing but an empty list.
        text = text.replace('"tags": []', '"tags": null')
        # Five nanoseconds are over before nats-server looks for a message.
        text = re.sub(r'(?i)("expires"): 5\b', r"\1: 0", text)
        if chance.random() < 0.25:
            text = chance.choice(BROKEN)(text)
        stream, consumer = "Z", "consumer"
        # Nobody answers for a consumer that cannot be reset.
        if chance.random() < 0.2 and endpoint.name != "consumer_reset":
            stream, consumer = chance.choice((("NONE", "consumer"), ("Z", "none")))
        header = header_block(chance.choice(HEADERS)) if chance.random() < 0.1 else b""
        subject = endpoint.subject_for(stream, consumer, "z.a")
        yield FaultCase(scene, subject, text.encode(), header)


def _wrong_value(chance: random.Random, endpoint: ApiEndpoint, text: str) -> str:
    """A field of the request with a value that most probably does not fit."""
    paths = list(fields(endpoint.request or ApiStruct))
    if not paths or not text.startswith("{"):
        return text
    path, mark = chance.choice(paths), "@value@"
    try:
        body = json.loads(text)
        changed = json.dumps(nested(path, mark, body))
    except (ValueError, AttributeError, TypeError, KeyError, IndexError):
        return text  # a change before this one has left no place for it
    return changed.replace(json.dumps(mark), chance.choice(RAW_VALUES))


def _odd_member(chance: random.Random, endpoint: ApiEndpoint, text: str) -> str:
    """A member that is unknown, comes twice or is written in another case."""
    names = [path[0] for path in fields(endpoint.request or ApiStruct)] or ["name"]
    name = chance.choice((*UNKNOWN, chance.choice(names), chance.choice(names).upper()))
    member = f"{json.dumps(name, ensure_ascii=False)}: {chance.choice(RAW_VALUES)}"
    if not text.startswith("{"):
        return text
    inside = text[1:-1]
    members = [part for part in (inside, member) if part.strip()]
    chance.shuffle(members)
    return "{" + ", ".join(members) + "}"
