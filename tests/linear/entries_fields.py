"""Entry points of messages, identities and files: headers, JWTs, names, configuration, pages."""

from __future__ import annotations

import base64
import random
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl

from entries_wire import JSON_ATOMS
from entry_points import EntryPoint, Frame, register, text_reader
from starlette.requests import Request

from tradewind import nkeys
from tradewind.api.errors import ApiError
from tradewind.api.nak_policy import reason_of
from tradewind.broker.latency import traced_fields
from tradewind.broker.message_trace import header_fields as traced_header_fields
from tradewind.client.core.addresses import parse_servers
from tradewind.client.core.credentials import find_seed, parse_credentials
from tradewind.client.core.headers import decode_headers
from tradewind.client.errors import ClientError
from tradewind.client.jetstream import has_message_id
from tradewind.client.kv.atomic_changes import number_in
from tradewind.client.kv.codecs import Base64Keys, PathKeys
from tradewind.client.kv.entries import check_key
from tradewind.client.kv.kv_types import check_filter, ttl_ns_of
from tradewind.client.objects.object_types import decode_info, encode_name
from tradewind.client.streams.api_requests import check_answer
from tradewind.client.streams.bucket_settings import check_bucket
from tradewind.dashboard.data.changes import difference, line_differences, parse_config
from tradewind.dashboard.data.config_entries import STREAM_FORM, BadEntriesError, apply_entries
from tradewind.dashboard.data.message_data import ListedMessage
from tradewind.dashboard.data.message_filters import CONDITION_LENGTH_MAX, make_filter
from tradewind.dashboard.web.forms import FORM_BYTES_MAX, read_form
from tradewind.dashboard.web.guard import Policy, judge
from tradewind.errors import TradewindError
from tradewind.jetstream.legacy.dialects import LegacyRefusal
from tradewind.jetstream.legacy.legacy_configs import decode_stream
from tradewind.jetstream.replication.origins import document_of
from tradewind.jwt import codec
from tradewind.jwt.claim_files import read_token
from tradewind.jwt.claim_rules import issues
from tradewind.jwt.claims import (
    AccountClaims,
    ScopeTemplate,
    SubjectClaims,
    TimeRange,
    UserClaims,
    UserFields,
)
from tradewind.monitor.http import HEADER_BYTES_MAX
from tradewind.monitor.page_options import (
    ConnzOptions,
    connz_from_query,
    health_from_query,
    jsz_from_query,
    subsz_from_query,
)
from tradewind.monitor.system_requests import decode_options
from tradewind.otel.spans import parse_traceparent
from tradewind.server.auth.certificate_users import read_names
from tradewind.server.auth.distinguished_names import parse_name, reordered
from tradewind.server.auth.scope_templates import fill_template
from tradewind.server.config.grammar import parse_file
from tradewind.server.config.leaf_urls import leaf_address
from tradewind.store.format.message_ttl import parse_ttl_ns
from tradewind.stream import header_fields
from tradewind.stream.counters import check_increment, count
from tradewind.stream.publish_checks import whole_number
from tradewind.testing import InProcessServer

HEADER_BYTES = 1 << 20
TOKEN_BYTES = 1 << 20
NAME_BYTES = 1 << 20
CERTIFICATE_BYTES = 64 * 1024
CONFIG_BYTES = 8 << 20
REFUSALS = (TradewindError, ApiError)

# ---------------------------------------------------------------- headers


HEADER_ATOMS = (
    b"a: b\r\n",
    b"Nats-Request-Info: {}\r\n",
    b"Nats-Request-Info:\r\n",
    b"Nats-Msg-Id: x\r\n",
    b"Nats-Schedule: x\r\n",
    b"Nats-Trace-Dest: x\r\n",
    b"traceparent: 00-\r\n",
    b"Nats-TTL:",
    b"X-%d: y\r\n",
    b":",
    b"\r",
)
HEADER_EXAMPLES = (b"NATS/1.0\r\nNats-Msg-Id: x\r\nA: b\r\n\r\n",)
HEADER_FRAMES: tuple[Frame, ...] = ((b"NATS/1.0\r\n", b"\r\n"), (b"NATS/1.0\r\nNats-Msg-Id: ", b""))


def changed_header(data: bytes) -> None:
    header_fields.special_fields(data)
    header_fields.without_demands(data)
    for name in (b"Nats-Msg-Id", b"Nats-Schedule", b"A"):
        header_fields.remove_field(data, name)
        header_fields.replace_field(data, name, b"x")


