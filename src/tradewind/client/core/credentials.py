"""Client credentials: the fields of CONNECT that log in.

Owns reading credentials files and seeds, and signing a nonce. Files are read again at every login,
so renewed ones are used. Secrets never appear in an error or a log.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.client.errors import CredentialsError
from tradewind.key_blocks import key_blocks
from tradewind.nkeys import KeyPair, NkeyError

if TYPE_CHECKING:
    from tradewind.client.core.addresses import Address
    from tradewind.client.core.connect_options import ConnectOptions

FILE_BYTES_MAX = 1 << 20
_SEED = re.compile(r"\bS[ACNOU][A-Z2-7]{56}\b")


def login_fields(options: ConnectOptions, address: Address, nonce: str) -> dict[str, str]:
    """The fields of CONNECT for this server; `nonce` is from its INFO, empty if it has none."""
    if address.user and address.password:
        return {"user": address.user, "pass": address.password}
    if address.user:
        return {"auth_token": address.user}
    fields: dict[str, str] = {}
    seed = options.nkey_seed
    if options.credentials:
        jwt, seed = parse_credentials(_read(options.credentials, "credentials"))
        fields["jwt"] = jwt
    elif options.nkey_file:
        seed = find_seed(_read(options.nkey_file, "nkey_file"), "nkey_file")
    elif options.user_jwt:
        fields["jwt"] = options.user_jwt
    if seed:
        key = _key(seed)
        if "jwt" not in fields:
            fields["nkey"] = key.public
        if nonce:
            signature = base64.urlsafe_b64encode(key.sign(nonce.encode()))
            fields["sig"] = signature.rstrip(b"=").decode()
    if options.user:
        fields["user"] = options.user
        fields["pass"] = options.password
    token = options.token() if callable(options.token) else options.token
    if token:
        fields["auth_token"] = token
    return fields


def parse_credentials(text: str) -> tuple[str, str]:
    """The token and the seed in a credentials file."""
    blocks = dict(key_blocks(text))
    jwt = blocks.get("NATS USER JWT")
    seed = blocks.get("USER NKEY SEED")
    if not jwt or not seed:
        missing = "NATS USER JWT" if not jwt else "USER NKEY SEED"
        raise CredentialsError(
            f"credentials: no block -----BEGIN {missing}-----; it is the file that nsc writes"
        )
    return jwt, seed


def _key(seed: str) -> KeyPair:
    try:
        return KeyPair.from_seed(seed)
    except NkeyError as error:
        raise CredentialsError(f"nkey seed: {error}") from None


def find_seed(text: str, what: str) -> str:
    """The nkey seed in the text of a file; `what` names the file in errors."""
    match = _SEED.search(text)
    if not match:
        raise CredentialsError(f"{what}: holds no nkey seed (58 characters, SU...)")
    return match[0]


def _read(path: str, what: str) -> str:
    file = Path(path).expanduser()
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise CredentialsError(f"{what}: {path} has more than {FILE_BYTES_MAX} bytes")
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise CredentialsError(f"{what}: {path} cannot be read: {reason}") from None
