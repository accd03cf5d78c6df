"""Compare a presented password or token with the configured one.

Owns the comparison, plain and bcrypt. It never looks up a user, and never stores or prints the
values it compares.
"""

from __future__ import annotations

import re

from tradewind.options import Secret

# As on nats-server, a value with this prefix is always taken as a hash, even a broken one.
_BCRYPT = re.compile(r"\$2[abxy]\$[0-9]{2}\$")
# Blowfish reads no more of its key. The official server ignores the rest too, so hashes of longer
# passwords that other tools made remain valid.
_BCRYPT_PASSWORD_BYTES_MAX = 72


def is_hashed(configured: Secret) -> bool:
    """Whether the configured value is a bcrypt hash, which is too slow to check in the loop."""
    return _BCRYPT.match(configured.reveal()) is not None


def matches_plain(configured: Secret, presented: str) -> bool:
    """Compare with a configured plain text, in a time that does not depend on where they differ."""
    # Loaded when it is needed: an open server starts sooner.
    import hmac

    return hmac.compare_digest(_encoded(configured.reveal()), _encoded(presented))


def matches_hash(configured: Secret, presented: str) -> bool:
    """Compare with a configured bcrypt hash, slowly by design; a broken hash never matches."""
    # Loaded when it is needed: most servers have no hashed passwords.
    import bcrypt

    password = _encoded(presented)[:_BCRYPT_PASSWORD_BYTES_MAX]
    try:
        return bcrypt.checkpw(password, _encoded(configured.reveal()))
    except ValueError:
        return False


def _encoded(text: str) -> bytes:
    """The text in UTF-8; lone surrogates, which JSON can carry, are encoded like any character."""
    return text.encode("utf-8", "surrogatepass")
