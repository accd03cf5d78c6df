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

from tradewind.jwt.codec import JwtError
from tradewind.key_blocks import key_blocks

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
    for name, word in key_blocks(text):
        if name.endswith("JWT"):
            return word
    words = text.split(maxsplit=1)
    if len(words) == 1 and words[0].startswith("eyJ"):
        return words[0]
    raise JwtError("there is no JWT: neither a line that begins with eyJ nor a block -----BEGIN")
