"""Encode claims as signed text, and decode them.

    base64url(header) . base64url(claims) . base64url(signature)        without padding

Owns the three parts, the signature and the order of the checks. It never reads a clock and never
decides about trust: decoded claims were signed by the key that they name as issuer, of a kind that
may issue them; nothing else is checked.

Version 2 also signs the header. Version 1 (`type` beside the other fields and not in `nats`) signs
the claims only; it can be read, and is converted to version 2. Field names are case-insensitive and
null means absent, as in other implementations.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from base64 import b32encode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from tradewind import nkeys
from tradewind.errors import TradewindError
from tradewind.jwt.claims import (
    ACCOUNT,
    ACTIVATION,
    AUTHORIZATION_REQUEST,
    AUTHORIZATION_RESPONSE,
    GENERIC,
    NO_LIMIT,
    OPERATOR,
    USER,
    VERSION,
    AccountClaims,
    ActivationClaims,
    AuthorizationRequest,
    AuthorizationResponse,
    Claims,
    GenericClaims,
    OperatorClaims,
    UserClaims,
)

TOKEN_BYTES_MAX = 1 << 20
_HEADER: Final = b'{"typ":"JWT","alg":"ed25519-nkey"}'
_OLD_ALGORITHM = "ed25519"
_ALGORITHMS = (_OLD_ALGORITHM, "ed25519-nkey")
_BASE64 = re.compile(r"[A-Za-z0-9_-]*")
_KINDS: Final[dict[str, type[Claims]]] = {
    OPERATOR: OperatorClaims,
    ACCOUNT: AccountClaims,
    USER: UserClaims,
    ACTIVATION: ActivationClaims,
    AUTHORIZATION_REQUEST: AuthorizationRequest,
    AUTHORIZATION_RESPONSE: AuthorizationResponse,
}
_NAMES: Final = {claims: kind for kind, claims in _KINDS.items()}
# The kinds of keys that may sign each kind of claims, in the order in which an error lists them;
# absent: any.
_ISSUERS: Final[dict[type[Claims], tuple[str, ...]]] = {
    OperatorClaims: (nkeys.OPERATOR,),
    AccountClaims: (nkeys.ACCOUNT, nkeys.OPERATOR),
    UserClaims: (nkeys.ACCOUNT,),
    ActivationClaims: (nkeys.ACCOUNT, nkeys.OPERATOR),
    AuthorizationRequest: (nkeys.SERVER,),
    AuthorizationResponse: (nkeys.ACCOUNT,),
}
# The kind of key that the claims may be about; only checked when they are signed.
_SUBJECTS: Final[dict[type[Claims], tuple[str, str]]] = {
    OperatorClaims: (nkeys.OPERATOR, "an operator"),
    AccountClaims: (nkeys.ACCOUNT, "an account"),
    UserClaims: (nkeys.USER, "a user"),
    ActivationClaims: (nkeys.ACCOUNT, "an account"),
}
# Objects whose keys are data and not names of fields.
_FREE_KEYS = frozenset(("revocations", "mappings", "tiered_limits", "server_id", "client_info"))
_KEPT_WHOLE = frozenset(("connect_opts", "client_tls"))
_OLD_FIELDS = ("tags", "type", "issuer_account")
# Limits that a user of version 1 does not name are unlimited, unlike those of version 2.
_OLD_USER_LIMITS: Final = {"subs": NO_LIMIT, "data": NO_LIMIT, "payload": NO_LIMIT}

_Claims = TypeVar("_Claims", bound=Claims)


class JwtError(TradewindError):
    """A text is not the expected JWT. The text itself is never repeated."""


def encode(claims: Claims, key: nkeys.KeyPair, issued_at: int) -> str:
    """The claims signed by `key`, at `issued_at` (seconds); JwtError if it may not sign them."""
    kind = type(claims)
    if not claims.sub:
        raise JwtError("subject is not set")
    if kind in _SUBJECTS:
        letter, whose = _SUBJECTS[kind]
        if not nkeys.is_public(claims.sub, letter):
            raise JwtError(f"sub must be the public key of {whose} ({letter}...)")
    if kind in _ISSUERS and key.kind not in _ISSUERS[kind]:
        raise JwtError(_wrong_issuer(kind))
    claims = msgspec.structs.replace(claims, iss=key.public, iat=issued_at, jti="")
    _set_kind(claims)
    claims.jti = _identifier(claims)
    signed = _to_base64(_HEADER) + "." + _to_base64(msgspec.json.encode(claims))
    token = signed + "." + _to_base64(key.sign(signed.encode()))
    if len(token) > TOKEN_BYTES_MAX:
        raise JwtError(f"the JWT has {len(token)} bytes, at most {TOKEN_BYTES_MAX} are allowed")
    return token


def decode(token: str) -> Claims:
    """The claims of a text with a valid signature; JwtError otherwise."""
    # The size is checked first: nothing below sees an endless text.
    if len(token) > TOKEN_BYTES_MAX:
        raise JwtError(f"the JWT has {len(token)} bytes, at most {TOKEN_BYTES_MAX} are allowed")
    chunks = token.split(".")
    if len(chunks) != 3:
        raise JwtError("expected 3 chunks")
    algorithm = _read_header(chunks[0])
    document = _json_object(_from_base64(chunks[1]), "claims")
    claims, version = _typed(document, algorithm)
    signature = _from_base64(chunks[2])
    signed = chunks[1] if version <= 1 else token[: len(chunks[0]) + len(chunks[1]) + 1]
    if not _is_signed(claims.iss, signed, signature):
        raise JwtError(f"claim failed V{min(max(version, 1), 2)} signature verification")
    issuers = _ISSUERS.get(type(claims))
    if issuers is not None and not any(nkeys.is_public(claims.iss, kind) for kind in issuers):
        raise JwtError(_wrong_issuer(type(claims)))
    return claims


def decode_as(kind: type[_Claims], token: str) -> _Claims:
    """The claims of a text, which must be of one kind; JwtError otherwise."""
    claims = decode(token)
    if type(claims) is not kind:
        raise JwtError(f"not {_NAMES.get(kind, GENERIC)} claim")
    return claims


def reader(kind: type[_Claims], entries_max: int, bytes_max: int) -> Callable[[str], _Claims]:
    """`decode_as` with a cache of the newest results: a signature stays valid.

    Connections of one user present the same text repeatedly. Refusals are not cached, nor are texts
    above `bytes_max`.
    """
    known: dict[str, _Claims] = {}

    def read(token: str) -> _Claims:
        found = known.pop(token, None)
        if found is None:
            found = decode_as(kind, token)
            if len(token) > bytes_max:
                return found
            if len(known) >= entries_max:
                del known[next(iter(known))]
        known[token] = found
        return found

    return read


# ---------------------------------------------------------------- parts


def _read_header(chunk: str) -> str:
    header = _json_object(_from_base64(chunk), "header")
    fields = {key.lower(): value for key, value in header.items() if value is not None}
    kind, algorithm = fields.get("typ", ""), fields.get("alg", "")
    if not isinstance(kind, str) or not isinstance(algorithm, str):
        raise JwtError("header: typ and alg must be strings")
    if kind.upper() != "JWT":
        raise JwtError(f"not supported type {_quoted(kind)}")
    if algorithm.lower() not in _ALGORITHMS:
        raise JwtError(f"unexpected {_quoted(algorithm)} algorithm")
    return algorithm.lower()


def _typed(document: dict[str, Any], algorithm: str) -> tuple[Claims, int]:
    """The claims, and the version of their signature."""
    fields = {key.lower(): value for key, value in document.items() if value is not None}
    own = fields.get("nats", {})
    if not isinstance(own, dict):
        raise JwtError("claims: nats must be an object")
    own = {key.lower(): value for key, value in own.items() if value is not None}
    kind, version = fields.get("type", ""), 1
    if not kind:
        kind, version = own.get("type", ""), own.get("version", 0)
    if not isinstance(kind, str) or not isinstance(version, int) or isinstance(version, bool):
        raise JwtError("claims: type must be a string, version an integer")
    if version > VERSION:
        raise JwtError("JWT was generated by a newer version ")
    if kind in ("cluster", "server"):
        raise JwtError(f"{kind.title()}Claims are not supported")
    claims = _KINDS.get(kind)
    if claims is None:
        # For other kinds, the header determines the version of the signature.
        version = 1 if algorithm == _OLD_ALGORITHM else VERSION
        return _converted(GenericClaims, {"nats": {}, **fields}), version
    if version not in (1, VERSION):
        raise JwtError(f"library supports version {VERSION} or less - received {version}")
    if claims is UserClaims and version == 1:
        own = {**_OLD_USER_LIMITS, **own}
    if "type" in fields:
        own = {**own, **{name: fields[name] for name in _OLD_FIELDS if name in fields}}
    return _converted(claims, {**fields, "nats": _plain(own)}), version


def _plain(value: Any, key: str = "") -> Any:
    """The value without nulls, with field names in lower case, and with the old forms of some lists
    converted.
    """
    if isinstance(value, dict):
        if key in _KEPT_WHOLE:
            return value
        is_free = key in _FREE_KEYS
        return {
            (name if is_free else name.lower()): _plain(item, "" if is_free else name.lower())
            for name, item in value.items()
            if item is not None
        }
    if key == "src" and isinstance(value, str):
        return [part for part in (text.strip().lower() for text in value.split(",")) if part]
    if key == "signing_keys" and isinstance(value, list):
        return [_signing_key(entry) for entry in value if isinstance(entry, str | dict)]
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _signing_key(entry: str | dict[str, Any]) -> Any:
    if isinstance(entry, str):
        return entry
    scope = _plain(entry)
    if scope.get("kind") != "user_scope":
        raise JwtError(f"unknown signing key scope {_quoted(str(scope.get('kind', '')))}")
    return scope


def _converted(kind: type[_Claims], fields: dict[str, Any]) -> _Claims:
    try:
        return msgspec.convert(fields, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise JwtError(f"claims: {error}") from None


def _set_kind(claims: Claims) -> None:
    """Set kind and version, in a copy: the caller's claims stay unchanged."""
    if isinstance(claims, GenericClaims):
        claims.nats = {**claims.nats, "version": VERSION}
        return
    # All other kinds have these two fields.
    fields: Any = claims.nats  # type: ignore[attr-defined]
    claims.nats = msgspec.structs.replace(  # type: ignore[attr-defined]
        fields, type=_NAMES[type(claims)], version=VERSION
    )


