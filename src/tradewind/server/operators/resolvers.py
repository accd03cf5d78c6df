"""Sources of account JWTs: the configuration, a web server, or a folder.

Owns fetching and, for folders, storing. It never verifies a JWT: the caller does (`account_book`).
A resolver that is not `is_immediate` waits for a disk or a network, so it is only called in threads
or at startup.

    <folder>/<public key of the account>.jwt            the JWT, as it is; mode 0600
    <folder>/<public key of the account>.jwt.deleted    one that was deleted

Other files in a folder are left alone. A file is replaced by syncing a new one and renaming it over
the old one, so that after a crash either the old or the new file exists.
"""

from __future__ import annotations

import os
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import msgspec

from tradewind import nkeys
from tradewind.durations import SECOND_NS
from tradewind.errors import TradewindError
from tradewind.jwt import AccountClaims, JwtError, decode_as
from tradewind.jwt.codec import TOKEN_BYTES_MAX
from tradewind.options import ResolverOptions, TlsOptions
from tradewind.private_files import replace_private, sync_folder

SUFFIX = ".jwt"
DELETED_SUFFIX = ".deleted"
HASH_BYTES = 32
_OK = 200


class ResolverError(TradewindError):
    """An account cannot be fetched or stored; the text says why."""


class Resolver(Protocol):
    """The interface of all resolvers."""

    is_immediate: bool

    def fetch(self, key: str) -> str | None:
        """The JWT of an account, None if there is none; ResolverError if that is not known."""


class MemoryResolver:
    """The accounts of the configuration file."""

    is_immediate = True

    def __init__(self, tokens: dict[str, str]) -> None:
        self.tokens = tokens

    def fetch(self, key: str) -> str | None:
        """Return the JWT from memory."""
        return self.tokens.get(key)


class UrlResolver:
    """A web server that serves the JWT of an account under its key."""

    is_immediate = False

    def __init__(self, options: ResolverOptions) -> None:
        self._url = options.url
        self._timeout_s = options.fetch_timeout_ns / SECOND_NS
        self._context = client_context(options.tls) if options.tls is not None else None

    def check(self) -> None:
        """Check that the url itself responds; ResolverError if it does not."""
        self._get(self._url)

    def fetch(self, key: str) -> str | None:
        """Request the JWT from the web server."""
        return self._get(f"{self._url.rstrip('/')}/{key}")

    def _get(self, url: str) -> str:
        try:
            # The scheme has been checked: it is http or https.
            with urllib.request.urlopen(  # noqa: S310
                url, timeout=self._timeout_s, context=self._context
            ) as answer:
                if answer.status != _OK:
                    raise ResolverError(f'could not fetch <"{url}">: {answer.status}')
                body: bytes = answer.read(TOKEN_BYTES_MAX + 1)
        except (OSError, ValueError, urllib.error.HTTPError) as error:
            raise ResolverError(f'could not fetch <"{url}">: {error}') from None
        if len(body) > TOKEN_BYTES_MAX:
            raise ResolverError(f'could not fetch <"{url}">: more than {TOKEN_BYTES_MAX} bytes')
        return body.decode("utf-8", "replace").strip()


class StoredToken(msgspec.Struct, frozen=True):
    """The remembered facts about a file: enough to tell which JWT is newer, and whether two folders
    are equal.
    """

    digest: bytes
    issued_at: int
    expires_at: int


