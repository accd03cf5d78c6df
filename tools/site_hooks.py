"""What the site has beside the pages of docs: hooks of mkdocs, named in mkdocs.yml.

Adds pages that are made when the site is built, so that they are never stale: the command line, the
errors and the limits from the source, the Python API by mkdocstrings, and the pages at the root of
the repository. Links that lead out of docs are changed to those pages, or to the file in the
repository; a link to a file that does not exist is a warning, which `make docs` refuses.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File
from typer import Context

from tradewind.api.errors import ERROR_KINDS
from tradewind.cli.commands import COMMANDS
from tradewind.cli.frame.frame import SharedGroup, load_app

if TYPE_CHECKING:
    from click import Command
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
# Pages of the site, and the files at the root that they show.
ROOT_PAGES: Final = {
    "start.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
}
# What a user of the library imports, in reading order.
PYTHON_API: Final = (
    "tradewind.client.connection",
    "tradewind.client.jetstream",
    "tradewind.client.core.message",
    "tradewind.client.core.subscription",
    "tradewind.client.streams.manager",
    "tradewind.client.streams.consumers",
    "tradewind.client.streams.dead_letters",
    "tradewind.client.streams.transactions",
    "tradewind.client.kv.kv",
    "tradewind.client.objects.objects",
    "tradewind.client.services.services",
    "tradewind.client.errors",
    "tradewind.server.embedded",
)
FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
DEFINITION: Final = re.compile(r"(?<=\]: )([^\s#]+)(?=#|$)", re.MULTILINE)
log = logging.getLogger("mkdocs.plugins.tradewind")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files of docs."""
    made = {name: (ROOT / path).read_text() for name, path in ROOT_PAGES.items()}
    made |= {
        "reference/commands.md": commands_page(),
        "reference/errors.md": errors_page(),
        "reference/limits.md": limits_page(),
        "reference/python.md": python_page(),
    }
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links that lead out of docs lead somewhere."""
    del files
    here = page.file.src_uri
    source = ROOT / ROOT_PAGES[here] if here in ROOT_PAGES else DOCS / here
    repository = f"{config.repo_url.rstrip('/')}/blob/main" if config.repo_url else ""

    def target(found: re.Match[str]) -> str:
        return site_link(found[1], source.parent, here, repository)

    parts = FENCE.split(markdown)
    parts[::2] = [DEFINITION.sub(target, LINK.sub(target, part)) for part in parts[::2]]
    return "".join(parts)


def site_link(link: str, folder: Path, here: str, repository: str) -> str:
    """A link of a page in `folder`, as the page `here` of the site has it."""
    if "://" in link or link.startswith("mailto:"):
        return link
    path = Path(os.path.normpath(folder / link))
    if not path.exists():
        log.warning("%s links to %s, which does not exist", here, link)
        return link
    place = path.relative_to(ROOT).as_posix()
    by_file = {file: page for page, file in ROOT_PAGES.items()}
    if place in by_file:
        wanted = by_file[place]
    elif path.is_relative_to(DOCS) and path.is_file():
        wanted = path.relative_to(DOCS).as_posix()
    else:
        return f"{repository}/{place}"
    return os.path.relpath(wanted, Path(here).parent)


def commands_of(command: Command, name: str) -> list[tuple[str, Command]]:
    """A command with those below it, each with its full name."""
    found = [(name, command)]
    if isinstance(command, SharedGroup):
        context = Context(command)
        for below in command.list_commands(context):
            child = command.get_command(context, below)
            if child is not None and not child.hidden:
                found += commands_of(child, f"{name} {below}")
    return found


def commands_page() -> str:
    """The help of every command."""
    lines = ["# Every command", "", "What `--help` prints, for every command of `tradewind`."]
    for entry in COMMANDS:
        made = load_app(entry.place).make(entry.name)
        for name, command in commands_of(made, f"tradewind {entry.name}"):
            level = "##" if name == f"tradewind {entry.name}" else "###"
            help_text = command.get_help(Context(command, info_name=name, terminal_width=80))
            lines += ["", f"{level} {name}", "", "```text", help_text.rstrip(), "```"]
    return "\n".join(lines) + "\n"


def errors_page() -> str:
    """The table of the errors of the JetStream API."""
    lines = [
        "# Errors",
        "",
        "A request of the JetStream API that is refused is answered with one of these errors. The",
        "client raises them as exceptions with the fields `code`, `err_code` and `description`;",
        "`tradewind errors lookup 10059` explains one.",
        "",
        "| err_code | code | description |",
        "|---:|---:|---|",
    ]
    for number, kind in sorted(ERROR_KINDS.items()):
        text = re.sub(r"\{(\w+)\}", r"<\1>", kind.text).replace("|", "\\|")
        lines.append(f"| {number} | {kind.code} | `{text}` |")
    return "\n".join(lines) + "\n"


def limits_page() -> str:
    """The limits of the server: a section of the page about its architecture."""
    text = (DOCS / "ARCHITECTURE.md").read_text()
    section = text.partition("\n## Limits\n")[2].partition("\n## ")[0]
    assert section, "docs/ARCHITECTURE.md has no section Limits"
    return "# Limits\n" + LINK.sub(lambda found: f"../{found[1]}", section)


def python_page() -> str:
    """The public modules, for mkdocstrings."""
    lines = [
        "# Python API",
        "",
        "`import tradewind` has `connect`, `Connection`, `Server` and `serve`; `tradewind.sync`",
        "has the same client without asyncio. Objects come from methods: `connection.jetstream()`",
        "gives a `JetStream`; its `manager`, `consumers`, `kv` and `objects` lead to the rest.",
    ]
    for module in PYTHON_API:
        lines += ["", f"::: {module}"]
    return "\n".join(lines) + "\n"
