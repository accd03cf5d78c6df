"""The client protocol, drawn once: operations, limits and the exact texts of its errors.

```
client -> server                                  server -> client
CONNECT {json}                                    INFO {json}
PUB  <subject> [reply] <#bytes>                   MSG  <subject> <sid> [reply] <#bytes>
HPUB <subject> [reply] <#hdr> <#all>              HMSG <subject> <sid> [reply] <#hdr> <#all>
SUB  <subject> [queue] <sid>                      +OK                 (verbose only)
UNSUB <sid> [max]                                 -ERR '<text>'
PING / PONG                                       PING / PONG

server <-> server, on a leaf connection
LS+  <subject>                                    a subscription exists
LS+  <subject> <queue> <weight>                   ... this many members of a group
LS-  <subject> [queue]                            none exists any more
LMSG <subject> [reply] <#bytes>                   HMSG <subject> [reply] <#hdr> <#all>
LMSG <subject> + <reply> <queue>... <#bytes>      ... for one member each of these groups, too
LMSG <subject> | <queue>... <#bytes>              ... without a reply
```
Each line ends with CRLF (LF alone is accepted), each payload (of the four
lines with a size) with CRLF. Verbs are case-insensitive,
arguments are separated by spaces and tabs. Sizes have at most nine digits. A header block counts
into #all and starts with `NATS/1.0`; the server never looks into it.
"""

from __future__ import annotations

from typing import Final

PROTOCOL_VERSION: Final = 1
# The protocol version between servers; from 3 on, a server creates traces of messages.
LEAF_PROTOCOL_VERSION: Final = 3
# The version that INFO reports: clients enable features by it, so it is that of the compatible
# nats-server.
NATS_VERSION: Final = "2.15.1"
JETSTREAM_API_LEVEL: Final = 5

# -ERR texts, exactly as clients compare them.
ERROR_UNKNOWN_OPERATION: Final = "Unknown Protocol Operation"
ERROR_AUTHORIZATION: Final = "Authorization Violation"
ERROR_AUTHENTICATION_TIMEOUT: Final = "Authentication Timeout"
ERROR_AUTHENTICATION_EXPIRED: Final = "User Authentication Expired"
ERROR_ACCOUNT_EXPIRED: Final = "Account Authentication Expired"
ERROR_REVOKED: Final = "User Authentication Revoked"
ERROR_MAX_CONNECTIONS: Final = "maximum connections exceeded"
ERROR_MAX_ACCOUNT_CONNECTIONS: Final = "maximum account active connections exceeded"
ERROR_MAX_SUBSCRIPTIONS: Final = "maximum subscriptions exceeded"
ERROR_MAX_PAYLOAD: Final = "Maximum Payload Violation"
ERROR_MAX_CONTROL_LINE: Final = "maximum control line exceeded"
ERROR_INVALID_PUBLISH_SUBJECT: Final = "Invalid Publish Subject"
ERROR_INVALID_SUBJECT: Final = "Invalid Subject"
ERROR_CLIENT_PROTOCOL: Final = "invalid client protocol"
ERROR_NO_RESPONDERS_HEADERS: Final = "no responders requires headers support"
ERROR_STALE: Final = "Stale Connection"
ERROR_INVALID_SUBSCRIPTION: Final = "Invalid Subscription"
ERROR_LEAF_PORT: Final = "attempted to connect to leaf node port"
ERROR_LEAF_GATEWAY: Final = 'Rejecting connection from gateway "{}" on the leafnode port'
ERROR_LEAF_LOOP: Final = (
    'Loop detected for leafnode account="{}". Delaying attempt to reconnect for 30s'
)
ERROR_LEAF_CLUSTER: Final = "remote leafnode has same cluster name"
ERROR_LEAF_CLUSTER_SPACES: Final = "cluster name cannot contain spaces"
ERROR_LEAF_VERSION: Final = 'connection rejected since minimum version required is "{}"'
ERROR_LEAF_DUPLICATE: Final = "Duplicate Remote LeafNode Connection"
ERROR_LEAF_STALE: Final = "Stale Leaf Node Connection - Closing"
ERROR_LEAF_COMPRESSION: Final = 'unsupported route compression mode "{}"'
ERROR_SECURE_REQUIRED: Final = "Secure Connection - TLS Required"

# The reasons of closed connections, as monitoring shows them.
CLOSED_BY_CLIENT: Final = "Client Closed"
CLOSED_AUTHENTICATION_TIMEOUT: Final = "Authentication Timeout"
CLOSED_AUTHENTICATION_FAILURE: Final = "Authentication Failure"
CLOSED_TLS_HANDSHAKE: Final = "TLS Handshake Failure"
CLOSED_SLOW_PENDING: Final = "Slow Consumer (Pending Bytes)"
CLOSED_SLOW_DEADLINE: Final = "Slow Consumer (Write Deadline)"
CLOSED_WRITE_ERROR: Final = "Write Error"
CLOSED_READ_ERROR: Final = "Read Error"
CLOSED_PARSE_ERROR: Final = "Parse Error"
CLOSED_STALE: Final = "Stale Connection"
CLOSED_PROTOCOL: Final = "Protocol Violation"
CLOSED_BAD_PROTOCOL_VERSION: Final = "Bad Client Protocol Version"
CLOSED_MAX_CONNECTIONS: Final = "Maximum Connections Exceeded"
CLOSED_MAX_ACCOUNT_CONNECTIONS: Final = "Maximum Account Connections Exceeded"
CLOSED_MAX_PAYLOAD: Final = "Maximum Message Payload Exceeded"
CLOSED_MAX_CONTROL_LINE: Final = "Maximum Control Line Exceeded"
CLOSED_MAX_SUBSCRIPTIONS: Final = "Maximum Subscriptions Exceeded"
CLOSED_SERVER_SHUTDOWN: Final = "Server Shutdown"
CLOSED_AUTHENTICATION_EXPIRED: Final = "Authentication Expired"
CLOSED_MISSING_ACCOUNT: Final = "Missing Account"
CLOSED_REVOKED: Final = "Credentials Revoked"
CLOSED_NO_RESPONDERS_HEADERS: Final = "No Responders Requires Headers"
CLOSED_LEAF_DUPLICATE: Final = "Duplicate Remote LeafNode"
CLOSED_LEAF_VERSION: Final = "Minimum Version Required"
CLOSED_LEAF_CLUSTER: Final = "Cluster Names Identical"
CLOSED_WRONG_PORT: Final = "Incorrect Port"
CLOSED_KICKED: Final = "Kicked"
CLOSED_PROXY_NOT_TRUSTED: Final = "Proxy Not Trusted"
CLOSED_PROXY_REQUIRED: Final = "Proxy Required"