class FolderResolver:
    """JWTs as files: of all accounts (`full`) or of the accounts in use (`cache`).

    The index is read and changed in the event loop; `fetch`, `write` and `remove` touch files only
    and may run in a thread, one at a time for each account.
    """

    is_immediate = False

    def __init__(self, options: ResolverOptions) -> None:
        self._options = options
        self.folder = Path(options.folder)
        # In the order of use: the least recently used account is first.
        self.index: dict[str, StoredToken] = {}
        self._used_ns: dict[str, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether the folder has all accounts."""
        return self._options.kind == "full"

    @property
    def may_delete(self) -> bool:
        """Whether accounts may be deleted by request; a copy always may."""
        return not self.is_full or self._options.allow_delete

    @property
    def keeps_deleted(self) -> bool:
        """Whether the file of a deleted account is preserved under another name."""
        return self.is_full and not self._options.hard_delete

    def open(self) -> None:
        """Create the folder if it is missing, and read its files; ResolverError if that fails."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            names = sorted(entry.name for entry in os.scandir(self.folder) if entry.is_file())
        except OSError as error:
            raise ResolverError(f"resolver dir {self.folder}: {error.strerror}") from None
        self.index.clear()
        for name in names:
            key = name.removesuffix(SUFFIX)
            if name != key + SUFFIX or not nkeys.is_public(key, nkeys.ACCOUNT):
                continue
            token = self.fetch(key)
            if token is not None:
                self.note(key, token)

    def fetch(self, key: str) -> str | None:
        """Read the file of an account."""
        if not nkeys.is_public(key, nkeys.ACCOUNT):
            return None  # the key would become the name of a file
        try:
            with (self.folder / (key + SUFFIX)).open("rb") as file:
                data = file.read(TOKEN_BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ResolverError(f"{self.folder / (key + SUFFIX)}: {error.strerror}") from None
        return data.decode("utf-8", "replace").strip() if len(data) <= TOKEN_BYTES_MAX else None

    def note(self, key: str, token: str, now_ns: int = 0) -> None:
        """Record the content of an account's file."""
        with suppress(JwtError):
            claims = decode_as(AccountClaims, token)
            if claims.sub == key:
                digest = sha256(token.encode()).digest()
                self.index.pop(key, None)
                self.index[key] = StoredToken(digest, claims.iat, claims.exp)
                self._used_ns[key] = now_ns

    def touch(self, key: str, now_ns: int) -> None:
        """Called when the account was used."""
        if key in self.index:
            self.index[key] = self.index.pop(key)
            self._used_ns[key] = now_ns

    def forget(self, key: str) -> None:
        """Called when the file of an account has been removed."""
        self.index.pop(key, None)
        self._used_ns.pop(key, None)

    def is_known(self, key: str) -> bool:
        """Whether the folder has a file for the account."""
        return key in self.index

    def place_for(self, key: str) -> str | None:
        """The account to remove to make room for another; empty if there is room.

        Raises ResolverError if no room can be made.
        """
        count_max = self._options.count_max
        if key in self.index or not count_max or len(self.index) < count_max:
            return ""
        if self.is_full:
            raise ResolverError("jwt store is full")
        return next(iter(self.index))

    def hash(self) -> bytes:
        """The hash of all stored JWTs: equal on two servers that have the same ones."""
        total = 0
        for stored in self.index.values():
            total ^= int.from_bytes(stored.digest, "big")
        return total.to_bytes(HASH_BYTES, "big")

    def overdue(self, now_ns: int) -> list[str]:
        """The accounts whose JWT has expired, or which have not been used for too long."""
        now_seconds = now_ns // SECOND_NS
        time_to_live_ns = self._options.time_to_live_ns
        return [
            key
            for key, stored in self.index.items()
            if 0 < stored.expires_at < now_seconds
            or (time_to_live_ns and self._used_ns.get(key, 0) + time_to_live_ns < now_ns)
        ]

    # ---------------------------------------------------------------- files

    def write(self, key: str, token: str) -> None:
        """Store a JWT, which is on disk when this returns."""
        path = self.folder / (key + SUFFIX)
        try:
            replace_private(path, token.encode())
        except OSError as error:
            raise ResolverError(f"{path}: {error.strerror}") from None

    def remove(self, key: str, *, is_kept_aside: bool) -> None:
        """Remove the file of an account, which may be preserved under another name."""
        path = self.folder / (key + SUFFIX)
        try:
            if is_kept_aside:
                path.replace(path.with_name(path.name + DELETED_SUFFIX))
            else:
                path.unlink()
            sync_folder(self.folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise ResolverError(f"{path}: {error.strerror}") from None


def client_context(tls: TlsOptions) -> ssl.SSLContext:
    """The TLS context for a web server, with its authority, and our certificate if one is
    configured.
    """
    context = ssl.create_default_context(cafile=tls.ca_file or None)
    if tls.cert_file:
        context.load_cert_chain(tls.cert_file, tls.key_file or None)
    return context
