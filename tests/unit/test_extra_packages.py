"""Missing extras: the text names the extra and a command that fits how tradewind was installed."""

from __future__ import annotations

import shlex
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from tradewind import extra_packages
from tradewind.extra_packages import EXTRAS, install_command, missing_package

ROOT = Path(__file__).parents[2]


class Installed:
    """An installation with these files of metadata."""

    def __init__(self, **files: str) -> None:
        self.files = files

    def read_text(self, name: str) -> str | None:
        return self.files.get(name.partition(".")[0])


def pretend(monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda _name: Installed(**files))


def last_word(command: str) -> str:
    return shlex.split(command)[-1]


def test_every_extra_that_is_named_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])


def test_from_a_wheel_file_it_is_that_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = tmp_path / "a folder" / "tradewind-1-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    pretend(monkeypatch, direct_url=f'{{"url": "{wheel.as_uri()}", "archive_info": {{}}}}')
    assert last_word(install_command("spark")) == f"{wheel}[spark]"
    wheel.unlink()
    assert last_word(install_command("spark")) == f"/path/to/{wheel.name}[spark]"


def test_from_a_checkout_it_is_the_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = f'{{"url": "{tmp_path.as_uri()}", "dir_info": {{"editable": %s}}}}'
    pretend(monkeypatch, direct_url=url % "true")
    words = shlex.split(install_command("spark", "delta"))
    assert words[-3:] == ["install", "-e", f"{tmp_path}[spark,delta]"]
    pretend(monkeypatch, direct_url=url % "false")
    assert shlex.split(install_command("spark"))[-2:] == ["install", f"{tmp_path}[spark]"]


def test_from_a_repository_it_is_the_repository_without_a_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    origin = '{"url": "https://me:secret@example.com/t.git", "vcs_info": {"vcs": "git"}}'
    pretend(monkeypatch, direct_url=origin)
    assert last_word(install_command("avro")) == "tradewind[avro] @ git+https://example.com/t.git"


@pytest.mark.parametrize("files", [{}, {"direct_url": "{"}])
def test_from_an_index_it_is_the_name(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, str]
) -> None:
    pretend(monkeypatch, **files)
    assert last_word(install_command("chain")) == "tradewind[chain]"


def test_sources_without_metadata_are_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra_packages, "NAME", "tradewind-that-nobody-installed")
    assert shlex.split(install_command("spark"))[-2:] == ["-e", f"{ROOT}[spark]"]


def test_it_is_pip_of_this_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install_command("spark").startswith(f"{sys.executable} -m pip install ")
    pip = tmp_path / "pip"
    pip.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert install_command("spark").startswith("pip install ")


def test_an_environment_of_uv_is_extended_by_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, INSTALLER="uv\n")
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    assert install_command("spark") == "uv pip install 'tradewind[spark]'"
    monkeypatch.delenv("VIRTUAL_ENV")
    assert f"--python {sys.prefix} " in install_command("spark")


@pytest.mark.parametrize(
    ("name", "extra"),
    [("pyarrow", "spark"), ("pyarrow.lib", "spark"), ("google", "protobuf"), ("mmh3", "iceberg")],
)
def test_a_missing_package_leads_to_its_extra(name: str, extra: str) -> None:
    said = missing_package(ModuleNotFoundError(f"No module named {name!r}", name=name))
    assert f'the extra "{extra}"' in said
    assert f"[{extra}]" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("x", name="tradewind.nothing"),
        ModuleNotFoundError("x"),
        ImportError("broken", name="pyarrow"),
        ValueError("pyarrow"),
    ],
)
def test_another_error_is_not_about_an_extra(error: Exception) -> None:
    assert missing_package(error) == ""