def _identifier(claims: Claims) -> str:
    """A hash of the fields that every JWT has, by which equal ones are found."""
    common = Claims(**{name: getattr(claims, name) for name in Claims.__struct_fields__})
    digest = hashlib.new("sha512_256", msgspec.json.encode(common)).digest()
    return b32encode(digest).rstrip(b"=").decode()


def _is_signed(issuer: str, signed: str, signature: bytes) -> bool:
    try:
        kind, key = nkeys.decode_public(issuer)
    except nkeys.NkeyError:
        return False
    return kind != nkeys.CURVE and nkeys.verify(key, signed.encode(), signature)


def _wrong_issuer(kind: type[Claims]) -> str:
    names = " ".join(nkeys.KINDS[letter] for letter in _ISSUERS[kind])
    return f"unable to validate expected prefixes - [{names}]"


def _to_base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _from_base64(chunk: str) -> bytes:
    # Line ends are dropped, as in other implementations: the signature covers the rest.
    text = chunk.replace("\r", "").replace("\n", "") if "\n" in chunk or "\r" in chunk else chunk
    match = _BASE64.match(text)
    end = match.end() if match is not None else 0
    if end != len(text) or len(text) % 4 == 1:
        at = end if end != len(text) else len(text) - 1
        raise JwtError(f"illegal base64 data at input byte {at}")
    standard = text.replace("-", "+").replace("_", "/")
    return binascii.a2b_base64(standard + "=" * (-len(text) % 4))


def _json_object(data: bytes, what: str) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(data.decode("utf-8", "replace"))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise JwtError(f"{what} must be valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise JwtError(f"{what} must be a JSON object")
    return document


def _quoted(text: str) -> str:
    """A text of unknown origin, shortened and escaped to one line."""
    return '"' + text[:64].encode("unicode_escape").decode("ascii") + '"'
