"""The configurations that the walk through monitoring compares, each with its clients and traffic.

The traffic of a setup is the same on both servers, and is over before the first question.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from helpers_callout import Service, callout_configuration, knock
from helpers_monitoring import Watched
from helpers_ops import Certificates, user_key

from harness import RawClient, wait_for
from jwt_kit import (
    SYSTEM,
    SYSTEM_USER,
    account_jwt,
    account_key,
    login,
    memory_configuration,
    user_jwt,
)
from jwt_kit import user_key as jwt_user_key
from leaf_kit import Node, RawLeaf, hub_config, leaf_config
from websocket_frames import FrameClient, websocket_port

HTTP = 'server_name: crow\nhttp: "127.0.0.1:-1"\n'
SYSTEM_ACCOUNT = "$SYS { users: [ {user: admin, password: HUSH} ] }"
ADMIN = {"user": "admin", "pass": "HUSH"}
PASSWORD = {"pass": "HUSH"}
# Nothing is delivered a second time while a test runs.
SLOW = {"ack_wait": 600 * 10**9}
FAR_FUTURE = "2100-01-01T00:00:00Z"
TENANT, TENANT_USER = account_key(7), jwt_user_key(7)
TIERED, TIERED_USER = account_key(8), jwt_user_key(8)


# Adds a client to a server.
Enter: TypeAlias = Callable[[Watched], RawClient]


@dataclass(frozen=True)
class Setup:
    """A configuration, what happens on it, and who asks about it."""

    name: str
    config: Callable[[Path], str]
    arrange: Callable[[Watched], None]
    member: Enter | None = None
    admin: Enter | None = None
    accounts: tuple[str, ...] = ("$G",)
    stream: str = "S"
    consumer: str = "C"
    without_streams: str = ""  # an account that could have some


def admin(server: Watched) -> RawClient:
    return server.client("admin", **ADMIN)


def anybody(server: Watched) -> RawClient:
    return server.client("member")


def anna(server: Watched) -> RawClient:
    return server.client("member", user="anna", **PASSWORD)


def chatter(server: Watched, **logins: Any) -> None:
    """A client with three subscriptions, one that publishes, one that has left, one refused."""
    reader = server.client("reader", **logins)
    reader.send("SUB a.> 1\r\nSUB a.b work 2\r\nSUB c 3\r\nUNSUB 3 5\r\n")
    reader.ping()
    writer = server.client("writer", **logins)
    writer.send("SUB answers 1\r\nPUB a.b answers 5\r\nhello\r\nPUB c 3\r\nabc\r\nPUB d 0\r\n\r\n")
    writer.ping()
    for _ in range(3):
        reader.read_message()
    gone = RawClient(server.process.port).connect(name="gone", **logins)
    gone.send("SUB left 1\r\nPUB a.c 2\r\nhi\r\n")
    gone.ping()
    gone.close()
    reader.read_message()
    server.wait_closed(1)


# ---------------------------------------------------------------- logins and accounts


def nothing_configured(folder: Path) -> str:
    return 'http: "127.0.0.1:-1"\n'


def users_configured(folder: Path) -> str:
    return (
        HTTP
        + f"""
authorization {{
  timeout: 7
  default_permissions {{ publish: {{ deny: "no.>" }} }}
  users: [ {{user: anna, password: HUSH}}, {{nkey: {user_key(3).public}}},
    {{user: narrow, password: HUSH, permissions: {{
      publish: {{ allow: ["a.>", "$SYS.REQ.>"], deny: "a.no" }}
      subscribe: {{ allow: ["_INBOX.>", "a.*"], deny: "a.no" }}
      allow_responses: {{ max: 3, expires: "1m" }} }} }} ]
}}
"""
    )


def arrange_users(server: Watched) -> None:
    chatter(server, user="anna", **PASSWORD)
    server.client("narrow", user="narrow", **PASSWORD)
    key = user_key(3)
    for name in ("key", "left"):
        client = RawClient(server.process.port)
        client.connect(nkey=key.public, sig=key.sign(client.info["nonce"]), name=name)
        server.keep(name, client)
    server.clients.pop("left").close()
    with RawClient(server.process.port) as refused:
        refused.send('CONNECT {"user":"anna","pass":"WRONG","name":"refused"}\r\n')
        refused.read_to_end()
    server.wait_closed(3)


def narrow_member(server: Watched) -> RawClient:
    return server.client("member", user="narrow", **PASSWORD)


def arrange_token(server: Watched) -> None:
    chatter(server, auth_token="HUSH")


def member_by_token(server: Watched) -> RawClient:
    return server.client("member", auth_token="HUSH")


def token_configured(folder: Path) -> str:
    return HTTP + "authorization { token: HUSH, timeout: 2.5 }\n"


def accounts_configured(folder: Path) -> str:
    return (
        HTTP
        + f"""
