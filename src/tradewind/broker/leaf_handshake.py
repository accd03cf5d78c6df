"""INFO and CONNECT on a leaf connection: the two JSON lines with which servers introduce
themselves.

Owns their fields, in both directions. It never decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tradewind._version import __version__
from tradewind.broker.connect import ConnectRequest
from tradewind.broker.info import RUNTIME, encode_info
from tradewind.errors import JSON_ERRORS, ProtocolError
from tradewind.own_addresses import address_text
from tradewind.route.permission_rules import PermissionRules
from tradewind.wire import ops

if TYPE_CHECKING:
    from tradewind.broker.broker import Broker

# A cluster has few servers; a longer list is not believed.
URLS_MAX = 1024
_encode = msgspec.json.Encoder().encode


class LeafSubjectRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """The subjects that may cross in one direction."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None


class LeafInfo(msgspec.Struct, frozen=True):
    """The fields of INFO that matter on a leaf connection."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    proto: int = 0
    cluster: str = ""
    domain: str = ""
    nonce: str = ""
    client_id: int = 0
    headers: bool = False
    jetstream: bool = False
    tls_required: bool = False
    max_payload: int = 0
    compression: str = ""
    info_on_connect: bool = False
    connect_info: bool = False
    remote_account: str = ""
    leafnode_urls: tuple[str, ...] | None = None
    ws_connect_urls: tuple[str, ...] | None = None
    imports: LeafSubjectRules | None = msgspec.field(name="import", default=None)
    exports: LeafSubjectRules | None = msgspec.field(name="export", default=None)


class LeafConnect(msgspec.Struct, frozen=True):
    """The CONNECT of a server that dials."""

    version: str = ""
    name: str = ""
    server_id: str = ""
    cluster: str = ""
    domain: str = ""
    headers: bool = False
    jetstream: bool = False
    is_hub: bool = False
    isolate: bool = False
    remote_account: str = ""
    deny_pub: tuple[str, ...] | None = None
    compress_mode: str = ""
    protocol: int = 0
    lang: str = ""
    gateway: str = ""
    user: str = ""
    password: str = msgspec.field(name="pass", default="")
    token: str = msgspec.field(name="auth_token", default="")
    nkey: str = ""
    signature: str = msgspec.field(name="sig", default="")
    jwt: str = ""
    proxy_signature: str = msgspec.field(name="proxy_sig", default="")

    def __repr__(self) -> str:
        """A text without the secrets."""
        return f"LeafConnect(name={self.name!r}, cluster={self.cluster!r}, user={self.user!r})"

    def as_client(self) -> ConnectRequest:
        """The fields that the gate checks for every login."""
        return ConnectRequest(
            verbose=False,
            pedantic=False,
            headers=self.headers,
            user=self.user,
            password=self.password,
            token=self.token,
            nkey=self.nkey,
            signature=self.signature,
            jwt=self.jwt,
            proxy_signature=self.proxy_signature,
            name=self.name,
            version=self.version,
            protocol=self.protocol,
        )


class LeafPeer(msgspec.Struct, frozen=True):
    """The server at the other end."""

    name: str
    server_id: str = ""
    version: str = ""
    cluster: str = ""
    domain: str = ""
    account: str = ""  # its name for the connected account
    jetstream: bool = False
    protocol: int = 0


_info_decoder = msgspec.json.Decoder(LeafInfo)
_connect_decoder = msgspec.json.Decoder(LeafConnect)


def parse_info(argument: bytes) -> LeafInfo:
    """Parse the INFO of a server."""
    try:
        return _info_decoder.decode(argument)
    except JSON_ERRORS as error:
        raise ProtocolError(f"INFO of a leaf node cannot be read: {error}") from None


def parse_leaf_connect(argument: bytes) -> LeafConnect:
    """Parse the CONNECT of a server."""
    try:
        return _connect_decoder.decode(argument)
    except JSON_ERRORS as error:
        raise ProtocolError(f"CONNECT of a leaf node cannot be read: {error}") from None


def info_line(broker: Broker, connection_type: str, cluster: str, **extra: Any) -> bytes:
    """The INFO for a leaf connection."""
    listener = broker.info.listener("LEAFNODE")
    is_plain = connection_type == "LEAFNODE"
    return encode_info(
        {
            "server_id": broker.server_id,
            "server_name": broker.server_name,
            "version": ops.NATS_VERSION,
            "proto": ops.LEAF_PROTOCOL_VERSION,
            "go": RUNTIME,
            "tradewind": __version__,
            "host": listener.host,
            "port": listener.port,
            "headers": not broker.options.no_header_support,
            "auth_required": True,
            "tls_required": listener.tls_required and is_plain,
            "tls_verify": listener.tls_verify and is_plain,
            "max_payload": broker.options.max_payload_bytes,
            "jetstream": broker.info.jetstream,
            "ip": address_text(listener.host, listener.port) if listener.port else "",
            "cluster": cluster,
            "domain": broker.info.domain,
            "api_lvl": ops.JETSTREAM_API_LEVEL,
            "info_on_connect": True,
            "leafnode_urls": list(listener.connect_urls),
            **extra,
        }
    )


def compression_line(mode: str) -> bytes:
    """The INFO by which a dialling server announces its compression: nothing else in it matters."""
    return b"INFO " + _encode({"server_id": "", "compression": mode}) + b"\r\n"


def connect_line(fields: dict[str, Any]) -> bytes:
    """The CONNECT, without empty fields."""
    return b"CONNECT " + _encode({key: value for key, value in fields.items() if value}) + b"\r\n"


def rules_for_info(rules: PermissionRules | None) -> dict[str, LeafSubjectRules]:
    """The permissions of a user in the form of INFO: `import` is what it may subscribe to."""
    if rules is None:
        return {}
    found = {}
    if rules.subscribe_allow is not None or rules.subscribe_deny:
        found["import"] = LeafSubjectRules(rules.subscribe_allow, rules.subscribe_deny or None)
    if rules.publish_allow is not None or rules.publish_deny:
        found["export"] = LeafSubjectRules(rules.publish_allow, rules.publish_deny or None)
    return found
