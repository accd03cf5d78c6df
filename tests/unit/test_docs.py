"""The documentation against the source: links, commands, keys, flags, pages, metrics, limits.

A page that names something that does not exist fails here, and so does something that exists and is
on no page.
"""

from __future__ import annotations

import ast
import re
import shlex
import tempfile
import textwrap
import tomllib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route
from typer import Context

import tradewind
from certificates import Authority
from sweeps import sweep
from tradewind.api.endpoints import ENDPOINTS
from tradewind.cli.commands import COMMANDS
from tradewind.cli.frame.frame import SharedGroup
from tradewind.cli.frame.frame import load_app as load_command
from tradewind.cli.frame.settings import FLAGS as SHARED_FLAGS
from tradewind.durations import format_duration
from tradewind.monitor.pages import build_application
from tradewind.monitor.stepping import at_once
from tradewind.options import OpenTelemetryOptions, OperatorOptions, ServerOptions
from tradewind.server.config import absent, load
from tradewind.server.config.grammar import parse_file
from tradewind.server.config.load import load_config_file
from tradewind.server.config.reader import Reader, Table
from tradewind.server.config.tree import ConfigNode
from tradewind.server.lifecycle import flags, reload
from tradewind.spark.columnar.columns import BUCKET, MESSAGES, OBJECTS

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SOURCE = ROOT / "src/tradewind"
ALL_FLAGS = {*flags._BOOLEAN, *flags._INTEGER, *flags._STRING}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
BENCHMARK_TABLE = "<!-- benchmark-table -->"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text()


@cache
def prose_of(page: Path) -> str:
    """A page without its code blocks."""
    return FENCE.sub("", page.read_text())


def blocks(language: str) -> list[tuple[str, str]]:
    """(page, code) of every block in a language."""
    return [
        (name_of(page), code)
        for page in PAGES
        for found, code in FENCE.findall(page.read_text())
        if found == language
    ]


def section(page: str, heading: str) -> str:
    """A page from one heading to the next of any level."""
    parts = re.split(r"^#+ (.+)$", text_of(page), flags=re.MULTILINE)
    assert heading in parts, f"{page} has no heading {heading!r}"
    return parts[parts.index(heading) + 1]


@dataclass(frozen=True)
class Row:
    """One line of a table: its cells, and the code spans of the first one."""

    cells: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return SPAN.findall(self.cells[0])


def rows(text: str) -> Iterator[Row]:
    for line in text.splitlines():
        cells = tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        if cells and not set(line) <= set("|-: "):
            yield Row(cells)


# ---------------------------------------------------------------------- links, paths, commands


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[str]:
    text = prose_of(page)
    inline = re.findall(r"\]\(([^)\s]+)\)", text)
    return inline + re.findall(r"^\[[^\]]+\]: (\S+)$", text, re.MULTILINE)


@sweep("page", [*PAGES, ROOT / "benchmarks/README.md"], ids=name_of)
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@sweep("page", PAGES, ids=name_of)
def test_reference_links_are_defined_and_used(page: Path) -> None:
    text = prose_of(page)
    defined = set(re.findall(r"^\[([^\]]+)\]: ", text, re.MULTILINE))
    body = SPAN.sub("", re.sub(r"^\[[^\]]+\]: .*$", "", text, flags=re.MULTILINE))
    used = set(re.findall(r"\[([\w-]+)\](?!\()", body))
    assert used == defined


# Folders that targets of the Makefile fill; a fresh checkout has none of them.
MADE_BY_TARGETS = ("build/", "dist/")


@sweep("page", PAGES, ids=name_of)
def test_named_files_exist(page: Path) -> None:
    folders = (ROOT, SOURCE, page.parent)
    wanted = re.compile(r"[\w./-]+/[\w./-]*|[\w-]+\.(?:pyx|pxd|toml|md)")
    missing = [
        span
        for span in SPAN.findall(prose_of(page))
        if wanted.fullmatch(span)
        and not span.startswith(("/", *MADE_BY_TARGETS))
        and not any((folder / span).exists() for folder in folders)
    ]
    assert not missing


