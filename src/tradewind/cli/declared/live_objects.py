"""Reads the objects of a server, and applies single changes.

Owns the client calls of `apply` and `export`. Consumers without a durable name belong to the
programs that use them; they are never listed or changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Final, get_type_hints

import msgspec

from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.legacy_marks import LEGACY_KEY
from tradewind.api.stream_types import StreamConfig
from tradewind.api.template_types import TEMPLATE_KEY, StreamTemplate
from tradewind.cli.declared import shapes
from tradewind.cli.declared.apply_plan import Action, LiveThing, PlannedChange
from tradewind.cli.declared.declaration_files import (
    KV,
    STREAMS,
    TEMPLATES,
    Thing,
    thing_of,
    write_thing,
)
from tradewind.cli.frame.config_files import Config
from tradewind.cli.frame.text_formats import count_text, size_text
from tradewind.client.streams.bucket_settings import BucketSettings, KvSettings, changed_members

if TYPE_CHECKING:
    from tradewind.sync import JetStreamManager

_KV_SETTINGS: Final = tuple(get_type_hints(KvSettings))
_STORE_SETTINGS: Final = tuple(get_type_hints(BucketSettings))


def read_server(
    manager: JetStreamManager, consumers_of: Iterable[str] | None = None
) -> dict[Thing, LiveThing]:
    """Everything on the server; consumers of these streams only, None: of all."""
    wanted = None if consumers_of is None else set(consumers_of)
    found: dict[Thing, LiveThing] = {}
    for info in manager.streams.list().all():
        thing = thing_of(info.config.name)
        state = info.state
        note = f"{count_text(state.messages)} messages, {size_text(state.bytes)}"
        is_made = TEMPLATE_KEY in info.config.metadata
        found[thing] = LiveThing(write_thing(thing, info.config), note, is_made)
        if thing.section != STREAMS or not state.consumer_count:
            continue
        if wanted is None or thing.name in wanted:
            for consumer in manager.consumers.list(info.config.name).all():
                if consumer.config.durable_name:
                    key = Thing(STREAMS, thing.name, consumer.name)
                    written = shapes.write_consumer(consumer.config, info.config)
                    waiting = f"{count_text(consumer.num_pending)} messages to deliver"
                    found[key] = LiveThing(written, waiting)
    return found


def read_templates(manager: JetStreamManager) -> dict[Thing, LiveThing]:
    """The templates of a Tradewind server."""
    return {
        Thing(TEMPLATES, status.template.name): LiveThing(
            shapes.write_template(status.template), "its streams are kept"
        )
        for status in manager.templates.list()
    }


def make_change(manager: JetStreamManager, change: PlannedChange) -> None:
    """Do it; errors of the client pass."""
    thing = change.thing
    if change.action is Action.REMOVE:
        if thing.section == TEMPLATES:
            manager.templates.delete(thing.name)
        elif thing.consumer:
            manager.consumers.delete(thing.stream, thing.consumer)
        else:
            manager.streams.delete(thing.stream)
        return
    assert change.declared is not None, "only what is declared is added or changed"
    config = change.declared.config
    is_new = change.action is Action.ADD
    if isinstance(config, StreamTemplate):
        manager.templates.put(
            config.name,
            match=config.match,
            stream=config.stream,
            max_streams=config.max_streams,
            idle=timedelta(microseconds=config.idle / 1000) if config.idle else None,
            config=config.config,
        )
    elif isinstance(config, ConsumerConfig):
        if is_new:
            manager.consumers.add(thing.stream, config)
        else:
            current = manager.consumers.info(thing.stream, thing.consumer).config
            manager.consumers.update(thing.stream, _with_mark(config, current))
    elif is_new:
        manager.streams.add(config)
    else:
        _change_stream(manager, thing, config)


def _with_mark(config: Config, current: Config) -> Config:
    """The declared configuration with the mark of a preview, which no file declares."""
    if LEGACY_KEY not in current.metadata:
        return config
    mark = {LEGACY_KEY: current.metadata[LEGACY_KEY]}
    return msgspec.structs.replace(config, metadata={**config.metadata, **mark})


def _change_stream(manager: JetStreamManager, thing: Thing, config: StreamConfig) -> None:
    if thing.section == STREAMS:
        manager.streams.update(_with_mark(config, manager.streams.info(thing.stream).config))
        return
    # Whoever made a bucket may have chosen what no setting is about; that stays.
    names = _KV_SETTINGS if thing.section == KV else _STORE_SETTINGS
    members = changed_members(config, dict.fromkeys(names))
    current = manager.streams.info(thing.stream).config
    manager.streams.update(msgspec.structs.replace(current, **members))
