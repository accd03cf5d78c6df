"""Authentication: the single gate that every listener uses, and its parts.

`gate` decides about logins (`operator_gate` in operator mode, `callout_gate` and `callout` if a
service is asked). `members` holds the configured users. `passwords`, `certificate_users` (with
`distinguished_names`) and `cookies` read and compare credentials. Nothing outside this package
compares a credential.
"""

from tradewind.server.auth.gate import Listener, build_gate, gate_notices

__all__ = ["Listener", "build_gate", "gate_notices"]