def test_make_targets_exist_and_are_described() -> None:
    makefile = text_of("Makefile")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = {
        target
        for page in PAGES
        for target in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert named == targets
    variables = set(re.findall(r"^([A-Z_]+) [?:]=", makefile, re.MULTILINE)) | {"ARGS"}
    set_in_docs = {
        name
        for page in PAGES
        for command in re.findall(r"make [a-z]+ ([A-Z_]+=[^`\n]*)", page.read_text())
        for name in re.findall(r"([A-Z_]+)=", command)
    }
    assert set_in_docs <= variables


def test_what_make_quick_covers_is_what_is_said_of_it() -> None:
    packages = re.search(r"^QUICK_PACKAGES := (.*)$", text_of("Makefile"), re.MULTILINE)
    said = re.search(
        r"`make quick` runs the unit tests of ([^.]*?),\s+those", text_of("CONTRIBUTING.md")
    )
    assert packages is not None
    assert said is not None
    assert SPAN.findall(said[1]) == packages[1].split()
    wanted = "wire route broker server store stream consumer jetstream api"
    assert set(wanted.split()) <= set(packages[1].split())
    for name in packages[1].split():
        texts = [path.read_text() for path in (ROOT / "tests/unit" / name).glob("test_*.py")]
        tests = sum(len(re.findall(r"^(?:async )?def test_", text, re.MULTILINE)) for text in texts)
        slow = sum(text.count("pytest.mark.slow") for text in texts)
        assert tests > 4 * slow, f"most of {name} is left out"


def commands() -> Iterator[tuple[str, list[str]]]:
    """(page, words) of every shell command line in code blocks without a language."""
    for page, code in blocks(""):
        for line in code.splitlines():
            if re.match(r"(\.venv/bin/|tradewind-server |curl )", line):
                yield page, shlex.split(line.removesuffix(" &"), comments=True)


def test_commands_name_programs_flags_and_files_that_exist() -> None:
    scripts = tomllib.loads(text_of("pyproject.toml"))["project"]["scripts"]
    seen = 0
    for page, (program, *arguments) in commands():
        if Path(program).name == "tradewind-server":
            assert "tradewind-server" in scripts
            parsed = flags.parse_flags(arguments)
            assert not parsed.word, page
            seen += 1
        elif Path(program).name == "python":
            assert arguments[0] == "-m" or (ROOT / arguments[0]).is_file(), (page, arguments)
            seen += 1
    assert seen >= 5


def flags_of(command: Any) -> set[str]:
    """The flags of a command of `tradewind` and of those below it."""
    names = {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    if not isinstance(command, SharedGroup):
        return names
    context = Context(command)
    below = (command.get_command(context, name) for name in command.list_commands(context))
    return names.union(*(flags_of(each) for each in below))


@cache
def command_flags() -> frozenset[str]:
    """All flags of `tradewind`."""
    made = (load_command(entry.place).make(entry.name) for entry in COMMANDS)
    return frozenset().union(*(flags_of(command) for command in made))


@pytest.mark.slow
@sweep("page", PAGES, ids=name_of)
def test_named_flags_exist(page: Path) -> None:
    named = [
        span for span in SPAN.findall(prose_of(page)) if re.fullmatch(r"--?[A-Za-z][\w-]*", span)
    ]
    known = {*command_flags(), "-ERR", "-NAK", "--check-store"}
    assert [flag for flag in named if flag.lstrip("-") not in ALL_FLAGS and flag not in known] == []


def test_the_page_of_the_command_line_has_every_command_and_shared_flag() -> None:
    commands = [tuple(row.names) for row in rows(section("docs/reference/CLI.md", "First steps"))][
        1:
    ]
    wanted = [(entry.name, *entry.aliases) for entry in COMMANDS]
    assert commands == wanted, "tools/cli_screens.py makes the tables anew"
    flags_there = [row.names for row in rows(section("docs/reference/CLI.md", "Global flags"))][1:]
    shared = [[*([flag.short] if flag.short else []), f"--{flag.name}"] for flag in SHARED_FLAGS]
    assert flags_there == shared


@sweep("page", PAGES, ids=name_of)
def test_pages_are_plain_and_name_no_machine(page: Path) -> None:
    text = page.read_text()
    # Screens are as they are; the letter mu and the lines of tables stand in them.
    assert re.sub(r"^```console\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).isascii()
    assert not re.search(r"/(home|root|work|tmp)/", text)


def test_the_places_for_the_benchmark_table_are_there() -> None:
    for page in ("README.md", "docs/explanation/BENCHMARKS.md"):
        assert text_of(page).count(BENCHMARK_TABLE) == 1 or "| ratio |" in text_of(page)


def test_the_version_has_an_entry_in_the_changelog() -> None:
    assert f"## {tradewind.__version__}\n" in text_of("CHANGELOG.md")


# ---------------------------------------------------------------------- code blocks


@sweep(("page", "code"), blocks("python"))
def test_python_blocks_compile(page: str, code: str) -> None:
    ast.parse(textwrap.dedent(code), page)


SPARK_PAGES = (
    "docs/how-to/SPARK.md",
    "docs/how-to/SPARK_RECIPES.md",
    "docs/how-to/PIPELINES.md",
    "docs/how-to/TABLES.md",
)
# A program whose page says what it prints: the next block, after the word.
SHOWN_OUTPUT = re.compile(r"^```python\n(.*?)^```\n\nprints\n\n```\n(.*?)^```$", re.M | re.S)
RUNNABLE = [
    (page, code)
    for page, code in blocks("python")
    if not re.search(r"\b(nats|pytest|pytest_asyncio|harness)\b", code)
    and page not in SPARK_PAGES  # tests/spark
    and page != "README.md"  # tests/walkthroughs/test_readme.py
    and not page.startswith("docs/tutorials/walkthroughs/")  # tests/walkthroughs
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "code"), RUNNABLE)
def test_python_blocks_that_need_only_us_run(
    page: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, object] = {"__name__": "block"}
    exec(compile(code, page, "exec"), names)
    printed = capsys.readouterr().out
    if "print(server.url" in code:
        assert printed.startswith("nats://127.0.0.1:")
    shown = dict(SHOWN_OUTPUT.findall(text_of(page)))
    if code in shown:
        assert printed == shown[code]


def test_some_blocks_run() -> None:
    assert {page for page, _ in RUNNABLE} == {
        "docs/reference/CLIENT.md",
        "docs/how-to/CELERY.md",
        "docs/how-to/DEAD_LETTERS.md",
        "docs/how-to/DECODERS.md",
        "docs/how-to/INTEGRITY.md",
        "docs/how-to/DISASTER_RECOVERY.md",
        "docs/how-to/EMBEDDING.md",
        "docs/how-to/KV.md",
        "docs/reference/MONITORING.md",
        "docs/how-to/NAK.md",
        "docs/how-to/OBJECTS.md",
        "docs/how-to/ORDER.md",
        "docs/how-to/SCHEMAS.md",
        "docs/how-to/SERVICES.md",
        "docs/tutorials/STREAMS.md",
        "docs/how-to/TEMPLATES.md",
        "docs/how-to/TRACING.md",
        "docs/how-to/TRANSACTIONS.md",
        "docs/how-to/TRUNCATE.md",
        "docs/how-to/FROM_CELERY.md",
        "docs/how-to/FROM_KAFKA.md",
        "docs/how-to/FROM_NATS_PY.md",
        "docs/how-to/WORKERS.md",
    }


@pytest.mark.parametrize(("page", "code"), blocks("conf"))
def test_config_blocks_load(
    page: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    server = authority.server()
    (tmp_path / "server.pem").write_text(Path(server.cert_file).read_text())
    (tmp_path / "server-key.pem").write_text(Path(server.key_file).read_text())
    (tmp_path / "ca.pem").write_text(Path(authority.ca_file).read_text())
    monkeypatch.chdir(tmp_path)
    Path("block.conf").write_text(code)
    loaded = load_config_file("block.conf")
    assert loaded.warnings == ()


def test_every_block_has_a_language_that_is_checked_or_is_text() -> None:
    languages = {language for page in PAGES for language, _ in FENCE.findall(page.read_text())}
    # The statements of recipes run in the tests of Spark.
    assert languages <= {"", "python", "conf", "yaml", "console", "sql"}
    pages = {page.name for page in PAGES if "```sql" in page.read_text()}
    assert pages <= {"SPARK_RECIPES.md"}


# ---------------------------------------------------------------------- configuration


class Recorder(Reader):
    """A reader that remembers the table of each block by what messages call it."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, Table] = {}

    def fields(self, node: ConfigNode, what: str, table: Table) -> dict[str, object]:
        self.tables[what] = table
        return super().fields(node, what, table)


def table_of(config: str, what: str) -> Table:
    """The keys that the loader knows in the block that messages call `what`."""
    recorder = Recorder()
    with tempfile.NamedTemporaryFile(suffix=".conf") as file:
        file.write(config.encode())
        file.flush()
        root = ConfigNode(parse_file(file.name), "", 1)
    recorder.fields(root, "", load._table(recorder))
    return recorder.tables[what]


TOP_SECTIONS = (
    "Addresses and names",
    "Logging",
    "Limits and liveness",
    "Authentication",
    "Operator mode",
    "Storage",
    "Unsupported settings of nats-server",
)
USER = "authorization { users: [{ user: a, permissions: { %s } }] }"
# heading: (a configuration that reaches the block, what messages call it)
BLOCKS = {
    "authorization": ("authorization {}", "authorization"),
    "user": ("authorization { users: [{user: a}] }", "a user"),
    "permissions": (USER % "", "permissions"),
    "allow and deny": (USER % "publish: {}", "publish"),
    "allow_responses": (USER % "allow_responses: {}", "allow_responses"),
    "account": ("accounts { A {} }", "account A"),
    "account limits": ("accounts { A { limits {} } }", "limits"),
    "account jetstream": ("accounts { A { jetstream {} } }", "jetstream"),
    "resolver": ("resolver {}", "resolver"),
    "tls": ("tls {}", "tls"),
    "websocket": ("websocket {}", "websocket"),
    "websocket authorization": ("websocket { authorization {} }", "authorization"),
    "jetstream": ("jetstream {}", "jetstream"),
    "jetstream limits": ("jetstream { limits {} }", "limits"),
    "jetstream batch": ("jetstream { limits { batch {} } }", "batch"),
}


def key_rows(*headings: str) -> list[Row]:
    return [
        row
        for heading in headings
        for row in rows(section("docs/reference/CONFIGURATION.md", heading))
        if row.cells[0] != "key"
    ]


def documented(*headings: str) -> list[str]:
    return sorted(name for row in key_rows(*headings) for name in row.names)


def test_every_top_level_key_is_documented_once() -> None:
    assert documented(*TOP_SECTIONS) == sorted(table_of("port: 1", ""))


@pytest.mark.parametrize("heading", BLOCKS)
def test_every_key_of_a_block_is_documented_once(heading: str) -> None:
    assert documented(heading) == sorted(table_of(*BLOCKS[heading]))


OPTION_NAMES = set(ServerOptions.__struct_fields__)
OPERATOR_FIELDS = (*OperatorOptions.__struct_fields__, "tls")
# Keys that the loader turns into another option.
TURNED_INTO = {
    "listen": "port",
    "http": "http_port",
    "https": "https_port",
    "no_system_account": "system_account",
    "store_dir": "jetstream",
    **{f"operator_{name}": "operator" for name in OPERATOR_FIELDS},
}


def shown_default(value: object, option: str) -> str:
    """A default as the page writes it."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int):
        return f"`{format_duration(value) if option.endswith('_ns') else value}`"
    return f"`{value}`" if isinstance(value, str) and value else "-"


def top_level_rows() -> list[tuple[Row, str]]:
    """The rows that have a default, each with the option that its keys set."""
    table = table_of("port: 1", "")
    result = []
    for row in key_rows(*TOP_SECTIONS[:-1]):
        options = {table[name][0] for name in row.names}
        assert len(options) == 1, f"{row.names} are not spellings of one key"
        result.append((row, options.pop()))
    return result


def test_documented_defaults_are_those_of_the_options() -> None:
    defaults = ServerOptions()
    for row, option in top_level_rows():
        if option in TURNED_INTO:
            assert row.cells[2] in ("-", "`false`"), row.names
        elif option:
            value = getattr(defaults, option)
            assert row.cells[2] == shown_default(value, option), row.names


def test_documented_reloads_are_those_of_the_source() -> None:
    for row, option in top_level_rows():
        name = TURNED_INTO.get(option, option)
        if not name:
            continue
        assert name in OPTION_NAMES
        reloadable = name in reload._RELOADABLE or name in reload._SPECIAL
        assert row.cells[3] in (("yes", "start") if reloadable else ("no",)), row.names


def test_every_flag_is_documented_once_under_flags() -> None:
    named = [
        name.lstrip("-")
        for row in rows(section("docs/reference/CONFIGURATION.md", "Flags"))
        for name in row.names
    ]
    assert sorted(named) == sorted(ALL_FLAGS)


# ---------------------------------------------------------------------- limits and tour


def constant(path: Path, name: str) -> float:
    """The number that a module-level or enum constant is set to."""
    found = re.search(rf"^ *{name}(?:: \w+)? = ([^#\n]+)", path.read_text(), re.MULTILINE)
    assert found, f"{path} has no {name}"
    expression = ast.parse(found[1].strip(), mode="eval")
    allowed = (ast.Expression, ast.BinOp, ast.Constant, ast.operator)
    assert all(isinstance(node, allowed) for node in ast.walk(expression)), found[1]
    return float(eval(compile(expression, str(path), "eval")))


LIMITS = [row for row in rows(section("docs/ARCHITECTURE.md", "Limits")) if row.cells[0] != "what"]


@sweep("row", LIMITS, ids=lambda row: row.cells[1].strip("`"))
def test_limits_have_the_numbers_of_the_source(row: Row) -> None:
    _, name, value, path = (cell.strip("`") for cell in row.cells)
    assert constant(ROOT / path, name) == float(value)


def test_the_tour_visits_every_module() -> None:
    tour = text_of("docs/TOUR.md")
    named = set(SPAN.findall(tour))
    modules = [
        str(path.relative_to(SOURCE))
        for path in sorted(SOURCE.rglob("*"))
        if path.suffix in (".py", ".pyx", ".pxd") and not path.name.startswith("_")
    ]
    missed = [
        module
        for module in modules
        if module not in named and f"{Path(module).parent}/*" not in named
    ]
    assert not missed


def table_after(page: str, header: str) -> list[Row]:
    """The rows of the table with this first line."""
    after = text_of(page).partition(f"{header}\n")[2]
    assert after, f"{page} has no table {header!r}"
    return list(rows(after.partition("\n\n")[0]))


def test_the_endpoints_are_those_of_the_source() -> None:
    found = table_after("docs/reference/JETSTREAM.md", "| subject | what it does |")
    documented = [
        (re.sub(r"<[^>]+>", "*", name), row.cells[1]) for row in found for name in row.names
    ]
    assert documented == [
        (endpoint.subject_for("*", "*", "*"), endpoint.help.removesuffix("."))
        for endpoint in ENDPOINTS
        if endpoint.subject
    ]


def test_requests_that_only_we_have_are_named_as_they_are() -> None:
    named = {
        re.sub(r"<[^>]+>", "*", span)
        for page in PAGES
        for span in SPAN.findall(prose_of(page))
        if re.fullmatch(r"\$TW\.API\.[A-Z.]+(<\w+>)?", span)
    }
    subjects = {each.subject_for("*") for each in ENDPOINTS if each.prefix == "$TW.API."}
    assert named == subjects


def test_the_columns_in_spark_are_those_of_the_source() -> None:
    found = table_after("docs/how-to/SPARK.md", "| column | type | meaning |")
    documented = [(name, row.cells[1]) for row in found for name in row.names]
    assert documented == [(name, column.ddl) for name, column in MESSAGES.items()]
    tables = {
        row.cells[0]: SPAN.findall(row.cells[2])
        for row in table_after("docs/how-to/SPARK.md", "| table | one row for each | columns |")
    }
    assert tables["`bucket`"] == list(BUCKET)
    assert tables["`objectStore`"] == list(OBJECTS)


def test_every_example_is_mentioned() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    examples = [path.name for path in (ROOT / "examples").iterdir() if path.is_file()]
    assert [name for name in examples if f"examples/{name}" not in text] == []


# ---------------------------------------------------------------------- compatibility


COMPATIBILITY = "docs/COMPATIBILITY.md"
VERDICTS = ("same", "better", "differs", "absent")


def verdict_rows() -> list[Row]:
    heads = ("feature", "flag", "page", "subject", "part")
    return [
        row
        for row in rows(text_of(COMPATIBILITY))
        if len(row.cells) == 4 and row.cells[0] not in heads
    ]


def test_every_row_has_a_verdict_and_a_test() -> None:
    assert len(verdict_rows()) > 150
    for row in verdict_rows():
        assert row.cells[1] in VERDICTS, row
        assert re.fullmatch(r"\[[\w-]+\](, \[[\w-]+\])*", row.cells[3]), row


def test_every_absent_or_different_row_says_what_happens() -> None:
    silent = [
        row.cells[0]
        for row in verdict_rows()
        if row.cells[1] in ("better", "differs") and not row.cells[2]
    ]
    assert not silent


def test_conformance_names_tests_that_exist() -> None:
    links = re.findall(
        r"\[`(test_\w+)`\]\(\.\./\.\./(\S+?)\)", text_of("docs/internals/CONFORMANCE.md")
    )
    assert len(links) > 100
    missing = [name for name, path in links if f"def {name}(" not in (ROOT / path).read_text()]
    assert not missing


def test_every_error_is_provoked_or_said_not_to_be() -> None:
    sources = [*(ROOT / "tests/conformance").glob("*.py"), *(ROOT / "tests/cases").iterdir()]
    sources.append(ROOT / "tests/kits/publish_faults.py")
    provoked = set(re.findall(r"\b10\d{3}\b", "".join(path.read_text() for path in sources)))
    excused = set(re.findall(r"\b10\d{3}\b", section("docs/internals/CONFORMANCE.md", "Errors")))
    codes = set(
        re.findall(r"\d{3}, (10\d{3}),", (ROOT / "src/tradewind/api/errors.py").read_text())
    )
    assert len(codes) > 200
    assert codes - provoked == excused


def test_every_conformance_test_is_linked() -> None:
    text = text_of(COMPATIBILITY)
    files = [path.name for path in (ROOT / "tests/conformance").glob("test_*.py")]
    assert [name for name in files if f"conformance/{name}" not in text] == []


def test_every_advisory_has_a_test_that_names_it() -> None:
    """Those without a test have a reason instead."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section("docs/SECURITY.md", "Advisories").splitlines()
        if re.match(r"\| (CVE|20)", line)
    ]
    assert len(rows) > 30
    numbers = set()
    for advisory, _, tests in rows:
        files = re.findall(r"\(\.\./(tests/[^)]+)\)", tests)
        text = "".join((ROOT / file).read_text() for file in files)
        for name in re.findall(r"CVE-[\d-]+|20\d\d-\d\d", re.sub(r"\(.*?\)", "", advisory)):
            numbers.add(name)
            assert not files or name in text or name.lower().replace("-", "_") in text, name
    assert {f"2026-{number:02}" for number in range(1, 29)} <= numbers


def test_flags_and_keys_that_are_absent_are_in_the_comparison() -> None:
    named = {name for row in verdict_rows() for name in row.names}
    assert {f for f in ALL_FLAGS if f"-{f}" not in named and f"--{f}" not in named} == set()
    keys = {
        *absent.REFUSED_TOP,
        *absent.REFUSED_TLS,
        *absent.REFUSED_JETSTREAM,
        *absent.NOTICES,
    }
    assert keys - named == set()


# ---------------------------------------------------------------------- a server's own answers


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tradewind.Server]:
    # There is no collector, and nothing for it.
    spans = OpenTelemetryOptions("http://127.0.0.1:1")
    async with tradewind.Server(jetstream=tmp_path, opentelemetry=spans) as server:
        yield server


def spans_of(page: str) -> set[str]:
    return set(SPAN.findall(text_of(page)))


def test_metrics_are_documented(server: tradewind.Server) -> None:
    served = set(
        re.findall(
            r"^# HELP (\w+)", b"".join(at_once(server.view.metrics())).decode(), re.MULTILINE
        )
    )
    named = {
        name for name in spans_of("docs/reference/MONITORING.md") if name.startswith("tradewind_")
    }
    fields = {"tradewind_version", "tradewind_internal_errors", "tradewind_turns"}
    assert named - fields - {"tradewind_healthy == 0"} == served


def test_pages_are_documented_and_compared(server: tradewind.Server) -> None:
    routes = build_application(server.view).routes
    served = {route.path for route in routes if isinstance(route, Route)}
    assert served <= spans_of("docs/reference/MONITORING.md")
    assert served <= spans_of(COMPATIBILITY)
    named = {
        name
        for row in rows(section("docs/reference/MONITORING.md", "HTTP pages"))
        for name in row.names
    }
    assert named == served


def general(subject: str) -> str:
    """A subject with every placeholder as `*`."""
    return re.sub(r"<\w+>", "*", subject)


def test_system_subjects_are_documented_and_compared(server: tradewind.Server) -> None:
    system = server.system
    account = server.broker.accounts["$G"]
    handlers = {*system._system_handlers(), *system._own_handlers(account)}
    served = {subject.replace(server.broker.server_id, "*") for subject in handlers}
    for page in ("docs/reference/MONITORING.md", COMPATIBILITY):
        spans = {general(span) for span in spans_of(page)}
        families = {span.lstrip(".") for span in spans}
        for subject in served:
            last = subject.rsplit(".", 1)[-1]
            assert subject in spans or last in families, f"{page} does not name {subject}"


def test_events_are_documented_and_compared() -> None:
    source = (SOURCE / "monitor/system_events.py").read_text()
    subjects = {
        re.sub(r"\{[^}]*\}", "*", subject)
        for subject in re.findall(r'"(\$SYS\.[^"]+)"', source)
        if not subject.endswith("{what}")
    }
    subjects |= {f"$SYS.SERVER.*.{what}" for what in re.findall(r'_announce\("(\w+)"\)', source)}
    assert len(subjects) >= 7
    for page in ("docs/reference/MONITORING.md", COMPATIBILITY):
        assert subjects <= {general(span) for span in spans_of(page)}, page


@pytest.mark.parametrize(
    "heading",
    [
        "One message, from its bytes to its acknowledgement",
        "One micro-batch, from block files to a stream",
    ],
)
def test_the_walks_of_the_tour_name_what_is_there(heading: str) -> None:
    """Each hop of the tour is a function of the file, and of the class, that it names."""
    hops = list(rows(section("docs/TOUR.md", heading)))[1:]
    assert len(hops) > 20
    for hop in hops:
        (name,) = hop.names
        (path,) = SPAN.findall(hop.cells[1])
        kind, _, function = name.rpartition(".")
        text = (SOURCE / path).read_text()
        if kind:
            text = re.split(rf"^(?:cdef )?class {kind}\b.*", text, flags=re.MULTILINE)[1]
            text = re.split(r"^\S", text, flags=re.MULTILINE)[0]
        assert re.search(
            rf"^ *(?:async )?(?:def|cdef|cpdef) (?:[\w*]+ )*{function}\(", text, re.MULTILINE
        ), name
