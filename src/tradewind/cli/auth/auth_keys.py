"""`tradewind auth nkey`: single keys.

Owns these commands. A seed is printed only when a key is created without storing it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from tradewind import nkeys
from tradewind.cli.auth.auth_flags import FolderFlag
from tradewind.cli.auth.keyring import Keyring
from tradewind.cli.frame.failures import CommandError
from tradewind.cli.frame.frame import Argument, CommandApp, JsonFlag, Option
from tradewind.cli.frame.output import line, print_json

app = CommandApp("Keys")
_KINDS = {name: letter for letter, name in nkeys.KINDS.items()}


@app.command("gen", aliases=("add", "create", "new"))
def generate(
    kind: Annotated[str, Argument(metavar="KIND", help=", ".join(_KINDS))],
    keep: Annotated[
        bool, Option("--keep", help="Store the key in the folder and do not print the seed")
    ] = False,
    json: JsonFlag = False,
    folder: FolderFlag = "",
) -> None:
    """Create a key."""
    letter = _KINDS.get(kind.lower())
    if letter is None:
        raise CommandError(f"KIND: one of {', '.join(_KINDS)}, not {kind!r}")
    key = nkeys.CurveKeyPair.create() if letter == nkeys.CURVE else nkeys.KeyPair.create(letter)
    if keep:
        Keyring(folder).keep_key(key)
    if json:
        print_json({"public": key.public, **({} if keep else {"seed": key.seed})})
        return
    if not keep:
        line(key.seed)
    line(key.public)


@app.command("show", aliases=("public", "info"))
def show(
    file: Annotated[str, Argument(metavar="FILE", help="File with a seed; - for standard input")],
) -> None:
    """Show the public key of a seed."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).expanduser().read_text()
        words = [word for word in text.split() if word.startswith("S")]
        seed = words[0] if words else ""
        is_curve = seed.startswith(nkeys.SEED + nkeys.CURVE)
        kind = nkeys.CurveKeyPair if is_curve else nkeys.KeyPair
        key = kind.from_seed(seed)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file}: {error}") from None
    except nkeys.NkeyError as error:
        raise CommandError(f"{file}: {error}") from None
    line(key.public)


@app.command("ls", aliases=("list",))
def list_keys(json: JsonFlag = False, folder: FolderFlag = "") -> None:
    """List the public keys whose private keys are in the folder."""
    keyring = Keyring(folder)
    found = sorted(path.stem for path in (keyring.folder / "keys").glob("*.seed"))
    if json:
        print_json(found)
        return
    for public in found:
        line(public)
