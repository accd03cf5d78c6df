"""The configurations of the consumers of one stream.

Owns them by name, and an index of their filters, so that looking up overlapping consumers costs the
same for one as for thousands. Consumers that serve mirrors and sources never conflict with others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Final

from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.sourcing_rules import is_for_server
from tradewind.api.subject_tree import FULL_WILDCARD, SubjectTree

_NONE: Final[Mapping[str, ConsumerConfig]] = {}


class ConsumerConfigs(MutableMapping[str, ConsumerConfig]):
    """The configurations of consumers by name."""

    def __init__(self, configs: Mapping[str, ConsumerConfig] = _NONE) -> None:
        self._configs: dict[str, ConsumerConfig] = {}
        self._owners: SubjectTree[str] = SubjectTree()
        self.hidden_count = 0  # the hidden ones
        self.server_count = 0  # consumers that serve other streams, including the hidden ones
        self.update(configs)

    def __getitem__(self, name: str) -> ConsumerConfig:
        return self._configs[name]

    def __setitem__(self, name: str, config: ConsumerConfig) -> None:
        self.pop(name, None)
        self._configs[name] = config
        if is_for_server(config):
            self._count(config, 1)
        else:
            self._owners.add(name, filters_of(config) or [FULL_WILDCARD])

    def __delitem__(self, name: str) -> None:
        config = self._configs.pop(name)
        if is_for_server(config):
            self._count(config, -1)
        else:
            self._owners.remove(name, filters_of(config) or [FULL_WILDCARD])

    def _count(self, config: ConsumerConfig, change: int) -> None:
        self.server_count += change
        if config.direct:
            self.hidden_count += change

    def __iter__(self) -> Iterator[str]:
        return iter(self._configs)

    def __len__(self) -> int:
        return len(self._configs)

    @property
    def user_count(self) -> int:
        """The number of consumers that users have created."""
        return len(self._configs) - self.server_count

    @property
    def filter_count(self) -> int:
        """An upper bound of the cost of looking up one filter."""
        return self._owners.size

    def others_take(self, name: str, subjects: list[str]) -> bool:
        """Whether a consumer of another name takes messages of these subjects."""
        effort = self._owners.effort(subjects)
        return any(self._owners.others(name, subject, effort) for subject in subjects)


def filters_of(config: ConsumerConfig) -> list[str]:
    """The subjects that a consumer takes; empty for all."""
    return [config.filter_subject] if config.filter_subject else list(config.filter_subjects)
