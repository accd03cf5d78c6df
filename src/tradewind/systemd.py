"""systemd units for servers, with no more rights than a server needs.

Owns the text of a unit. It never writes a file and never contacts systemd.
"""

from __future__ import annotations

from typing import Final

import msgspec

_UNIT: Final = """\
[Unit]
Description={description}
Wants=network-online.target
After=network-online.target

[Service]
Type={type}
ExecStart={command}
ExecReload=/bin/kill -s HUP $MAINPID
KillSignal={stop_signal}
Restart=on-failure
RestartSec=2
# A large store may take long to be opened after a crash; ending it meanwhile gains nothing.
TimeoutStartSec=infinity
TimeoutStopSec={stop_seconds}
User={user}
Group={user}
LimitNOFILE=800000
UMask=0077
NoNewPrivileges=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProtectSystem=strict
ReadWritePaths={store}
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
CapabilityBoundingSet=
AmbientCapabilities=
SystemCallArchitectures=native
SystemCallFilter=@system-service

[Install]
WantedBy=multi-user.target
"""


class ServiceUnit(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a unit. `type` is "notify" for a server that reports when it is ready."""

    description: str
    command: str
    store: str
    user: str
    type: str = "simple"
    stop_signal: str = "SIGTERM"
    stop_seconds: int = 120

    def text(self) -> str:
        """The unit file."""
        return _UNIT.format(**msgspec.structs.asdict(self))
