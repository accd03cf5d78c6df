"""Configuration files as people write them: every notation, for all parts of the server."""

from __future__ import annotations

# Each is valid for both servers. TW_NAME and TW_NUMBER are variables of the environment.
REALISTIC = {
    "minimal": """\
port: 4222
""",
    "listen-and-monitoring": """\
listen: "0.0.0.0:4222"
http_port: 8222
server_name: "nats-1"
""",
    "jetstream": """\
jetstream {
  store_dir: /tmp/nats/jetstream
  max_mem: 1GB
  max_file: 10GB
}
""",
    "jetstream-quoted-sizes": """\
jetstream: {
  store_dir: "/tmp/nats"
  max_memory_store: 1073741824
  max_file_store: "5G"
  domain: "hub"
}
""",
    "jetstream-flag": """\
jetstream: true
server_name=solo
""",
    "limits": """\
max_connections: 64K
max_payload: 8MB
max_pending: 64MB
max_control_line: 4KB
max_subscriptions: 1000
ping_interval: 20s
ping_max: 3
write_deadline: "10s"
""",
    "durations": """\
ping_interval: "2m"
lame_duck_duration: "30s"
lame_duck_grace_period: "5s"
write_deadline: 5s
""",
    "logging": """\
debug: false
trace: false
logtime: true
log_file: "/tmp/nats.log"
log_size_limit: 100MB
max_traced_msg_len: 1024
""",
    "comments": """\
# a comment
// another
port: 4222 # behind a value
host: 127.0.0.1 // and so

# the end\
""",
    "json": """\
{
  "port": 4222,
  "http_port": 8222,
  "jetstream": {"store_dir": "/tmp/x", "max_mem": 1000000},
  "authorization": {"users": [{"user": "a", "password": "b"}]}
}
""",
    "equals-signs": """\
port = 4222
host = localhost
authorization = {
  user = derek
  password = T0pS3cr3t
  timeout = 1
}
""",
    "blanks-only": """\
port 4222
host localhost
authorization {
  user derek
  password T0pS3cr3t
}
""",
    "semicolons": """\
port: 4222; host: localhost; debug: false;
""",
    "token": """\
authorization {
  token: "s3cr3t-t0k3n"
}
""",
    "users-and-permissions": """\
authorization {
  ADMIN = { publish = ">", subscribe = ">" }
  REQUESTOR = {
    publish = ["req.foo", "req.bar"]
    subscribe = "_INBOX.>"
  }
  RESPONDER = { subscribe = ["req.foo", "req.bar"], publish = "_INBOX.>" }
  DEFAULT = { publish = "SANDBOX.*", subscribe = ["PUBLIC.>", "_INBOX.>"] }
  default_permissions = $DEFAULT
  PASS = abcdefghijklmnopqrstuvwxyz0123456789
  users = [
    {user: joe,     password: foo,   permissions: $ADMIN}
    {user: alice,   password: bar,   permissions: $REQUESTOR}
    {user: bob,     password: $PASS, permissions: $RESPONDER}
    {user: charlie, password: bar}
  ]
}
""",
    "allow-and-deny": """\
authorization: {
  users: [
    { user: a, password: b, permissions: {
        publish: { allow: ["foo", "bar.>"], deny: "foo.secret" }
        subscribe: { allow: ">", deny: ["$SYS.>", "q.* workers"] }
        allow_responses: { max: 5, expires: "1m" } } },
    { user: c, password: d, permissions: { publish: "x", allow_responses: true } },
  ]
}
""",
    "bcrypt": """\
authorization {
  users = [
    {user: a, password: "$2a$11$UP3xizk94sWF9SHF/wkklOfBT9jphTGNrhZqz2OHoBdk9yO1kvErG"}
  ]
}
""",
    "nkeys": """\
authorization {
  users = [
    { nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4 }
  ]
}
""",
    "accounts": """\
accounts: {
  A: { users: [ {user: a, password: a} ], jetstream: enabled }
  B: {
    users: [ {user: b, password: b} ]
    jetstream: { max_mem: 512M, max_file: 1G, max_streams: 10, max_consumers: 100 }
  }
  SYS: { users: [ {user: admin, password: changeit} ] }
}
system_account: SYS
jetstream { store_dir: "/tmp/accounts" }
no_auth_user: a
""",
    "sharing": """\
accounts {
  A {
    users [ {user: a, password: a} ]
    exports [
      { stream: "puba.>" }
      { service: "pubq.>", response_type: stream, threshold: "5s" }
      { stream: "b.>", accounts: [B] }
    ]
    mappings = {
      foo: bar
      "orders.*": [
        { destination: "new.$1", weight: 40% }, { destination: "old.$1", weight: 60% }
      ]
    }
  }
  B {
    users [ {user: b, password: b} ]
    imports [
      { stream: {account: A, subject: "puba.>"}, prefix: from_a }
      { service: {account: A, subject: "pubq.C"}, to: Q }
    ]
  }
}
""",
    "variables": """\
PORT: 4333
STORE: "/tmp/s"
port: $PORT
jetstream { store_dir: $STORE }
""",
    "environment": """\
server_name: $TW_NAME
port: $TW_NUMBER
""",
    "nested-variables": """\
authorization {
  SECRET: hush
  users [
    {user: a, password: $SECRET}
  ]
}
max_payload: 1MB
""",
    "websocket": """\
websocket {
  port: 443
  no_tls: true
  compression: true
  same_origin: false
  allowed_origins: [ "http://localhost:8080", "https://example.com" ]
  handshake_timeout: "5s"
}
""",
    "leaf-hub": """\
leafnodes {
  port: 7422
  authorization {
    users = [ {user: leaf, password: secret, account: A} ]
  }
}
accounts { A { users: [ {user: x, password: y} ] } }
""",
    "leaf-remote": """\
leafnodes {
  remotes = [
    {
      url: "nats://user:pass@hub.example.com:7422"
      account: A
      deny_imports: ["private.>"]
    }
    { urls: ["nats://one:7422", "nats://two:7422"] }
  ]
  reconnect: "5s"
}
accounts { A { users: [ {user: x, password: y} ] } }
""",
    "cluster": """\
cluster {
  name: C1
  listen: 0.0.0.0:6222
  routes = [
    nats-route://n2:6222
    nats-route://n3:6222
  ]
}
""",
    "mqtt-and-gateway": """\
mqtt { port: 1883 }
server_name: m
jetstream: enabled
""",
    "tags-and-metadata": """\
server_tags: ["az:1", "region:eu"]
server_metadata: { owner: team, stage: "test" }
""",
    "system-account": """\
accounts { $SYS { users = [ { user: admin, pass: s3cret } ] } }
""",
    "multiline": """\
server_name: "multi"
pid_file: (
/tmp/nats.pid
)
""",
    "compact": """\
{port:4222,jetstream:{max_mem:1G},accounts:{A:{users:[{user:a,password:b}]}}}
""",
    "trailing-commas": """\
server_tags: [a, b,]
accounts: { A: { users: [ {user: a, password: b,}, ], }, }
""",
    "crlf": "port: 4222\r\njetstream {\r\n  max_mem: 1G\r\n}\r\n",
    "tabs": "port:\t4222\nauthorization\t{\n\tuser:\tx\n\tpassword:\ty\n}\n",
    "upper-case-keys": """\
PORT: 4222
Host: localhost
""",
    "units": """\
max_payload: 1mb
max_pending: 1GiB
max_connections: 1ki
""",
    "booleans": """\
debug: on
trace: off
logtime: yes
no_system_account: no
""",
}