accounts {{
  A {{
    users: [ {{user: anna, password: HUSH}} ]
    exports: [
      {{service: "svc.*", latency: {{ sampling: 100, subject: lat }} }}
      {{service: "many", response_type: stream}}
      {{service: "svc.one", accounts: [B], response_threshold: "5s" }}
      {{stream: "news.>"}}, {{stream: "own.*", accounts: [B, C]}}
    ]
    mappings {{ old: new, split: [ {{dest: one, weight: 40%}}, {{dest: two, weight: 60%}} ] }}
    limits {{ max_connections: 50, max_subscriptions: 100, max_payload: 1024, max_leafnodes: 3 }}
    msg_trace {{ dest: traces, sampling: 25 }}
  }}
  B {{
    users: [ {{user: bert, password: HUSH}} ]
    imports: [
      {{service: {{account: A, subject: "svc.one"}}, to: "one", share: true}}
      {{service: {{account: A, subject: "svc.*"}} }}
      {{stream: {{account: A, subject: "news.>"}}, prefix: "from.a"}}
      {{stream: {{account: A, subject: "own.*"}}, to: "mine.*", allow_trace: true}}
    ]
    default_permissions {{ publish: {{ deny: "no" }} }}
  }}
  C {{ }}
  {SYSTEM_ACCOUNT}
}}
max_subscriptions: 500
max_connections: 60
"""
    )


def arrange_accounts(server: Watched) -> None:
    chatter(server, user="anna", **PASSWORD)
    bert = server.client("bert", user="bert", **PASSWORD)
    bert.send("SUB from.a.> 1\r\nSUB mine.x 2\r\nSUB r 3\r\n")
    bert.ping()
    service = server.clients["reader"]
    service.send("SUB svc.one 8\r\n")
    service.ping()
    server.clients["writer"].send("PUB news.x 1\r\nx\r\nPUB own.x 1\r\ny\r\n")
    for _ in range(2):
        bert.read_message()
    bert.send("PUB svc.one r 4\r\nwork\r\n")
    line, _, _ = service.read_message()
    service.send(f"PUB {line.split()[3]} 4\r\ndone\r\n")
    bert.read_message()
    # This one is never answered.
    bert.send("PUB svc.one r 4\r\nwork\r\n")
    service.read_message()


def no_auth_user_configured(folder: Path) -> str:
    return (
        HTTP
        + f"""
accounts {{
  A {{ users: [ {{user: anna, password: HUSH}} ] }}
  {SYSTEM_ACCOUNT}
}}
no_auth_user: anna
"""
    )


# ---------------------------------------------------------------- JetStream


class Streams:
    """A client that makes streams and consumers and waits for what follows."""

    def __init__(self, server: Watched, raw: RawClient | None = None, **login: Any) -> None:
        self._server = server
        self.raw = raw if raw is not None else server.client("maker", **login)
        self.raw.send("SUB answers 1\r\n")

    def api(self, subject: str, body: Any = None) -> Any:
        data = json.dumps(body) if body is not None else ""
        return self.ask(f"$JS.API.{subject}", data)

    def ask(self, subject: str, data: str = "") -> Any:
        self.raw.send(f"PUB {subject} answers {len(data)}\r\n{data}\r\n")
        answer = json.loads(self.raw.read_message()[2])
        assert "error" not in answer, (subject, answer)
        return answer

    def stream(self, name: str, **config: Any) -> None:
        self.api(f"STREAM.CREATE.{name}", {"name": name, **config})

    def consumer(self, stream: str, name: str, **config: Any) -> None:
        config = {"name": name, "ack_policy": "explicit", **config}
        self.api(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})

    def wait_stored(self, stream: str, count: int) -> None:
        """Wait until a stream has so many messages, without a request that would be counted."""

        def has_them() -> bool:
            accounts = self._server.document("/jsz?streams=1")["account_details"]
            streams = [each for account in accounts for each in account.get("stream_detail") or []]
            return any(
                each["name"] == stream and each["state"]["messages"] == count for each in streams
            )

        wait_for(has_them, lambda: self._server.document("/jsz?streams=1"))


def jetstream_configured(folder: Path) -> str:
    return (
        HTTP
        + f"""