def counted(data: bytes) -> None:
    fields = {header_fields.INCREMENT: data}
    check_increment(fields, b"", is_counter=True)
    count(b"", fields, None)


def published(data: bytes) -> None:
    """A message with this header, in a server that looks for traces."""
    server = InProcessServer()
    server.broker.accounts["$G"].traces_parents = True
    client = server.connect(b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n')
    data = data[: HEADER_BYTES - 1]
    client.send(b"HPUB a %d %d\r\n%b\r\n" % (len(data), len(data), data))
    client.close()


register(
    EntryPoint(
        "header of a message, in the router",
        ("broker.session", "broker.router"),
        HEADER_BYTES,
        published,
        HEADER_ATOMS,
        HEADER_EXAMPLES,
        HEADER_FRAMES,
        piecewise=True,
    )
)
for name, modules, read in (
    ("a stream", ("stream.header_fields",), header_fields.clean),
    ("what a stream changes", ("stream.header_fields",), changed_header),
    ("traces", ("broker.message_trace",), traced_header_fields),
    ("latency samples", ("broker.latency",), traced_fields),
    ("reasons", ("api.nak_policy",), reason_of),
    ("a client", ("client.core.headers",), decode_headers),
):
    register(
        EntryPoint(
            f"header of a message, for {name}",
            modules,
            HEADER_BYTES,
            cast("Callable[[bytes], object]", read),
            (*HEADER_ATOMS, b"Tradewind-Nak-Reason: x\r\n", b"Uber-Trace-Id: 1:1:1:", b"a-"),
            HEADER_EXAMPLES,
            (*HEADER_FRAMES, (b"NATS/1.0\r\nUber-Trace-Id: 1:1:1:", b"\r\n\r\n")),
            seconds_max=3.0,
        )
    )
register(
    EntryPoint(
        "parent of a trace",
        ("otel.spans",),
        HEADER_BYTES,
        text_reader(parse_traceparent),
        (b"00-", b"0", b"-"),
        (b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",),
        ((b"", b""), (b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", b"")),
    )
)
register(
    EntryPoint(
        "increment of a counter",
        ("stream.counters",),
        HEADER_BYTES,
        counted,
        (b"9", b"0", b"+", b"-"),
        (b"+12",),
        refusals=REFUSALS,
    )
)
register(
    EntryPoint(
        "lifetime of a message",
        ("store.format.message_ttl",),
        HEADER_BYTES,
        parse_ttl_ns,
        (b"1h", b"9", b"never", b"."),
        (b"1h",),
        refusals=(ValueError, ApiError),
    )
)

# ---------------------------------------------------------------- identities


def base64_text(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


JWT_HEADER = base64_text(b'{"typ":"JWT","alg":"ed25519-nkey"}') + b"."
register(
    EntryPoint(
        "JWT",
        ("jwt.codec",),
        TOKEN_BYTES,
        text_reader(codec.decode),
        (b"eyJ", b".", b"A", b"=", b"_-"),
        (),
        ((b"", b""), (JWT_HEADER, b".x")),
        refusals=REFUSALS,
    )
)
register(
    EntryPoint(
        "claims of a JWT",
        ("jwt.codec", "jwt.claims"),
        TOKEN_BYTES,
        lambda data: codec.decode((JWT_HEADER + base64_text(data) + b".AAAA").decode()),
        (*JSON_ATOMS, b'"a.b",', b'"k%d":"v",', b'{"subject":"a%d","type":"stream"},'),
        (),
        (
            (b"", b""),
            (b'{"nats":{"type":"user","version":2,"tags":[', b'"x"]}}'),
            (b'{"nats":{"type":"account","version":2,"exports":[', b"{}]}}"),
            (b'{"nats":{"type":"user","version":2,"pub":{"allow":["', b'"]}}}'),
        ),
        refusals=REFUSALS,
        seconds_max=3.0,
    )
)
register(
    EntryPoint(
        "JWT in a file",
        ("key_blocks", "jwt.claim_files", "client.core.credentials"),
        TOKEN_BYTES,
        text_reader(
            lambda text: (read_token(text), attempt(parse_credentials, text), attempt_seed(text))
        ),
        (
            b"-----BEGIN NATS USER JWT-----\n",
            b"------END NATS USER JWT------\n",
            b"-",
            b"A",
            b"SU",
            b" ",
        ),
        (b"-----BEGIN NATS USER JWT-----\neyJhIjoxfQ\n------END NATS USER JWT------\n",),
        refusals=REFUSALS,
    )
)


def attempt(read: Callable[[str], object], text: str) -> object:
    try:
        return read(text)
    except (ClientError, TradewindError):
        return None


def attempt_seed(text: str) -> object:
    return attempt(lambda given: find_seed(given, "it"), text)


def template_of(text: str) -> object:
    tags = [f"region:r{number}" for number in range(20)]
    user = UserClaims(name="u", nats=UserFields(tags=tags))
    scope = ScopeTemplate(pub=SubjectClaims(allow=text.split("|")), sub=SubjectClaims(deny=["x"]))
    return fill_template(scope, user, AccountClaims(name="a"))


register(
    EntryPoint(
        "template of a scoped key",
        ("server.auth.scope_templates",),
        TOKEN_BYTES,
        text_reader(template_of),
        (b"{{", b"}}", b"{{name()}}", b"{{tag(region)}}.", b"{{tag(x)}}", b"tag(", b"|", b"a."),
        (b"a.{{name()}}.{{tag(region)}}",),
        ((b"", b""), (b"{{tag(region)}}.", b""), (b"{{", b"}}")),
        seconds_max=3.0,
    )
)
for what, decode in (("public key", nkeys.decode_public), ("seed", nkeys.decode_seed)):
    register(
        EntryPoint(
            f"{what}",
            ("nkeys",),
            TOKEN_BYTES,
            text_reader(cast("Callable[[str], object]", decode)),
            (b"A", b"UA", b"SU", b"2", b"="),
            (),
            refusals=REFUSALS,
        )
    )
register(
    EntryPoint(
        "signature of a login",
        ("nkeys",),
        TOKEN_BYTES,
        text_reader(nkeys.decode_signature),
        (b"A", b"_", b"+", b"="),
        (b"A" * 86,),
    )
)


def compared_name(text: str) -> object:
    name = parse_name(text)
    return reordered(name) if name is not None else None


register(
    EntryPoint(
        "distinguished name",
        ("server.auth.distinguished_names",),
        CERTIFICATE_BYTES,
        text_reader(compared_name),
        (b"CN=a,", b"OU=b+", b"\\", b"\\2c", b"#", b"=", b" ", b",", b'"'),
        (b"CN=example.com,OU=NATS.io", b"CN=a\\, b+O=c"),
        ((b"", b""), (b"CN=", b",O=b")),
    )
)
register(
    EntryPoint(
        "certificate",
        ("server.auth.certificate_users",),
        CERTIFICATE_BYTES,
        read_names,
        (b"\x30\x82\xff\xff", b"\x31\x0b", b"\x06\x03\x55\x04\x03", b"\x30\x80", b"\x0c\x01a"),
        (b"\x30\x00",),
    )
)

# ---------------------------------------------------------------- names and addresses


for what, modules, check in (
    ("key of a bucket", ("client.kv.entries",), check_key),
    ("filter of keys", ("client.kv.kv_types",), check_filter),
    ("path as a key of a bucket", ("client.kv.codecs",), PathKeys().encode_key),
    ("time to live of a value", ("client.kv.kv_types",), ttl_ns_of),
    ("name of a bucket", ("client.streams.bucket_settings",), check_bucket),
    ("name of an object", ("client.objects.object_types",), encode_name),
    ("addresses of servers", ("client.core.addresses",), parse_servers),
    ("address of a hub", ("server.config.leaf_urls",), leaf_address),
):
    register(
        EntryPoint(
            what,
            modules,
            NAME_BYTES,
            text_reader(cast("Callable[[str], object]", check)),
            (b"a.", b"/", b"nats://", b"@", b":", b",", b"[", b"*", b"=", b"a,", b"://"),
            (b"ab",),
            refusals=(ClientError, TradewindError),
            seconds_max=3.0,
        )
    )
register(
    EntryPoint(
        "encoded key of a bucket",
        ("client.kv.codecs",),
        NAME_BYTES,
        text_reader(Base64Keys().decode_key),
        (b"YWI", b".", b"=", b"-", b"_", b"/"),
        (b"YWI.Yw",),
        refusals=(ValueError,),
    )
)
register(
    EntryPoint(
        "number in a bucket",
        ("client.kv.atomic_changes",),
        NAME_BYTES,
        lambda data: number_in("key", data),
        (b"-", b"1", b"0", b"_", b" "),
        (b"-17",),
        refusals=(ClientError,),
    )
)
register(
    EntryPoint(
        "description of an object",
        ("client.objects.object_types",),
        NAME_BYTES,
        lambda data: decode_info(data, "2024-01-02T03:04:05Z"),
        JSON_ATOMS,
        (b'{"name":"a","bucket":"b","nuid":"c","size":1,"chunks":1}',),
        refusals=(ClientError, TradewindError),
    )
)

# ---------------------------------------------------------------- files and pages


CONFIG_FILE = Path(tempfile.mkdtemp(prefix="linear")) / "server.conf"


def configuration(data: bytes) -> object:
    CONFIG_FILE.write_bytes(data)
    return parse_file(str(CONFIG_FILE), {"V": "x"})


register(
    EntryPoint(
        "configuration file",
        ("server.config.grammar",),
        CONFIG_BYTES,
        configuration,
        (
            b"a: 1\n",
            b"a%d: $V\n",
            b"a {",
            b"}\n",
            b"[",
            b"1,",
            b'"\\x41',
            b"# c\n",
            b"(\n",
            b"\n)",
            b"$V",
            b"1k",
            b"10.0.0.1",
            b"'",
            b"include ",
        ),
        (b'port: 4222\nusers = [ {user: a, pass: "b"} ]\nx: 1.5, y: (\nblock\n)\n',),
        ((b"", b""), (b"a: ", b"\n"), (b'a: "', b'"\n'), (b"a: (\n", b"\n)\n"), (b"a: [", b"]\n")),
        refusals=REFUSALS,
        seconds_max=60.0,
    )
)


def page_query(text: str) -> None:
    try:
        query = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=1000))
    except ValueError:
        return
    for read in (connz_from_query, subsz_from_query, health_from_query, jsz_from_query):
        try:
            read(query)
        except TradewindError:
            continue


register(
    EntryPoint(
        "parameters of a page",
        ("monitor.parameters", "monitor.page_options"),
        HEADER_BYTES_MAX,
        text_reader(page_query),
        (b"limit=", b"subs=1&", b"9", b"%41", b"&", b"=", b"+"),
        (b"subs=1&limit=10&offset=2&state=open",),
        ((b"", b""), (b"limit=", b""), (b"state=", b""), (b"cid=", b"")),
    )
)


class SentForm:
    """A request whose body is there at once."""

    headers = {"content-type": "application/x-www-form-urlencoded"}

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def stream(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), 4096):
            yield self._body[start : start + 4096]


def form(data: bytes) -> Any:
    """The fields; nothing is ever waited for."""
    reading = read_form(cast("Request", SentForm(data)))
    try:
        reading.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("a form waits for nothing")


register(
    EntryPoint(
        "form of the dashboard",
        ("dashboard.web.forms",),
        FORM_BYTES_MAX,
        form,
        (b"a=b&", b"%41", b"&", b"=", b"+", b"%", b"%0d%0a"),
        (b"a=b&c=d%20e",),
        ((b"", b""), (b"a=", b"&b=c")),
        refusals=REFUSALS,
        seconds_max=12.0,
    )
)


# ---------------------------------------------------------------- the rest


def restricted(text: str) -> object:
    fields = UserFields(
        src=[text], times=[TimeRange(start=text, end="1:00:00")], times_location=text
    )
    return issues(UserClaims(name="u", nats=fields), 0)


register(
    EntryPoint(
        "restrictions of a user",
        ("jwt.claim_rules",),
        TOKEN_BYTES,
        text_reader(restricted),
        (b"10.0.0.0/8", b"::", b"12:00:00", b".", b"Europe/", b"/", b"9"),
        (b"10.0.0.0/8",),
    )
)
register(
    EntryPoint(
        "numbers in headers",
        ("stream.publish_checks",),
        HEADER_BYTES,
        whole_number,
        (b"0", b"1", b"9"),
        (b"0012",),
    )
)
register(
    EntryPoint(
        "Host and Origin of a visitor",
        ("dashboard.web.guard",),
        HEADER_BYTES_MAX,
        text_reader(lambda text: judge("POST", {"host": text, "origin": text}, Policy())),
        (b"localhost", b"[", b"]", b":", b"@", b"::", b"1.", b"http://"),
        (b"127.0.0.1:8080",),
    )
)


def filled_in(text: str) -> None:
    """The same text in fields of each kind; a form names all that are not valid at once."""
    names = ("max_age", "max_bytes", "max_msgs", "subjects", "metadata", "sources")
    entries = dict.fromkeys((*names, "mirror.opt_start_time"), text)
    with suppress(BadEntriesError):
        apply_entries(STREAM_FORM, {"name": "S"}, entries, is_new=True)


register(
    EntryPoint(
        "fields that a visitor fills in",
        ("dashboard.data.config_entries", "dashboard.data.human_values"),
        1 << 20,
        text_reader(filled_in),
        (b"1h", b"day", b"1 ", b"KiB", b"a.b,", b"a=b\n", b"-", b"9"),
        (b"7 days", b"1.5 GiB", b"a=b"),
        refusals=(TradewindError,),
        seconds_max=8.0,
    )
)
CONDITION_ATOMS = (b"a.b", b"[0]", b"[*]", b"*.", b" and ", b'"a"', b"=", b" ", b"\\")


register(
    EntryPoint(
        "conditions of a search",
        ("dashboard.data.message_filters",),
        CONDITION_LENGTH_MAX,
        text_reader(lambda text: make_filter(text, text, text)),
        CONDITION_ATOMS,
        (b"a = 1",),
        refusals=(TradewindError,),
    )
)


def judged(data: bytes) -> None:
    """A payload that conditions look into."""
    wanted = make_filter("needle", "Trace = 1", "*.*[*].a = 1 and a[0] ~ x")
    for each in (wanted, make_filter("", "", "*.*.* = 1 and *[*] ~ x")):
        each.takes(ListedMessage(1, "a", 0, [("Trace", "1")], data))


register(
    EntryPoint(
        "payload that a search looks into",
        ("dashboard.data.message_filters", "dashboard.look.folded_json"),
        1 << 20,
        judged,
        (*JSON_ATOMS, b',"a":[1,2]', b"[1],"),
        (b'{"a":[{"a":1}]}',),
        ((b"", b""), (b'{"b":[[1', b"]]}")),
        refusals=(TradewindError,),
        seconds_max=12.0,
    )
)
register(
    EntryPoint(
        "configuration that a visitor writes",
        ("dashboard.data.changes",),
        1 << 20,
        text_reader(lambda text: difference({}, parse_config(text, "S"))),
        (*JSON_ATOMS, b',"k%d":"v"', b',"a"', b',"b","c","d"'),
        (b'{"name":"S","subjects":["a"]}',),
        (
            (b"", b""),
            (b'{"name":"S","subjects":["a"', b"]}"),
            (b'{"name":"S","metadata":{"a":"b"', b"}}"),
        ),
        refusals=(TradewindError,),
        seconds_max=8.0,
    )
)


def edited(data: bytes) -> object:
    """Two texts with the same few hundred lines in another order: what is hard to compare."""
    chance = random.Random(len(data))
    lines = [f"{data[:4].hex()}{number % 150}" for number in range(len(data) // 8)]
    return line_differences(lines, chance.sample(lines, len(lines)), 3)


register(
    EntryPoint(
        "lines that a visitor has changed",
        ("dashboard.data.changes", "dashboard.data.bucket_data"),
        1 << 20,
        edited,
        (b"abcd",),
        (b"abcd",),
        piecewise=True,
        seconds_max=60.0,
    )
)


def system_options(data: bytes) -> object:
    return decode_options(data, ConnzOptions)


for what, module, decode_body in (
    ("options of a request to the system", "monitor.system_requests", system_options),
    ("answer of an origin", "jetstream.replication.origins", document_of),
    ("answer of the API, in a client", "client.streams.api_requests", check_answer),
    ("stream of the preview", "jetstream.legacy.legacy_configs", decode_stream),
):
    register(
        EntryPoint(
            what,
            (module,),
            1 << 20,
            cast("Callable[[bytes], object]", decode_body),
            (*JSON_ATOMS, b'"error":{"code":'),
            (b'{"name":"S","subjects":["a"]}',),
            refusals=(TradewindError, ApiError, ValueError, LegacyRefusal),
        )
    )
register(
    EntryPoint(
        "header that a client may have given an id",
        ("client.jetstream",),
        HEADER_BYTES,
        has_message_id,
        (b"\r\nNats-Msg-Id:", b" ", b"\t", b"\r\n"),
        (b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n",),
    )
)
