"""The site of docs: it is built strictly, has every page, and its links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from tradewind.api.errors import ERROR_KINDS
from tradewind.cli.commands import COMMANDS

ROOT = Path(__file__).parent.parent.parent
BUILD_SECONDS_MAX = 500
# The pages that tools/site_hooks.py makes.
MADE = {
    *("start.md", "changelog.md", "contributing.md"),
    *("reference/commands.md", "reference/errors.md", "reference/limits.md"),
    "reference/python.md",
}


class _Settings(yaml.SafeLoader):
    """Reads mkdocs.yml without making the objects that it names."""


_Settings.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def pages_in(nav: object) -> list[str]:
    """The pages of the contents, in order."""
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    assert isinstance(entries, list) or isinstance(nav, dict)
    return [page for entry in entries for page in pages_in(entry)]


def test_every_page_is_in_the_contents_once() -> None:
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=_Settings)
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert sorted(pages_in(settings["nav"])) == sorted(pages | MADE)


def test_every_page_is_in_the_index() -> None:
    docs = ROOT / "docs"
    index = (docs / "README.md").read_text()
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} - {"README.md"}
    # The page of the walkthroughs lists them.
    index += (docs / "tutorials/WALKTHROUGHS.md").read_text().replace("(walk", "(tutorials/walk")
    assert [page for page in sorted(pages) if f"]({page})" not in index] == []


class Html(HTMLParser):
    """The links and the anchors of a page, and its blocks of code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.blocks = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember what matters here."""
        found = dict(attrs)
        self.anchors |= {found[name] or "" for name in ("id", "name") if name in found}
        for name in ("href", "src"):
            if found.get(name):
                self.links.append(found[name] or "")
        self.blocks += tag == "pre"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it, into a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.timeout(BUILD_SECONDS_MAX + 100)
@pytest.mark.xdist_group("site")
class TestSite:
    """What a reader finds in it; one build for all."""

    def test_links_and_anchors_lead_somewhere(self, site: Path) -> None:
        pages = {path: Html(path.read_text()) for path in site.rglob("*.html")}
        assert len(pages) > 50
        broken = []
        for page, html in pages.items():
            if page.name == "404.html":  # its links are those of the server's root
                continue
            for link in html.links:
                if re.match(r"\w+:", link):
                    continue
                name, _, anchor = unquote(link).partition("#")
                target = (page.parent / name.partition("?")[0]).resolve() if name else page
                target = target / "index.html" if target.is_dir() else target
                known = pages.get(target)
                if not target.exists() or (anchor and known and anchor not in known.anchors):
                    broken.append(f"{page.relative_to(site)}: {link}")
        assert broken == []

    def test_blocks_of_code_are_blocks_on_the_site(self, site: Path) -> None:
        for page in (ROOT / "docs").rglob("*.md"):
            place = page.relative_to(ROOT / "docs").with_suffix(".html")
            html = site / ("index.html" if place.name == "README.html" else place)
            fences = len(re.findall(r"^ *```\w*$", page.read_text(), re.MULTILINE)) // 2
            assert Html(html.read_text()).blocks == fences, place

    def test_the_search_finds_all_pages(self, site: Path) -> None:
        index = json.loads((site / "search/search_index.json").read_text())
        found = {entry["location"].partition("#")[0] for entry in index["docs"]}
        pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
        assert pages - {"404.html", "index.html"} <= found

    def test_the_reference_is_made_from_the_source(self, site: Path) -> None:
        commands = Html((site / "reference/commands.html").read_text()).anchors
        assert {f"tradewind-{entry.name}" for entry in COMMANDS} <= commands
        assert "tradewind-stream-add" in commands
        errors = (site / "reference/errors.html").read_text()
        assert [code for code in ERROR_KINDS if f">{code}</td>" not in errors] == []
        names = Html((site / "reference/python.html").read_text()).anchors
        assert {
            "tradewind.client.connection.connect",
            "tradewind.client.connection.Connection.publish",
            "tradewind.server.embedded.serve",
        } <= names