jetstream {{ store_dir: "STORE", max_mem: 64MB, max_file: 256MB, sync_interval: 90s,
  limits {{ max_ack_pending: 900, max_ha_assets: 40, max_request_batch: 300,
    duplicate_window: "5m", batch {{ max_inflight_per_stream: 9, max_inflight_total: 99,
      max_msgs: 77, timeout: "8s" }} }} }}
accounts {{
  A {{ jetstream: enabled, users: [ {{user: anna, password: HUSH}} ] }}
  B {{ jetstream: enabled, users: [ {{user: bert, password: HUSH}} ] }}
  C {{ users: [ {{user: carl, password: HUSH}} ] }}
  {SYSTEM_ACCOUNT}
}}
"""
    )


def arrange_jetstream(server: Watched) -> None:
    made = Streams(server, user="anna", **PASSWORD)
    _make_streams(made)
    _make_consumers(made)
    for number in range(3):
        made.ask("f.a", f"a{number}")
        made.ask("f.b", f"b{number}")
    made.ask("m.x", "mem")
    made.ask("n", "mem")
    made.ask("w.1", "work")
    made.wait_stored("MIRROR", 5)
    made.wait_stored("SOURCED", 6)
    made.api("STREAM.MSG.DELETE.FILE", {"seq": 3})
    _read_streams(server.client("reader", user="anna", **PASSWORD))
    server.client("bert", user="bert", **PASSWORD)
    # A refusal is counted.
    made.raw.send("PUB $JS.API.STREAM.INFO.NONE answers 0\r\n\r\n")
    made.raw.read_message()


def _make_streams(made: Streams) -> None:
    made.stream(
        "FILE",
        subjects=["f.>"],
        storage="file",
        max_msgs=100,
        max_age=3600 * 10**9,
        allow_direct=True,
        description="orders",
        metadata={"team": "x"},
        compression="s2",
    )
    made.stream(
        "MEM", subjects=["m.*", "n"], storage="memory", retention="interest", max_bytes=9999
    )
    made.stream("MIRROR", mirror={"name": "FILE", "opt_start_seq": 2})
    transforms = [{"src": "f.a", "dest": "moved.a"}, {"src": "f.b", "dest": "moved.b"}]
    made.stream(
        "SOURCED",
        subjects=["s"],
        storage="memory",
        sources=[{"name": "FILE", "subject_transforms": transforms}],
        subject_transform={"src": ">", "dest": "in.>"},
        republish={"src": ">", "dest": "again.>", "headers_only": True},
    )
    made.stream(
        "WORK", subjects=["w.>"], storage="file", retention="workqueue", max_msgs_per_subject=2
    )
    made.stream("EMPTY", subjects=["e"], storage="file", sealed=False, deny_delete=True)


def _make_consumers(made: Streams) -> None:
    made.consumer("FILE", "pull", durable_name="pull", filter_subjects=["f.a", "f.b"], **SLOW)
    made.consumer(
        "FILE", "short", inactive_threshold=3600 * 10**9, mem_storage=True, max_deliver=3, **SLOW
    )
    made.consumer(
        "FILE",
        "push",
        durable_name="push",
        deliver_subject="d.push",
        flow_control=True,
        idle_heartbeat=600 * 10**9,
        deliver_group="g",
        **SLOW,
    )
    made.consumer("FILE", "asleep", durable_name="asleep", deliver_subject="d.nobody")
    made.consumer("FILE", "paused", durable_name="paused", pause_until=FAR_FUTURE)
    made.consumer(
        "FILE",
        "groups",
        durable_name="groups",
        priority_groups=["one"],
        priority_policy="overflow",
        headers_only=True,
        description="priority",
        metadata={"k": "v"},
        backoff=[10**12, 2 * 10**12],
        max_deliver=5,
        deliver_policy="by_start_sequence",
        opt_start_seq=1,
    )
    made.consumer("MEM", "keep", durable_name="keep", ack_policy="none")


def _read_streams(reader: RawClient) -> None:
    """Take messages, acknowledge one, and wait for more than there are."""
    reader.send("SUB d.push g 1\r\nSUB pulled 2\r\n")
    for _ in range(5):
        reader.read_message()
    body = '{"batch":2}'
    reader.send(f"PUB $JS.API.CONSUMER.MSG.NEXT.FILE.pull pulled {len(body)}\r\n{body}\r\n")
    acks = [reader.read_message()[0].split()[3] for _ in range(2)]
    reader.send(f"PUB {acks[0]} pulled 4\r\n+ACK\r\n")
    reader.read_message()
    reader.send("SUB waiting 3\r\n")
    for name, stream in (("short", "FILE"), ("keep", "MEM")):
        body = '{"batch":50,"expires":600000000000}'
        reader.send(
            f"PUB $JS.API.CONSUMER.MSG.NEXT.{stream}.{name} waiting {len(body)}\r\n{body}\r\n"
        )
    for _ in range(7):
        reader.read_message()


def limits_configured(folder: Path) -> str:
    return (
        HTTP
        + f"""
