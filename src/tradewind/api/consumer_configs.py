"""The configurations of the consumers of one stream.

Owns them by name, and which of them takes which subjects, so that it costs no more to ask for
those of one than for those of thousands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Final

from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.subject_tree import FULL_WILDCARD, SubjectTree

_NONE: Final[Mapping[str, ConsumerConfig]] = {}


class ConsumerConfigs(MutableMapping[str, ConsumerConfig]):
    """Configurations by the names of the consumers."""

    def __init__(self, configs: Mapping[str, ConsumerConfig] = _NONE) -> None:
        self._configs: dict[str, ConsumerConfig] = {}
        self._owners: SubjectTree[str] = SubjectTree()
        self.update(configs)

    def __getitem__(self, name: str) -> ConsumerConfig:
        return self._configs[name]

    def __setitem__(self, name: str, config: ConsumerConfig) -> None:
        self.pop(name, None)
        self._configs[name] = config
        self._owners.add(name, filters_of(config) or [FULL_WILDCARD])

    def __delitem__(self, name: str) -> None:
        config = self._configs.pop(name)
        self._owners.remove(name, filters_of(config) or [FULL_WILDCARD])

    def __iter__(self) -> Iterator[str]:
        return iter(self._configs)

    def __len__(self) -> int:
        return len(self._configs)

    def others_take(self, name: str, subjects: list[str]) -> bool:
        """Whether a consumer of another name takes something of these subjects."""
        return any(self._owners.others(name, subject) for subject in subjects)


def filters_of(config: ConsumerConfig) -> list[str]:
    """The subjects that a consumer takes; none means all."""
    return [config.filter_subject] if config.filter_subject else list(config.filter_subjects)
