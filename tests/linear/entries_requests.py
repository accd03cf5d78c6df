"""Entry points of requests: JSON bodies, configurations, metadata, times, mappings and filters."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from entries_wire import JSON_ATOMS, JSON_FRAMES
from entry_points import EntryPoint, Frame, register, text_reader

from tradewind.api.chain_rules import chain_rule_of
from tradewind.api.consumer_rules import check_consumer_config
from tradewind.api.dead_letter_rules import STREAM_KEY, SUBJECT_KEY, dead_letters_of
from tradewind.api.errors import ApiError
from tradewind.api.go_json import JsonError, Scanner
from tradewind.api.go_time import parse_go_time
from tradewind.api.limits import ServerLimits
from tradewind.api.nak_policy import NakPolicyError, nak_policy_of
from tradewind.api.names import is_valid_name
from tradewind.api.order_rules import OrderError, order_of
from tradewind.api.request_types import (
    ConsumerCreateRequest,
    MsgGetRequest,
    StreamConfigRequest,
    StreamPurgeRequest,
)
from tradewind.api.requests import decode_request
from tradewind.api.responses import JetStreamAccountLimits
from tradewind.api.stream_rules import check_stream_config
from tradewind.api.stream_types import StreamConfig
from tradewind.api.template_types import TemplatePutRequest, checked_template
from tradewind.api.times import parse_time
from tradewind.api.timings import parse_timing
from tradewind.api.transaction_types import decode_transaction
from tradewind.api.versioning import is_level_known
from tradewind.consumer.other_acks import nak_delay_ns
from tradewind.durations import parse_duration_ns
from tradewind.errors import TradewindError
from tradewind.route.function_calls import braced_parts
from tradewind.route.mapping import check_mapping, compile_mapping
from tradewind.route.translation import template, untokenized
from tradewind.subjects import collide, is_subset, is_valid_subject

PAYLOAD_BYTES = 1 << 20
METADATA_BYTES = 128 * 1024
HEADER_BYTES = 1 << 20
SUBJECT_BYTES = 1 << 20
REFUSALS = (TradewindError, ApiError)


def checked_stream(data: bytes) -> StreamConfig:
    return check_stream_config(
        decode_request(StreamConfigRequest, data),
        streams={"S2": StreamConfig(name="S2", subjects=["b.>", "c.*"])},
        pedantic=False,
        server=ServerLimits(),
        account=JetStreamAccountLimits(),
    )


register(
    EntryPoint(
        "JSON as Go reads it",
        ("api.go_json",),
        PAYLOAD_BYTES,
        lambda data: Scanner(data).next_document(),
        JSON_ATOMS,
        (b'{"a": [1, 2.5e3, "x\\u00e4", null, true, {"b": {}}]}',),
        JSON_FRAMES,
        refusals=(JsonError,),
        seconds_max=6.0,
    )
)
STREAM_FRAMES: tuple[Frame, ...] = (
    (b"", b""),
    (b'{"name":"', b'"}'),
    (b'{"name":"S","subjects":["', b'"]}'),
    (b'{"name":"S","subjects":["a"', b"]}"),
    (b'{"name":"S","sources":[{"name":"x"}', b"]}"),
    (b'{"name":"S","metadata":{"a":"b"', b"}}"),
    (b'{"name":"S","subject_transform":{"src":"a.*","dest":"', b'"}}'),
    (b'{"name":"S","republish":{"src":"a.*","dest":"', b'"}}'),
)
STREAM_ATOMS = (
    *JSON_ATOMS,
    b"a.",
    b"*.",
    b">",
    b',"a.%d"',
    b',"*.%d"',
    b',{"name":"S2","filter_subject":"a%d"}',
    b',{"name":"S","filter_subject":"a%d"}',
    b',{"name":"E%d","external":{"api":"J.API","deliver":"d%d"}}',
    b',{"name":"S2","subject_transforms":[{"src":"a%d","dest":"b"}]}',
    b',"tradewind.x%d":"y"',
    b"{{wildcard(",
    b"{{wildcard(1)}}.",
    b"$1.",
)
register(
    EntryPoint(
        "configuration of a stream",
        (
            "api.requests",
            "api.plain_json",
            "api.stream_rules",
            "api.source_rules",
            "api.subject_tree",
        ),
        PAYLOAD_BYTES,
        checked_stream,
        STREAM_ATOMS,
        (b'{"name":"S","subjects":["a.*","b.c"],"sources":[{"name":"x"}],"max_age":1000000000}',),
        STREAM_FRAMES,
        refusals=REFUSALS,
        seconds_max=12.0,
    )
)


def checked_consumer(data: bytes) -> None:
    config = decode_request(ConsumerCreateRequest, data).config
    stream = StreamConfig(name="S", subjects=["a.>"])
    check_consumer_config(config, stream, ServerLimits(), JetStreamAccountLimits())


register(
    EntryPoint(
        "configuration of a consumer",
        ("api.requests", "api.consumer_rules", "api.subject_tree"),
        PAYLOAD_BYTES,
        checked_consumer,
        (*JSON_ATOMS, b',"a.%d"', b',"*.%d"', b"a.", b"*.", b",1"),
        (b'{"stream_name":"S","config":{"ack_policy":"explicit","filter_subject":"a.*"}}',),
        (
            (b"", b""),
            (b'{"stream_name":"S","config":{"filter_subjects":["b"', b"]}}"),
            (b'{"stream_name":"S","config":{"filter_subject":"', b'"}}'),
            (b'{"stream_name":"S","config":{"deliver_subject":"', b'"}}'),
            (b'{"stream_name":"S","config":{"backoff":[1', b"]}}"),
            (b'{"stream_name":"S","config":{"sample_freq":"', b'"}}'),
        ),
        refusals=REFUSALS,
        seconds_max=12.0,
    )
)


def stream_bodies(kind: type[Any]) -> Callable[[bytes], object]:
    return lambda data: decode_request(kind, data)


for kind in (StreamPurgeRequest, MsgGetRequest):
    register(
        EntryPoint(
            f"{kind.__name__}",
            ("api.requests", "api.plain_json", "api.go_json"),
            PAYLOAD_BYTES,
            stream_bodies(kind),
            (*JSON_ATOMS, b'"a.%d",'),
            (b'{"seq":12}',),
            (*JSON_FRAMES, (b'{"multi_last":["', b'"]}')),
            refusals=REFUSALS,
            seconds_max=8.0,
        )
    )
register(
    EntryPoint(
        "transaction",
        ("api.transaction_types",),
        PAYLOAD_BYTES,
        decode_transaction,
        JSON_ATOMS,
        (b'{"publishes":[{"subject":"a"}]}',),
        (*JSON_FRAMES, (b'{"publishes":[{"subject":"', b'"}]}')),
        refusals=REFUSALS,
    )
)


def product_of_patterns(data: bytes) -> object:
    """Patterns that differ only at their end, as many as the input has bytes for."""
    chance = random.Random(len(data))
    count = len(data) // 32
    subjects = [
        ".".join([*chance.choices("a*", k=12), f"{data[:1].hex()}{number}"])
        for number in range(count)
    ]
    return checked_stream(json.dumps({"name": "S", "subjects": subjects}).encode())


register(
    EntryPoint(
        "subjects of a stream that could all overlap",
        ("api.subject_tree",),
        PAYLOAD_BYTES,
        product_of_patterns,
        (b"a",),
        (b"a",),
        refusals=REFUSALS,
        seconds_max=20.0,
        piecewise=True,
    )
)
register(
    EntryPoint(
        "template of streams",
        ("api.template_types",),
        PAYLOAD_BYTES,
        lambda data: checked_template(decode_request(TemplatePutRequest, data)),
        (*JSON_ATOMS, b"{1}", b"{", b"*.", b"a."),
        (b'{"name":"t","match":"a.*.>","stream":"x{1}","max_streams":3,"config":{}}',),
        (
            (b"", b""),
            (b'{"name":"t","match":"a.*.', b'","stream":"x{1}","max_streams":3,"config":{}}'),
            (b'{"name":"t","match":"a.*.>","stream":"{1}', b'","max_streams":3,"config":{}}'),
        ),
        refusals=REFUSALS,
        seconds_max=8.0,
    )
)


# ---------------------------------------------------------------- metadata


def metadata(key: str, read: Callable[[dict[str, str]], object]) -> Callable[[bytes], object]:
    return text_reader(lambda text: read({key: text, STREAM_KEY: "D"}))


NAK_ATOMS = (
    b"1s,",
    b"1s jitter 10%",
    b" jitter ",
    b"exponential ",
    b"x2 max ",
    b" ",
    b"9",
    b"1h1m",
)
register(
    EntryPoint(
        "delays of refused messages",
        ("api.nak_policy",),
        METADATA_BYTES,
        metadata("tradewind.nak.delay", nak_policy_of),
        NAK_ATOMS,
        (b"1s,10s,1m jitter 20%", b"exponential 1s x2 max 5m jitter 10%"),
        refusals=(NakPolicyError,),
    )
)
register(
    EntryPoint(
        "order per key",
        ("api.order_rules",),
        METADATA_BYTES,
        metadata("tradewind.order_by", order_of),
        (b"token:", b"header:", b"subject", b"9", b":", b"x"),
        (b"header:Customer", b"token:2"),
        refusals=(OrderError,),
    )
)
register(
    EntryPoint(
        "dead letters",
        ("api.dead_letter_rules",),
        METADATA_BYTES,
        metadata(SUBJECT_KEY, dead_letters_of),
        (b"{", b"}", b"{stream}", b".", b"{}", b"{{"),
        (b"dead.{stream}.{consumer}",),
        refusals=REFUSALS,
    )
)
register(
    EntryPoint(
        "chains",
        ("api.chain_rules",),
        METADATA_BYTES,
        metadata("tradewind.chain", chain_rule_of),
        (b"sha256", b"1"),
        (b"sha256",),
        refusals=REFUSALS,
    )
)
register(
    EntryPoint(
        "level that a request requires",
        ("api.versioning",),
        HEADER_BYTES,
        lambda data: is_level_known(b"NATS/1.0\r\nNats-Required-Api-Level: " + data + b"\r\n\r\n"),
        (b"0", b"1", b"+", b"\r\n"),
        (b"1",),
    )
)
register(
    EntryPoint(
        "names",
        ("api.names",),
        SUBJECT_BYTES,
        text_reader(is_valid_name),
        (b"a", b".", b"\\"),
        (b"ORDERS",),
    )
)

# ---------------------------------------------------------------- times


register(
    EntryPoint(
        "durations",
        ("durations",),
        HEADER_BYTES,
        text_reader(parse_duration_ns),
        (b"1h", b"1.", b".1", b"0", b"9", b"ms", b"m", b"1m"),
        (b"1h30m", b"-1.5ms"),
    )
)
register(
    EntryPoint(
        "times",
        ("api.go_time", "api.times"),
        HEADER_BYTES,
        text_reader(lambda text: parse_time(parse_go_time(text))),
        (b"2024-", b"01", b":", b".1", b"+01:00", b"Z"),
        (b"2024-01-02T03:04:05.678+01:00",),
        ((b"", b""), (b"2024-01-02T03:04:05.", b"Z")),
        refusals=(JsonError,),
        seconds_max=4.0,
    )
)
register(
    EntryPoint(
        "schedules",
        ("api.timings", "api.cron"),
        HEADER_BYTES,
        lambda data: parse_timing(data, None, 1_700_000_000 * 10**9),
        (b"* ", b"1,", b"1-2,", b"*/1,", b"0 0 0 29 2 *", b"@at ", b"@every 1s", b"jan,", b"0"),
        (b"0 30 4 1,15 * 5", b"@every 1h", b"@at 2024-01-02T03:04:05Z"),
        (
            (b"", b""),
            (b"@at ", b""),
            (b"@every ", b""),
            (b"0 0 0 ", b" * *"),
            (b"0 0 0 29 2 ", b""),
        ),
        refusals=(ValueError,),
    )
)
register(
    EntryPoint(
        "time zones",
        ("api.timings", "api.cron"),
        HEADER_BYTES,
        lambda data: parse_timing(b"0 0 3 * * *", data, 1_700_000_000 * 10**9),
        (b"Europe/", b"../", b"Berlin", b"/"),
        (b"Europe/Berlin",),
        refusals=(ValueError,),
    )
)
register(
    EntryPoint(
        "delay of a negative acknowledgement",
        ("consumer.other_acks",),
        PAYLOAD_BYTES,
        nak_delay_ns,
        (*JSON_ATOMS, b"1s", b" "),
        (b'{"delay": 1000}', b"1s"),
        JSON_FRAMES,
    )
)

# ---------------------------------------------------------------- subjects


register(
    EntryPoint(
        "subjects and filters",
        ("subjects",),
        SUBJECT_BYTES,
        text_reader(
            lambda text: (
                is_valid_subject(text),
                collide(text, "a.*.c.>"),
                is_subset(text, "a.*.c.>"),
            )
        ),
        (b"a.", b"*.", b">", b"..", b"a"),
        (b"a.*.c.>",),
    )
)
CALL_ATOMS = (
    b"{{wildcard(",
    b"{{wildcard(1)}}",
    b"{{",
    b"}}",
    b")}}",
    b") }}",
    b"{{ partition ( 1 , ",
    b"{{split(1,",
    b",1",
    b"$1.",
    b"\n",
    b"wildcard",
    b"SplitFromLeft",
)
CALL_FRAMES: tuple[Frame, ...] = ((b"", b""), (b"{{", b"}}"), (b"x.{{wildcard(", b")}}"))
CALL_EXAMPLES = (b"b.{{wildcard(1)}}.$1", b"{{partition(3,1)}}.{{ SplitFromLeft( 1, 2 ) }}")


def mapped(text: str) -> object:
    check_mapping("a.*.>", f"{text}.>")
    mapping = compile_mapping("a.*.>", f"{text}.>", random_below=lambda _below: 0)
    return mapping.apply_bytes(b"a." + b"b" * 2000 + b".c.d")


register(
    EntryPoint(
        "destination of a mapping",
        ("route.mapping", "route.function_calls", "route.remapping"),
        SUBJECT_BYTES,
        text_reader(mapped),
        CALL_ATOMS,
        CALL_EXAMPLES,
        CALL_FRAMES,
        refusals=REFUSALS,
        seconds_max=3.0,
    )
)
register(
    EntryPoint(
        "destination of an import",
        ("route.translation",),
        SUBJECT_BYTES,
        text_reader(lambda text: (untokenized(text), template("a.*", text))),
        CALL_ATOMS,
        (b"b.{{wildcard(1)}}", b"b.$1"),
        CALL_FRAMES,
        refusals=REFUSALS,
        seconds_max=2.0,
    )
)
register(
    EntryPoint(
        "braces of a template",
        ("route.function_calls",),
        SUBJECT_BYTES,
        text_reader(braced_parts),
        CALL_ATOMS,
        (b"a.{{name()}}.{{tag(x)}}",),
        CALL_FRAMES,
    )
)