jetstream {{ store_dir: "STORE", max_file: 1GB, domain: hub, unique_tag: "az:", strict: false,
  sync_interval: always }}
server_tags: ["az:one"]
accounts {{
  A {{ jetstream {{ max_memory: 1MB, max_file: 10MB, max_streams: 3, max_consumers: 4,
        max_ack_pending: 77, memory_max_stream_bytes: 4096, disk_max_stream_bytes: 8192,
        max_bytes_required: true }}
      users: [ {{user: anna, password: HUSH}} ] }}
  B {{ jetstream {{ max_mem: 100KB }}, users: [ {{user: bert, password: HUSH}} ] }}
  {SYSTEM_ACCOUNT}
}}
"""
    )


def arrange_limits(server: Watched) -> None:
    made = Streams(server, user="anna", **PASSWORD)
    made.stream("S", subjects=["s"], storage="file", max_bytes=8000)
    made.stream("M", subjects=["m"], storage="memory", max_bytes=4000)
    made.consumer("S", "c", durable_name="c")
    made.ask("s", "one")
    made.ask("m", "one")
    bert = server.client("bert", user="bert", **PASSWORD)
    bert.ping()


# ---------------------------------------------------------------- TLS and WebSocket


@cache
def certificates(folder: Path) -> Certificates:
    made = Certificates(folder)
    made.clients = {
        "anna": made.authority.client("anna", subject="CN=anna,O=Acme", emails=["anna@nats.io"])
    }
    return made


def _pin(der: bytes) -> str:
    key = x509.load_der_x509_certificate(der).public_key()
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


def tls_configured(folder: Path) -> str:
    made = certificates(folder.parent)
    pin = _pin(made.clients["anna"].der)
    block = made.block(f'verify: true, timeout: 8, pinned_certs: ["{pin}"]')
    return (
        HTTP
        + block
        + f"""
accounts {{
  A {{ users: [ {{user: anna, password: HUSH}} ] }}
  {SYSTEM_ACCOUNT}
}}
"""
    )


def _over_tls(server: Watched, name: str, **fields: Any) -> RawClient:
    made = certificates(server.folder.parent)
    client = made.upgrade(RawClient(server.process.port), "anna")
    client.connect(name=name, lang="raw", version="1", no_responders=True, **fields)
    return server.keep(name, client)


def arrange_tls(server: Watched) -> None:
    client = _over_tls(server, "reader", user="anna", **PASSWORD)
    client.send("SUB a 1\r\nPUB a 2\r\nhi\r\n")
    client.read_message()


def member_over_tls(server: Watched) -> RawClient:
    return _over_tls(server, "member", user="anna", **PASSWORD)


def admin_over_tls(server: Watched) -> RawClient:
    return _over_tls(server, "admin", **ADMIN)


def websocket_configured(folder: Path) -> str:
    return (
        HTTP
        + f"""
websocket {{ listen: "127.0.0.1:-1", no_tls: true, compression: true, same_origin: false,
  allowed_origins: ["http://one.example", "http://two.example"], handshake_timeout: 3s,
  no_auth_user: anna, advertise: "ws.example:443", ping_interval: 90s }}
