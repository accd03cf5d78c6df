"""A declaration file: its sections, and how it is written.

Owns the outline of the file; the contents of each declared object are in `shapes.py`. Several files
are read as one, and nothing may be declared twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.names import KV_STREAM, OBJECT_STREAM, is_valid_name
from tradewind.api.stream_types import StreamConfig
from tradewind.api.template_types import StreamTemplate
from tradewind.cli.declared import shapes
from tradewind.cli.declared.declaration_fields import Keys, mapping_at
from tradewind.cli.frame.failures import near
from tradewind.documents import Document

STREAMS: Final = "streams"
CONSUMERS: Final = "consumers"
KV: Final = "kv"
OBJECTS: Final = "objects"
TEMPLATES: Final = "templates"
SECTIONS: Final = (STREAMS, KV, OBJECTS, TEMPLATES)
_PREFIXES: Final = {STREAMS: "", KV: KV_STREAM, OBJECTS: OBJECT_STREAM}
_READERS: Final[Mapping[str, Callable[[Document, Keys], StreamConfig]]] = {
    STREAMS: shapes.read_stream,
    KV: shapes.read_kv,
    OBJECTS: shapes.read_objects,
}
_WRITERS: Final[Mapping[str, Callable[[StreamConfig], dict[str, Any]]]] = {
    STREAMS: shapes.write_stream,
    KV: shapes.write_kv,
    OBJECTS: shapes.write_objects,
}
_WORDS: Final = {
    STREAMS: "stream",
    KV: "kv",
    OBJECTS: "object",
    TEMPLATES: "template",
    CONSUMERS: "consumer",
}
HEADER: Final = "# Streams, consumers and buckets; apply them with `tradewind apply -f FILE`.\n"


@dataclass(frozen=True, slots=True, order=True)
class Thing:
    """An object that a file can declare: a stream, bucket, store, template or consumer."""

    section: str
    name: str
    consumer: str = ""

    @property
    def stream(self) -> str:
        """The name of its stream on the server; empty for a template."""
        return "" if self.section == TEMPLATES else _PREFIXES[self.section] + self.name

    def __str__(self) -> str:
        if self.consumer:
            return f"{_WORDS[CONSUMERS]} {self.name} > {self.consumer}"
        return f"{_WORDS[self.section]} {self.name}"


@dataclass(frozen=True, slots=True)
class DeclaredThing:
    """A thing as the file wants it: for the server, and as it is written; `place` is file:line."""

    config: StreamConfig | ConsumerConfig | StreamTemplate
    written: dict[str, Any]
    place: str


@dataclass(slots=True)
class Declaration:
    """All that files declare. `complete` are the sections, and the streams, of which a file lists
    everything: what it does not list there may be pruned.
    """

    things: dict[Thing, DeclaredThing] = field(default_factory=dict)
    complete: set[str | Thing] = field(default_factory=set)


def thing_of(stream: str) -> Thing:
    """The thing that declares this stream of the server: a bucket, a store or a stream."""
    for section in (KV, OBJECTS):
        if stream.startswith(_PREFIXES[section]):
            return Thing(section, stream.removeprefix(_PREFIXES[section]))
    return Thing(STREAMS, stream)


def write_thing(thing: Thing, config: StreamConfig) -> dict[str, Any]:
    """The entry of a stream, bucket or store in a file."""
    return _WRITERS[thing.section](config)


def read_declaration(documents: Iterable[Document]) -> Declaration:
    """The combined declaration of some files; ConfigError names file and line."""
    declaration = Declaration()
    for document in documents:
        sections = mapping_at(document, ())
        _check_sections(document, sections)
        for section in sections:
            declaration.complete.add(section)
            for name in mapping_at(document, (section,)):
                _read_thing(declaration, document, Thing(section, name))
    return declaration


def _check_sections(document: Document, sections: Mapping[str, Any]) -> None:
    if not sections:
        raise document.error((), f"nothing is declared; expected {_one_of(SECTIONS)}")
    for section in sections:
        if section in SECTIONS:
            continue
        if "subjects" in sections or "durable_name" in sections:
            raise document.error(
                (),
                "this is a single configuration; write it as `streams: NAME: ...`, "
                "without its name",
            )
        raise document.error(
            (section,),
            f"section {section!r} does not exist{near(section, SECTIONS)}; "
            f"expected {_one_of(SECTIONS)}",
        )


def _one_of(names: Iterable[str]) -> str:
    return ", ".join(names)


def _read_thing(declaration: Declaration, document: Document, thing: Thing) -> None:
    keys = (thing.section, thing.name)
    if not is_valid_name(thing.name):
        raise document.error(keys, f"name {thing.name!r}: no blanks, dots, slashes or wildcards")
    if thing.section == TEMPLATES:
        template = shapes.read_template(document, keys)
        written = shapes.write_template(template)
        _add(declaration, document, keys, thing, DeclaredThing(template, written, ""))
        return
    if thing.section == STREAMS and thing_of(thing.name) != thing:
        other = thing_of(thing.name)
        raise document.error(
            keys,
            f"{thing.name!r} is the stream of a bucket; declare `{other.section}: {other.name}`",
        )
    config = _READERS[thing.section](document, keys)
    _add(declaration, document, keys, thing, DeclaredThing(config, write_thing(thing, config), ""))
    if thing.section != STREAMS or CONSUMERS not in (mapping_at(document, keys)):
        return
    declaration.complete.add(thing)
    for name in mapping_at(document, (*keys, CONSUMERS)):
        consumer = Thing(STREAMS, thing.name, name)
        place = (*keys, CONSUMERS, name)
        if not is_valid_name(name):
            raise document.error(place, f"name {name!r}: no blanks, dots, slashes or wildcards")
        wanted = shapes.read_consumer(document, place, config)
        written = shapes.write_consumer(wanted, config)
        _add(declaration, document, place, consumer, DeclaredThing(wanted, written, ""))


def _add(
    declaration: Declaration, document: Document, keys: Keys, thing: Thing, declared: DeclaredThing
) -> None:
    place = f"{document.path}:{document.place(keys).key_line}"
    if thing in declaration.things:
        first = declaration.things[thing].place
        raise document.error(keys, f"{thing} is declared twice; first in {first}")
    declaration.things[thing] = DeclaredThing(declared.config, declared.written, place)


def as_file(things: Mapping[Thing, dict[str, Any]]) -> dict[str, Any]:
    """The content of a file that declares these things."""
    content: dict[str, Any] = {section: {} for section in (STREAMS, KV, OBJECTS)}
    if any(thing.section == TEMPLATES for thing in things):
        content[TEMPLATES] = {}  # other servers have none
    for thing in sorted(things):
        if not thing.consumer:
            content[thing.section][thing.name] = dict(things[thing])
    for thing in sorted(things):
        if thing.consumer:
            stream = content[thing.section][thing.name]
            stream.setdefault(CONSUMERS, {})[thing.consumer] = dict(things[thing])
    return content


def yaml_text(content: dict[str, Any]) -> str:
    """A file as YAML."""
    import yaml

    parts = [
        yaml.safe_dump({section: content[section]}, sort_keys=False, allow_unicode=True, width=100)
        for section in content
    ]
    return HEADER + "\n" + "\n".join(parts)


def value_line(value: Any) -> str:
    """One value of a file on one line."""
    import yaml

    text: str = yaml.safe_dump(
        value, default_flow_style=True, allow_unicode=True, width=10_000, sort_keys=False
    )
    return text.removesuffix("...\n").strip()
