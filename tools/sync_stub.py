"""Writes src/tradewind/sync.pyi: the types of the blocking client, from the asynchronous classes.

    python tools/sync_stub.py            writes it
    python tools/sync_stub.py --check    fails if it is not up to date

What is blocking at run time is decided in `client/blocking.py`; this only repeats the rules for
type checkers: coroutines give their result, async iterators are iterators.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src/tradewind/client"
STUB = ROOT / "src/tradewind/sync.pyi"
# The classes that a blocking program meets, by module; add new ones here.
CLASSES = {
    "connection": ["Connection"],
    "core.subscription": ["Subscription"],
    "schema_bucket": ["Schemas", "SchemaFollower"],
    "bucket_manager": ["KvBuckets", "ObjectStores"],
    "kv.kv": ["KeyValue"],
    "kv.coded": ["CodedKeyValue"],
    "kv.locks": ["KeyLock"],
    "objects.objects": ["ObjectStore"],
    "objects.object_download": ["ObjectReader"],
    "kv.watch": ["Watcher", "InitialItems"],
    "stream_schedules": ["StreamSchedules"],
    "services.discovery": ["Services"],
    "services.services": ["Service", "Group"],
    "jetstream": ["JetStream"],
    "streams.manager": ["JetStreamManager", "Streams", "Consumers"],
    "streams.templates": ["StreamTemplates"],
    "streams.api_requests": ["Pages"],
    "why.asking": ["Why"],
    "streams.consumers": ["Consumer", "ConsumerAccess"],
    "running.consumer_run": ["ConsumerRun"],
    "streams.ordered": ["OrderedConsumer", "OrderedMessages"],
    "streams.batches": ["Batch"],
    "streams.transactions": ["Transaction"],
    "streams.chains": ["Chains"],
    "streams.dead_letters": ["DeadLetters"],
    "streams.pulled": ["FetchedMessages", "ConsumerMessages"],
    "streams.pushed": ["PushedMessages"],
    "streams.delivered": ["StatusEvents"],
}
HEAD = '''"""Types of the blocking client; written by tools/sync_stub.py, never by hand."""
# ruff: noqa: A002 - the names of the asynchronous methods'''
TYPES = (
    (re.compile(r"\bAsync(Iterator|Generator|Iterable)\["), r"\1["),
    (re.compile(r"^Awaitable\[(.*)\]$"), r"\1"),
)


@dataclass
class Module:
    """A source file: its classes, and where the names in its annotations come from."""

    name: str
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)


def read_module(name: str) -> Module:
    """The module, from its declarations if it is compiled."""
    path = PACKAGE / f"{name.replace('.', '/')}.py"
    tree = ast.parse((path if path.exists() else path.with_suffix(".pyi")).read_text())
    module = Module(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                module.origins[alias.name] = node.module
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            module.classes[node.name] = node
            module.origins[node.name] = f"tradewind.client.{name}"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name):
                module.origins[target.id] = f"tradewind.client.{name}"
    return module


def family(module: Module, class_name: str) -> list[tuple[Module, ast.ClassDef]]:
    """A class and those of its bases that the client defines, nearest first."""
    node = module.classes[class_name]
    found = [(module, node)]
    for base in node.bases:
        origin = module.origins.get(ast.unparse(base), "")
        if origin.startswith("tradewind.client."):
            found += family(
                read_module(origin.removeprefix("tradewind.client.")), ast.unparse(base)
            )
    return found


class Writer:
    """Collects the text of the stub and the imports that it needs."""

    def __init__(self) -> None:
        self.imports: dict[str, set[str]] = {}
        self.blocking = {name for names in CLASSES.values() for name in names}

    def class_text(self, module: Module, class_name: str) -> str:
        """One class with everything that it inherits."""
        generic = [ast.unparse(base) for base in module.classes[class_name].bases]
        generic = [base for base in generic if base.startswith("Generic[")]
        self.need_all(module, " ".join(generic))
        lines = [f"class {class_name}({generic[0]}):" if generic else f"class {class_name}:"]
        seen: set[str] = set()
        for owner, node in family(module, class_name):
            for member in node.body:
                if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    name, text = member.target.id, f"    {ast.unparse(member)}"
                    self.need_all(owner, ast.unparse(member.annotation))
                elif isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                    name, text = member.name, self.method_text(owner, member)
                else:
                    continue
                if name not in seen and text:
                    seen.add(name)
                    lines.append(text)
        return "\n".join(lines)

    def method_text(self, owner: Module, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        """A method as its blocking twin has it; empty if that has none."""
        if node.name in ("__aenter__", "__aiter__"):
            self.need("Self", "typing")
            return f"    def {node.name.replace('__a', '__')}(self) -> Self: ..."
        if node.name == "__aexit__":
            return "    def __exit__(self, *exc: object) -> None: ..."
        if node.name == "__anext__":
            return f"    def __next__(self) -> {self.result_of_next(owner, node)}: ..."
        if node.name.startswith("_"):
            return ""
        signature = ast.unparse(node.args)
        result = ast.unparse(node.returns) if node.returns else "None"
        for pattern, replacement in TYPES:
            result = pattern.sub(replacement, result)
        self.need_all(owner, f"{signature} {result}")
        mark = (
            "    @property\n"
            if any(
                ast.unparse(item) in ("property", "cached_property") for item in node.decorator_list
            )
            else ""
        )
        return f"{mark}    def {node.name}({signature}) -> {result}: ..."

    def result_of_next(self, owner: Module, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        """What an iterator yields: the result, without the Awaitable around it."""
        assert node.returns is not None
        text = re.sub(r"^Awaitable\[(.*)\]$", r"\1", ast.unparse(node.returns))
        self.need_all(owner, text)
        return text

    def need_all(self, owner: Module, text: str) -> None:
        """Import every name of an annotation."""
        for name in re.findall(r"[A-Za-z_]\w*", text):
            if name in owner.origins and name not in self.blocking:
                self.need(name, owner.origins[name])
            elif name in ("Iterator", "Generator", "Iterable"):
                self.need(name, "collections.abc")

    def need(self, name: str, origin: str) -> None:
        """Import one name."""
        self.imports.setdefault(origin, set()).add(name)


CONNECT = """
def connect(
    servers: str | list[str] | None = None,
    *,
    context: str | None = None,
    **settings: Unpack[ConnectSettings],
) -> Connection: ...
"""


def make_stub() -> str:
    """The text of the stub, formatted."""
    writer = Writer()
    writer.need("Unpack", "typing")
    writer.need("ConnectSettings", "tradewind.client.core.connect_options")
    classes = [
        writer.class_text(read_module(module), name)
        for module, names in CLASSES.items()
        for name in names
    ]
    imports = [
        f"from {origin} import {', '.join(sorted(names))}"
        for origin, names in sorted(writer.imports.items())
    ]
    text = "\n".join([HEAD, "", *imports, "", CONNECT, *classes, ""])
    ruff = str(Path(sys.executable).parent / "ruff")
    for command in (["check", "--select", "I", "--fix", "-q"], ["format", "-q"]):
        text = subprocess.run(  # noqa: S603 - our own linter on our own text
            [ruff, *command, "--stdin-filename", str(STUB), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


def main() -> int:
    """Write the stub, or tell whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = make_stub()
    if arguments.check:
        return 0 if STUB.exists() and STUB.read_text() == text else 1
    STUB.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