accounts {{
  A {{ users: [ {{user: anna, password: HUSH}} ] }}
  {SYSTEM_ACCOUNT}
}}
"""
    )


def arrange_websocket(server: Watched) -> None:
    chatter(server, user="anna", **PASSWORD)
    client = FrameClient(websocket_port(server.process))
    client.read_message()
    client.send_text('CONNECT {"verbose":false,"name":"web","lang":"js","version":"2"}\r\nPING\r\n')
    assert client.read_message() == b"PONG\r\n"
    server.keep("web", _Closing(client))  # type: ignore[arg-type]


class _Closing:
    """A WebSocket client among those of TCP."""

    def __init__(self, client: FrameClient) -> None:
        self._client = client
        self.info: dict[str, Any] = {}

    def close(self) -> None:
        self._client.socket.close()


# ---------------------------------------------------------------- leaf nodes


LEAF_ACCOUNTS = f"""
accounts {{
  A {{ users: [ {{user: anna, password: HUSH}} ] }}
  {SYSTEM_ACCOUNT}
}}
"""


def hub_configured(folder: Path) -> str:
    return HTTP + hub_config(
        "authorization { timeout: 9, users: [ {user: leaf, password: HUSH, account: A} ] }\n"
        "compression: off, min_version: 2.8.0",
        LEAF_ACCOUNTS,
        port=-1,
    )


def _leaf_port(server: Watched) -> int:
    pattern = r"Listening for leafnode connections on \S+:(\d+)"
    return int(server.process.wait_for_log(pattern)[1])


def arrange_hub(server: Watched) -> None:
    reader = server.client("reader", user="anna", **PASSWORD)
    reader.send("SUB up.> 1\r\nSUB q.x work 2\r\n")
    reader.ping()
    config = leaf_config(
        _leaf_port(server), 'compression: off, deny_import: "secret.>"', login="leaf:HUSH@"
    )
    node = Node("official", server.folder / "leaf", "spoke", config)
    server.others.append(node)
    wait_for(lambda: server.document("/leafz")["leafnodes"] == 1, lambda: server.process.log)
    client = node.client()
    client.send("SUB down.> 1\r\nSUB q.y work 2\r\n")
    client.ping()
    node.wait_asked("up.>")
    client.send("PUB up.1 3\r\nabc\r\n")
    reader.read_message()
    server.wait_asked("down.>")
    server.wait_asked("q.y")
    reader.send("PUB down.1 2\r\nhi\r\n")
    client.read_message()
    wait_for(lambda: server.document("/leafz")["leafs"][0]["in_msgs"] == 1)
    wait_for(lambda: server.document("/leafz")["leafs"][0]["out_msgs"] == 1)
    with RawLeaf(_leaf_port(server)) as left:
        left.login(user="leaf", **PASSWORD)
        left.send("LMSG up.2 4\r\nleft\r\n")
        reader.read_message()
    server.wait_closed(1)


def remote_configured(folder: Path) -> str:
    """Each has a hub of its own, of the official kind."""
    hub = Node("official", folder / "hub", "hub", hub_config("compression: s2_fast"))
    hubs.append(hub)
    remote = (
        'account: A, deny_import: "di.>", deny_export: ["de.>"], hub: false, compression: s2_fast'
    )
    return HTTP + leaf_config(hub.leaf_port, remote, LEAF_ACCOUNTS)


hubs: list[Node] = []


def stop_hubs() -> None:
    while hubs:
        hubs.pop().stop()


def arrange_remote(server: Watched) -> None:
    wait_for(lambda: server.document("/leafz")["leafnodes"] == 1, lambda: server.process.log)
    asked = ("$LDS", "$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.STATZ")
    asked += ("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ")
    for subject in asked:
        server.wait_asked(subject)
    reader = server.client("reader", user="anna", **PASSWORD)
    reader.send("SUB down.> 1\r\nSUB q work 2\r\n")
    reader.ping()
    reader.send("PUB down.1 2\r\nhi\r\n")
    reader.read_message()


# ---------------------------------------------------------------- operators, callout, the rest


def operator_configured(folder: Path) -> str:
    limits = {
        "mem_storage": 1 << 20,
        "disk_storage": 1 << 20,
        "streams": 4,
        "consumer": -1,
        "conn": 20,
        "subs": 90,
    }
    tenant = account_jwt(TENANT, limits=limits, tags=["paid", "eu"], issued_at=1_700_000_000)
    tier = {"mem_storage": 1 << 20, "disk_storage": 1 << 20, "streams": 2}
    tiered = account_jwt(TIERED, limits={"tiered_limits": {"R1": tier}}, issued_at=1_700_000_000)
    more = HTTP + 'jetstream { store_dir: "STORE", max_mem: 8MB, max_file: 8MB }\n'
    return memory_configuration({TENANT.public: tenant, TIERED.public: tiered}, more=more)


def _by_jwt(server: Watched, name: str, key: Any, account: Any, **fields: Any) -> RawClient:
    client = RawClient(server.process.port)
    token = user_jwt(key, account, issued_at=1_700_000_000, **fields)
    login_fields = login(token, key, client.info["nonce"], headers=True, no_responders=True)
    client.connect(**login_fields, name=name, lang="raw", version="1")
    return server.keep(name, client)


def arrange_operator(server: Watched) -> None:
    client = _by_jwt(server, "reader", TENANT_USER, TENANT, tags=["ops"])
    client.send("SUB a 1\r\nPUB a 1\r\nx\r\n")
    client.read_message()
    _by_jwt(server, "tiered", TIERED_USER, TIERED)
    made = Streams(server, server.clients["tiered"])
    made.stream("T", subjects=["t"], storage="file", max_bytes=4000)
    made.ask("t", "one")
    _by_jwt(server, "gone", TENANT_USER, TENANT, tags=["ops"]).close()
    del server.clients["gone"]
    server.wait_closed(1)


def member_by_jwt(server: Watched) -> RawClient:
    return _by_jwt(server, "member", TENANT_USER, TENANT, tags=["ops"])


def admin_by_jwt(server: Watched) -> RawClient:
    return _by_jwt(server, "admin", SYSTEM_USER, SYSTEM)


def callout_configured(folder: Path) -> str:
    text = callout_configuration(
        HTTP
        + """
