"""The command line flags: those of nats-server, parsed by the rules of Go's flag package.

Owns the table of flags, their parsing, and which settings of the file they override. It never reads
a configuration file itself (`load_options` asks `server.config` to) and never prints.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from tradewind.errors import ConfigError
from tradewind.options import (
    DEFAULT_PORT,
    LOOPBACK,
    AuthorizationOptions,
    JetStreamOptions,
    Secret,
    ServerOptions,
    TlsOptions,
)
from tradewind.own_addresses import is_wildcard

if TYPE_CHECKING:
    from tradewind.server.config.loaded import LoadedConfig

_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")
_CLUSTER_FLAGS = (
    "routes",
    "cluster",
    "cluster_listen",
    "cluster_name",
    "cluster_advertise",
    "no_advertise",
    "connect_retries",
)

_BOOLEAN = {
    "h": "help",
    "help": "help",
    "v": "version",
    "version": "version",
    "help_tls": "help_tls",
    "t": "test_config",
    "D": "debug",
    "debug": "debug",
    "V": "trace",
    "trace": "trace",
    "VV": "VV",
    "DV": "DV",
    "DVV": "DVV",
    "T": "logtime",
    "logtime": "logtime",
    "logtime_utc": "logtime_utc",
    "s": "syslog",
    "syslog": "syslog",
    "js": "jetstream",
    "jetstream": "jetstream",
    "tls": "tls",
    "tlsverify": "tlsverify",
    "no_advertise": "no_advertise",
}
_INTEGER = {
    "p": "port",
    "port": "port",
    "m": "http_port",
    "http_port": "http_port",
    "ms": "https_port",
    "https_port": "https_port",
    "profile": "profile",
    "log_size_limit": "log_size_limit",
    "max_traced_msg_len": "max_traced_msg_len",
    "connect_retries": "connect_retries",
}
_STRING = {
    "a": "addr",
    "addr": "addr",
    "net": "addr",
    "n": "server_name",
    "name": "server_name",
    "server_name": "server_name",
    "client_advertise": "client_advertise",
    "c": "config",
    "config": "config",
    "sl": "signal",
    "signal": "signal",
    "P": "pid",
    "pid": "pid",
    "ports_file_dir": "ports_file_dir",
    "check-store": "check_store",
    "json": "json",
    "l": "log",
    "log": "log",
    "r": "remote_syslog",
    "remote_syslog": "remote_syslog",
    "sd": "store_dir",
    "store_dir": "store_dir",
    "user": "user",
    "pass": "pass",
    "auth": "auth",
    "tlscert": "tlscert",
    "tlskey": "tlskey",
    "tlscacert": "tlscacert",
    "routes": "routes",
    "cluster": "cluster",
    "cluster_listen": "cluster_listen",
    "cluster_name": "cluster_name",
    "cluster_advertise": "cluster_advertise",
}

USAGE = """
Usage: tradewind-server [options]

