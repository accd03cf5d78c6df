"""The file formats of JWTs and seeds, as other tools write and read them.

Owns the two formats and parsing them. It never opens a file: callers read and write the text,
because they know the required permissions.

    -----BEGIN NATS OPERATOR JWT-----         -----BEGIN NATS USER JWT-----
    eyJ0eXAiOiJKV1Qi...                       eyJ0eXAiOiJKV1Qi...
    ------END NATS OPERATOR JWT------         ------END NATS USER JWT------
                                              -----BEGIN USER NKEY SEED-----
                                              SUA...
                                              ------END USER NKEY SEED------
"""

from __future__ import annotations

import re

from tradewind.jwt.codec import JwtError

_BLOCK = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s+(\S+)\s+-{3,}END \1-{3,}")
_SEED_WARNING = """
************************* IMPORTANT *************************
NKEY Seed printed below can be used to sign and prove identity.
NKEYs are sensitive and should be treated as secrets.
"""


def decorated(kind: str, token: str) -> str:
    """A file with one JWT; `kind` is operator, account or user."""
    name = f"NATS {kind.upper()} JWT"
    return f"-----BEGIN {name}-----\n{token}\n------END {name}------\n"


def credentials(token: str, seed: str) -> str:
    """The file that a client logs in with: its JWT and its seed."""
    name = "USER NKEY SEED"
    return (
        decorated("user", token)
        + _SEED_WARNING
        + f"\n-----BEGIN {name}-----\n{seed}\n------END {name}------\n"
        + "\n*************************************************************\n"
    )


def read_token(text: str) -> str:
    """The JWT in a file, decorated or bare; JwtError if there is none."""
    for match in _BLOCK.finditer(text):
        if match[1].endswith("JWT"):
            return match[2]
    bare = text.strip()
    if bare.startswith("eyJ") and not re.search(r"\s", bare):
        return bare
    raise JwtError("there is no JWT: neither a line that begins with eyJ nor a block -----BEGIN")
