"""Logins in pipeline files: the same names and references as for Spark, and shown nowhere."""

from __future__ import annotations

import pytest
from pipeline_texts import pipeline_of_text

from tradewind.pipelines.checks.checking import check_server
from tradewind.pipelines.checks.explaining import explain_lines
from tradewind.pipelines.definition.model import Pipeline
from tradewind.pipelines.errors import PipelineFileError
from tradewind.pipelines.flow.frames import source_options
from tradewind.pipelines.sessions.pipeline_connections import PipelineAddress
from tradewind.spark.connections.logins import JobLogin

SECRET = "hunter2"
FILE = f"""\
pipeline: copy
checkpoint: state
server: nats://spark:{SECRET}@127.0.0.1:1
user: spark
password: {SECRET}
tls_handshake_first: true
sources:
  orders: {{stream: ORDERS, nkey_seed: "env:SEED", jetstream_domain: hub}}
sinks:
  out: {{from: orders, stream: OUT, subject: out.x, token: {SECRET}}}
"""


def load(text: str) -> Pipeline:
    return pipeline_of_text(text)


def test_the_nearest_login_is_taken_as_a_whole() -> None:
    pipeline = load(FILE)
    source, head = pipeline.sources["orders"], pipeline.head
    assert head.login == JobLogin(user="spark", password=SECRET, tls_handshake_first="true")
    found = source_options(pipeline, source, PipelineAddress())
    assert found.pop("servers") == head.server
    assert found == {
        "stream": "ORDERS",
        "startingOffsets": "earliest",
        "nkeySeed": "env:SEED",
        "jetstreamDomain": "hub",
        "usedBy": "pipeline",
    }


def test_no_secret_is_in_what_is_said_of_a_pipeline() -> None:
    pipeline = load(FILE)
    said = [*explain_lines(pipeline), repr(pipeline.head), repr(pipeline.sinks)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEED", "SU" + SECRET)
        # A seed that is none is an error of the file's; a server that is away is a note.
        with pytest.raises(
            PipelineFileError, match=":8: nkey_seed: env:SEED is not an nkey"
        ) as raised:
            check_server(pipeline, PipelineAddress())
    away = load(FILE.replace('nkey_seed: "env:SEED", ', "") + "    \n")
    said += [
        str(raised.value),
        repr(PipelineAddress.first_of(away.head)),
        *check_server(away, PipelineAddress()),
    ]
    assert any("is not checked" in line for line in said)
    assert SECRET not in "\n".join(said)


@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        ("user: spark", "description: x", 5, "password: user is missing: both are required"),
        (f"password: {SECRET}", "password: conf:a", 5, "password: Spark's settings do not reach"),
        ('"env:SEED"', f"[{SECRET}]", 8, "nkey_seed: expected `str`, got `array`"),
        (
            "  orders:",
            f"  password: {SECRET}\n  orders:",
            8,
            "password must be a mapping, not a",
        ),
        ("stream: ORDERS", "csv: rows", 8, "'jetstream_domain' is not for a csv source"),
    ],
)
def test_what_is_wrong_in_a_login_is_named_by_its_line(
    old: str, new: str, line: int, text: str
) -> None:
    with pytest.raises(PipelineFileError) as raised:
        load(FILE.replace(old, new))
    assert f":{line}: {text}" in str(raised.value)
    assert SECRET not in str(raised.value)