Server:
    -a, --addr, --net <host>         Address to listen on (default 0.0.0.0)
    -p, --port <port>                Port for clients (default 4222, -1 for any free port)
    -n, --name, --server_name <name> Name of this server (default: made of the host's name)
    -P, --pid <file>                 Write the process id to this file
    -m, --http_port <port>           Port for monitoring over HTTP
    -ms,--https_port <port>          Port for monitoring over HTTPS
    -c, --config <file>              Configuration file
    -t                               Check the configuration file and exit
    -sl,--signal <command>[=<pid>]   Send a signal to a running server: ldm, stop, quit, term,
                                     reopen or reload; <pid> is a process id or a pid file
        --client_advertise <address> Address that clients are told to use
        --ports_file_dir <dir>       Write the ports in use to a file in this folder
        --check-store <dir>          Verify the streams below a store folder and exit
        --json <file>                With --check-store: also write the result as JSON
                                     (-c <file> provides the keys of encrypted streams)

Logging:
    -l, --log <file>                 Log to this file
    -T, --logtime                    Begin each line with the time (default true)
        --logtime_utc                The time in UTC instead of local time
    -s, --syslog                     Log to syslog
    -r, --remote_syslog <address>    Log to a syslog server, for example udp://localhost:514
    -D, --debug                      Log details
    -V, --trace                      Log the protocol
    -VV                              Log the protocol, also of the system account
    -DV, -DVV                        -D with -V, or with -VV
        --log_size_limit <bytes>     Start a new log file at this size
        --max_traced_msg_len <bytes> Cut longer messages in protocol logs

JetStream:
    -js, --jetstream                 Enable JetStream
    -sd, --store_dir <dir>           Folder for stored messages

Authorization:
        --user <name>                User that clients must present
        --pass <password>            Password of that user
        --auth <token>               Token that clients must present

TLS:
        --tls                        Use TLS
        --tlscert <file>             Certificate of the server
        --tlskey <file>              Private key of the certificate
        --tlsverify                  Use TLS and ask clients for a certificate
        --tlscacert <file>           Authorities that client certificates are checked against

Other:
    -h, --help                       Show this text
        --help_tls                   Show help about TLS
    -v, --version                    Show the version

The cluster flags of nats-server are accepted and ignored: this is a single server.
"""

USAGE_TLS = """
TLS is set with flags or with a block in the configuration file:

    tls {
        cert_file: "./server.pem"      # certificate of the server, with its chain
        key_file:  "./server-key.pem"  # private key of the certificate
        ca_file:   "./ca.pem"          # authorities that client certificates are checked against
        verify:    true                # ask clients for a certificate
        timeout:   "2s"                # for the handshake
        min_version: "1.2"             # or "1.3"
        handshake_first: false         # true: TLS starts before the server sends anything
    }
"""


class FlagError(ConfigError):
    """The command line does not follow the rules. The usage is shown along with the error."""


class Flags(msgspec.Struct, frozen=True):
    """A parsed command line: the value of each given flag, and the first word after the flags."""

    values: dict[str, Any] = msgspec.field(default_factory=dict)
    word: str = ""

    def __repr__(self) -> str:
        return f"Flags({sorted(self.values)})"  # values may be passwords

    def text(self, name: str) -> str:
        """The value of a string flag; empty if it was not given."""
        return str(self.values.get(name, ""))

    def is_on(self, name: str) -> bool:
        """Whether a boolean flag was given and not switched off."""
        return self.values.get(name) is True


def parse_flags(arguments: list[str]) -> Flags:
    """Parse as Go does: -name or --name, a value after space or =, up to the first other word."""
    values: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        argument = rest[0]
        if len(argument) < 2 or not argument.startswith("-"):
            break
        rest.pop(0)
        if argument == "--":
            break
        name, equals, value = argument.removeprefix("-").removeprefix("-").partition("=")
        if not name or name.startswith("-"):
            raise FlagError(f"bad flag syntax: {argument}")
        if name in _BOOLEAN:
            _set(values, _BOOLEAN[name], _truth(name, value if equals else "true"))
            continue
        if name not in _INTEGER and name not in _STRING:
            raise FlagError(f"flag provided but not defined: -{name}")
        if not equals:
            if not rest:
                raise FlagError(f"flag needs an argument: -{name}")
            value = rest.pop(0)
        if name in _INTEGER:
            _set(values, _INTEGER[name], _integer(name, value))
        else:
            _set(values, _STRING[name], value)
    return Flags(values, rest[0] if rest else "")


def _set(values: dict[str, Any], name: str, value: object) -> None:
    targets = {
        "DV": ("debug", "trace"),
        "VV": ("trace", "trace_verbose"),
        "DVV": ("debug", "trace", "trace_verbose"),
    }.get(name, (name,))
    values.update(dict.fromkeys(targets, value))


def _truth(name: str, value: str) -> bool:
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise FlagError(f'invalid boolean value "{value}" for -{name}: parse error')


def _integer(name: str, value: str) -> int:
    # Go also reads 0x10, 0o17, 0b1 and 017; only plain numbers are accepted here.
    if not re.fullmatch(r"[+-]?(?:0x[0-9a-fA-F]{1,15}|[0-9]{1,18})", value):
        raise FlagError(f'invalid value "{value}" for flag -{name}: parse error')
    return int(value, 16) if "x" in value else int(value)


def load_options(flags: Flags) -> LoadedConfig:
    """The options of the configuration file, if there is one, overridden by the flags; checked."""
    # Imported here so that --version and --help do not pay for the parser.
    from tradewind.server.config.checks import check_options
    from tradewind.server.config.loaded import LoadedConfig

    loaded = LoadedConfig(ServerOptions(), ())
    if path := flags.text("config"):
        from tradewind.server.config.load import load_config_file

        loaded = load_config_file(path)
    options = merge(loaded.options, flags)
    check_options(options)
    return LoadedConfig(options, loaded.warnings)


def merge(options: ServerOptions, flags: Flags) -> ServerOptions:
    """`options` with the overrides of the command line. Raises ConfigError."""
    given = flags.values
    changes: dict[str, Any] = {
        option: given[name] for name, option in _DIRECT.items() if name in given
    }
    for name in ("port", "http_port", "https_port"):
        if not -1 <= changes.get(name, 0) <= 65535:
            raise ConfigError(f"--{name} must be a port up to 65535, or -1, not {changes[name]}")
    if changes.get("port") == 0:
        changes["port"] = DEFAULT_PORT
    if any(map(str.isspace, changes.get("server_name", ""))):
        raise ConfigError("--server_name must not contain spaces")
    if changes.get("host") == "":
        del changes["host"]
    changes["authorization"] = _merge_authorization(options.authorization, given)
    changes["jetstream"] = _merge_jetstream(options.jetstream, flags)
    changes["tls"] = _merge_tls(options.tls, flags)
    changes["notices"] = (*options.notices, *_notices(options, flags))
    merged = replace(options, **changes)
    if (merged.http_port or merged.https_port) and not merged.http_host:
        # Monitoring has no login: it is opened to the network only by an address of its own.
        merged = replace(merged, http_host=LOOPBACK if is_wildcard(merged.host) else merged.host)
    return merged


# Flags that set one option without conversion.
_DIRECT = {
    "addr": "host",
    "port": "port",
    "server_name": "server_name",
    "client_advertise": "client_advertise",
    "http_port": "http_port",
    "https_port": "https_port",
    "pid": "pid_file",
    "ports_file_dir": "ports_file_dir",
    "debug": "debug",
    "trace": "trace",
    "trace_verbose": "trace_verbose",
    "logtime": "logtime",
    "logtime_utc": "logtime_utc",
    "log": "log_file",
    "log_size_limit": "log_size_limit_bytes",
    "max_traced_msg_len": "max_traced_msg_len",
    "syslog": "syslog",
    "remote_syslog": "remote_syslog",
}


def _merge_authorization(
    options: AuthorizationOptions, given: dict[str, Any]
) -> AuthorizationOptions:
    changes: dict[str, Any] = {}
    if "user" in given:
        changes["user"] = given["user"]
    if "pass" in given:
        changes["password"] = Secret(given["pass"])
    if "auth" in given:
        changes["token"] = Secret(given["auth"])
    return replace(options, **changes)


def _merge_jetstream(options: JetStreamOptions, flags: Flags) -> JetStreamOptions:
    changes: dict[str, Any] = {}
    if "jetstream" in flags.values:
        changes["enabled"] = flags.is_on("jetstream")
    if "store_dir" in flags.values:
        changes["store_dir"] = flags.text("store_dir")
    return replace(options, **changes)


def _merge_tls(options: TlsOptions | None, flags: Flags) -> TlsOptions | None:
    """The file's TLS options, unless flags switch TLS off or bring their own certificate."""
    if not any(name.startswith("tls") for name in flags.values):
        return options
    if flags.values.get("tls") is False:
        return None
    if not flags.text("tlscert"):
        raise ConfigError("--tls needs --tlscert: the certificate of the server")
    if not flags.text("tlskey"):
        raise ConfigError("--tls needs --tlskey: the private key of the certificate")
    from tradewind.server.config.transport import check_tls

    merged = TlsOptions(
        cert_file=flags.text("tlscert"),
        key_file=flags.text("tlskey"),
        ca_file=flags.text("tlscacert"),
        verify=flags.is_on("tlsverify"),
        timeout_ns=(options or TlsOptions()).timeout_ns,
    )
    check_tls(merged)
    return merged


def _notices(options: ServerOptions, flags: Flags) -> list[str]:
    notices = []
    if any(flags.values.get(name) for name in _CLUSTER_FLAGS):
        from tradewind.server.config.absent import ALONE_CLUSTER_FLAGS

        notices.append(f"cluster: {ALONE_CLUSTER_FLAGS}")
    if flags.values.get("profile"):
        from tradewind.server.config.absent import PROFILING_NOTICE

        notices.append(f"--profile: {PROFILING_NOTICE}")
    if flags.text("user") and options.authorization.users:
        notices.append("--user has no effect: the users of the configuration file apply")
    return notices
