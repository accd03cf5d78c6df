"""The keys and JWTs of operators, in a folder that only their owner can read.

Owns the layout, the names, and replacing files atomically. It signs what it is given and never
contacts a server. A name becomes a folder or file, so it may contain only letters, digits, `_`, `-`
and inner dots.

    <folder>/<operator>/operator.jwt
    <folder>/<operator>/accounts/<account>/account.jwt
    <folder>/<operator>/accounts/<account>/users/<user>.jwt
    <folder>/keys/<public key>.seed
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Final, TypeVar

from tradewind import nkeys
from tradewind.cli.frame.failures import CommandError, near
from tradewind.jwt import AccountClaims, Claims, JwtError, OperatorClaims, UserClaims
from tradewind.jwt.claim_files import read_token
from tradewind.jwt.claim_rules import blocking_texts
from tradewind.jwt.claims import UserScope
from tradewind.jwt.codec import decode_as, encode
from tradewind.private_files import replace_private

FOLDER_ENV: Final = "TRADEWIND_AUTH"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_Claims = TypeVar("_Claims", OperatorClaims, AccountClaims, UserClaims)


class Keyring:
    """All that is in the folder."""

    def __init__(self, folder: str = "") -> None:
        self.folder = Path(folder).expanduser() if folder else default_folder()

    # ---------------------------------------------------------------- keys

    def create_key(self, kind: str) -> nkeys.KeyPair:
        """A new key, kept."""
        key = nkeys.KeyPair.create(kind)
        self.keep_key(key)
        return key

    def keep_key(self, key: nkeys.KeyPair | nkeys.CurveKeyPair) -> None:
        """Keep the seed of a key."""
        write_private(self._seed_path(key.public), key.seed + "\n")

    def key(self, public: str) -> nkeys.KeyPair:
        """The private key of a public one; CommandError if it is not here."""
        path = self._seed_path(public)
        try:
            return nkeys.KeyPair.from_seed(path.read_text().strip())
        except FileNotFoundError:
            raise CommandError(
                f"the private key of {public} is not in {self.folder}",
                "ask the owner of its seed to sign",
            ) from None
        except (OSError, nkeys.NkeyError) as error:
            raise CommandError(f"{path}: {error}") from None

    def has_key(self, public: str) -> bool:
        """Whether the private key is here."""
        return self._seed_path(public).exists()

    def _seed_path(self, public: str) -> Path:
        if not nkeys.is_public(public):
            raise CommandError(f"{public!r} is not a public key")
        return self.folder / "keys" / f"{public}.seed"

    # ---------------------------------------------------------------- names

    def operators(self) -> list[str]:
        """Their names."""
        return sorted(path.parent.name for path in self.folder.glob("*/operator.jwt"))

    def operator_name(self, name: str = "") -> str:
        """The operator that is meant: the one that is named, or the only one."""
        return _one_of(self.operators(), name, "operator", "--operator", "auth operator add NAME")

    def accounts(self, operator: str) -> list[str]:
        """Names of the accounts of an operator."""
        folder = self.folder / checked_name(operator, "operator") / "accounts"
        return sorted(path.parent.name for path in folder.glob("*/account.jwt"))

    def account_name(self, operator: str, name: str) -> str:
        """The account that is meant."""
        how = "auth account add NAME"
        return _one_of(self.accounts(operator), name, "account", "--account", how)

    def users(self, operator: str, account: str) -> list[str]:
        """Names of the users of an account."""
        folder = self._account_folder(operator, account) / "users"
        return sorted(path.stem for path in folder.glob("*.jwt"))

    # ---------------------------------------------------------------- claims

    def operator(self, name: str) -> tuple[OperatorClaims, str]:
        """An operator's claims, and its JWT."""
        return self._read(OperatorClaims, self._operator_path(name), "operator", name)

    def account(self, operator: str, name: str) -> tuple[AccountClaims, str]:
        """The same for an account."""
        path = self._account_folder(operator, name) / "account.jwt"
        return self._read(AccountClaims, path, "account", name)

    def user(self, operator: str, account: str, name: str) -> tuple[UserClaims, str]:
        """The same for a user."""
        path = self._user_path(operator, account, name)
        if not path.exists():
            hint = near(name, self.users(operator, account))
            raise CommandError(f"account {account} has no user {name!r}{hint}")
        return self._read(UserClaims, path, "user", name)

    def save_operator(self, name: str, claims: OperatorClaims) -> str:
        """Sign an operator by its own key, and keep it."""
        return self._save(self._operator_path(name), claims, self.key(claims.sub))

    def save_account(self, operator: str, name: str, claims: AccountClaims) -> str:
        """Sign an account by a key of its operator that is here, and keep it."""
        path = self._account_folder(operator, name) / "account.jwt"
        return self._save(path, claims, self._operator_signer(operator))

    def keep_account(self, operator: str, name: str, token: str) -> None:
        """Keep an account that was signed elsewhere."""
        write_private(self._account_folder(operator, name) / "account.jwt", token)

    def save_user(
        self, operator: str, account: str, name: str, claims: UserClaims, signer: nkeys.KeyPair
    ) -> str:
        """Sign a user by a key of its account, and keep it."""
        return self._save(self._user_path(operator, account, name), claims, signer)

    def _operator_signer(self, operator: str) -> nkeys.KeyPair:
        claims, _ = self.operator(operator)
        # With signing keys the operator's own key can stay in a safe.
        candidates = [*(claims.nats.signing_keys or ())]
        if not claims.nats.strict_signing_key_usage:
            candidates.append(claims.sub)
        return self._first_key(candidates, f"operator {operator}")

    def user_signer(
        self, account: AccountClaims, role: str, *, is_strict: bool
    ) -> tuple[nkeys.KeyPair, bool]:
        """The key that signs users, and whether it is scoped; `role` names a scope."""
        if role:
            roles = {scope.role: scope for scope in scopes_of(account)}
            if role not in roles:
                raise CommandError(
                    f"account {account.name} has no role {role!r}{near(role, roles)}",
                    "create it: tradewind auth account role",
                )
            return self.key(roles[role].key), True
        plain = [key for key, scope in account.scopes().items() if scope is None]
        candidates = plain if is_strict else [*plain, account.sub]
        return self._first_key(candidates, f"account {account.name}"), False

    def _first_key(self, candidates: list[str], whose: str) -> nkeys.KeyPair:
        for public in candidates:
            if self.has_key(public):
                return self.key(public)
        raise CommandError(f"no private key of {whose} is in {self.folder}")

    # ---------------------------------------------------------------- files

    def _operator_path(self, name: str) -> Path:
        return self.folder / checked_name(name, "operator") / "operator.jwt"

    def _account_folder(self, operator: str, name: str) -> Path:
        base = self.folder / checked_name(operator, "operator") / "accounts"
        return base / checked_name(name, "account")

    def _user_path(self, operator: str, account: str, name: str) -> Path:
        folder = self._account_folder(operator, account) / "users"
        return folder / f"{checked_name(name, 'user')}.jwt"

    def _read(self, kind: type[_Claims], path: Path, what: str, name: str) -> tuple[_Claims, str]:
        try:
            token = read_token(path.read_text())
            return decode_as(kind, token), token
        except FileNotFoundError:
            raise CommandError(f"{what} {name!r} does not exist in {self.folder}") from None
        except (OSError, UnicodeDecodeError, JwtError) as error:
            raise CommandError(f"{path}: {error}") from None

    def _save(self, path: Path, claims: Claims, signer: nkeys.KeyPair) -> str:
        now = int(time.time())
        # A second change within a second must be newer, or servers would take it for the same.
        issued_at = max(now, claims.iat + 1) if claims.iat else now
        try:
            token = encode(claims, signer, issued_at)
        except JwtError as error:
            raise CommandError(str(error)) from None
        problems = blocking_texts(claims, 0)
        if problems:
            raise CommandError("; ".join(problems))
        write_private(path, token + "\n")
        return token


def default_folder() -> Path:
    """The default folder of keys: from the environment, else in the user's data folder."""
    if named := os.environ.get(FOLDER_ENV):
        return Path(named).expanduser()
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "tradewind" / "auth"


def checked_name(name: str, what: str) -> str:
    """A name that can be that of a file, or CommandError."""
    if not _NAME.fullmatch(name):
        raise CommandError(
            f"{what} {name!r}: a name may contain letters, digits, `_`, `-` and dots, and "
            "starts with "
            "a letter, a digit or `_`"
        )
    return name


def scopes_of(account: AccountClaims) -> list[UserScope]:
    """The roles of an account."""
    return [scope for scope in account.scopes().values() if scope is not None]


def write_private(path: Path, text: str) -> None:
    """Replace a file as a whole; only its owner can read it."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_private(path, text.encode())
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from None


def _one_of(names: list[str], name: str, what: str, flag: str, how: str) -> str:
    if name:
        if name not in names:
            raise CommandError(f"{what} {name!r} does not exist{near(name, names)}")
        return name
    if len(names) == 1:
        return names[0]
    if not names:
        raise CommandError(f"no {what}s exist", f"create one: tradewind {how}")
    raise CommandError(f"{flag}: choose one of {', '.join(names)}")
