"""Who may enter: the single gate that every listener asks, and what it is built from.

`gate` decides, `members` holds who is configured, `passwords`, `certificates` (with `names`) and
`cookies` read and compare what is presented. Nothing outside this package compares a credential.
"""

from tradewind.server.auth.cookies import credentials_from_cookies
from tradewind.server.auth.gate import Listener, build_gate, gate_notices

__all__ = ["Listener", "build_gate", "credentials_from_cookies", "gate_notices"]