server_tags: ["Az:One", "fast"]
server_metadata { zone: z1, rack: "r 2" }
ping_interval: 47s
ping_max: 5
max_connections: 90
max_subscriptions: 80
max_payload: 64KB
max_pending: 8MB
max_control_line: 2KB
max_subscription_tokens: 12
max_closed_clients: 50
max_traced_msg_len: 99
write_deadline: 4s
lame_duck_duration: 40s
lame_duck_grace_period: 3s
no_header_support: false
disable_sublist_cache: false
client_advertise: "pub.example:4222"
http_base_path: "/base"
debug: true
trace: false
logtime: true
logtime_utc: true
connect_error_reports: 20
reconnect_error_reports: 3
no_fast_producer_stall: true
"""
    )
    return text.replace("auth_users: [auth]", "auth_users: [auth, sys]")


def arrange_callout(server: Watched) -> None:
    server.keep("service", Service(server.process, name="service"))
    _by_callout(server, "reader")


def member_by_callout(server: Watched) -> RawClient:
    return _by_callout(server, "member")


def _by_callout(server: Watched, name: str) -> RawClient:
    service = server.clients["service"]
    assert isinstance(service, Service)
    fields = {"user": "bob", "pass": "x", "name": name, "protocol": 1, "no_responders": True}
    client = knock(server.process, **fields)
    question = service.question()
    service.answer(question, question.response(question.user(tags=["paid"])))
    client.expect("PONG")
    return server.keep(name, client)


def admin_of_callout(server: Watched) -> RawClient:
    return server.client("admin", user="sys", **{"pass": "sys"})


SETUPS = {
    setup.name: setup
    for setup in (
        Setup("default", nothing_configured, chatter, anybody),
        Setup("users", users_configured, arrange_users, narrow_member),
        Setup("token", token_configured, arrange_token, member_by_token),
        Setup("accounts", accounts_configured, arrange_accounts, anna, admin, ("A", "B", "C")),
        Setup("no_auth_user", no_auth_user_configured, chatter, anybody, admin, ("A",)),
        Setup(
            "jetstream",
            jetstream_configured,
            arrange_jetstream,
            anna,
            admin,
            ("A", "B", "C"),
            "FILE",
            "pull",
            without_streams="B",
        ),
        Setup(
            "limits",
            limits_configured,
            arrange_limits,
            anna,
            admin,
            ("A", "B"),
            "S",
            "c",
            without_streams="B",
        ),
        Setup("tls", tls_configured, arrange_tls, member_over_tls, admin_over_tls, ("A",)),
        Setup("websocket", websocket_configured, arrange_websocket, anna, admin, ("A",)),
        # What a member asks, the server at the other end answers, too.
        Setup("hub", hub_configured, arrange_hub, None, admin, ("A",)),
        Setup("remote", remote_configured, arrange_remote, None, admin, ("A",)),
        Setup(
            "operator",
            operator_configured,
            arrange_operator,
            member_by_jwt,
            admin_by_jwt,
            (TENANT.public, SYSTEM.public, TIERED.public),
            without_streams=TENANT.public,
        ),
        Setup(
            "callout",
            callout_configured,
            arrange_callout,
            member_by_callout,
            admin_of_callout,
            ("APP", "AUTH"),
        ),
    )
}
