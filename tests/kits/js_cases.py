"""Cases about the JetStream API with what nats-server 2.15.1 answers.

Kept as lines of JSON in tests/cases, one request each. The unit tests ask our rules, the
conformance tests ask the servers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "cases"


@dataclass(frozen=True)
class ConfigCase:
    """A request to create or change something, after others that prepare it."""

    setup: list[tuple[str, dict[str, Any]]]
    subject: str
    body: dict[str, Any]
    # Code, err_code and description of the refusal.
    error: list[Any] | None
    # The configuration in the answer.
    config: dict[str, Any] | None

    def __str__(self) -> str:
        text = json.dumps(self.body.get("config", self.body), separators=(",", ":"))
        return f"{self.subject}-{text}"[:80]


@dataclass(frozen=True)
class BodyCase:
    """A body, however broken, sent to an endpoint."""

    subject: str
    body: bytes
    error: list[Any] | None

    def __str__(self) -> str:
        return f"{self.subject}-{self.body!r}"[:80]


@dataclass(frozen=True)
class MappingCase:
    """A subject mapping, and what becomes of a subject, or why it is refused."""

    source: str
    destination: str
    subject: str
    # None if the source does not match the subject.
    result: str | None
    error: str

    def __str__(self) -> str:
        return f"{self.source}->{self.destination}"[:80]


def mapping_cases() -> list[MappingCase]:
    rows = [json.loads(line) for line in (FOLDER / "mappings.jsonl").read_text().splitlines()]
    return [
        MappingCase(
            row["source"],
            row["destination"],
            row.get("subject", ""),
            row.get("result"),
            row.get("error", ""),
        )
        for row in rows
    ]


def config_cases() -> list[ConfigCase]:
    """The lines hold only what differs from the defaults, which come first; null is left out."""
    rows = [json.loads(line) for line in (FOLDER / "configs.jsonl").read_text().splitlines()]
    defaults = {row["defaults"]: row["config"] for row in rows if "defaults" in row}
    return [
        ConfigCase(
            setup=[(subject, body) for subject, body in row["setup"]],
            subject=row["subject"],
            body=row["body"],
            error=row.get("error"),
            config=_expand(row, defaults) if "config" in row else None,
        )
        for row in rows
        if "defaults" not in row
    ]


def body_cases() -> list[BodyCase]:
    rows = [json.loads(line) for line in (FOLDER / "requests.jsonl").read_text().splitlines()]
    return [
        BodyCase(
            row["subject"],
            bytes.fromhex(row["body_hex"]) if "body_hex" in row else row["body"].encode(),
            row["error"],
        )
        for row in rows
    ]


def _expand(row: dict[str, Any], defaults: dict[str, dict[str, Any]]) -> dict[str, Any]:
    kind = "stream" if row["subject"].startswith("STREAM") else "consumer"
    config = {**defaults[kind], **row["config"]}
    return {name: value for name, value in config.items() if value is not None}
