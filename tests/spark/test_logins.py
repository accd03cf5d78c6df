"""Jobs of Spark log in by TLS, nkey, password and JWT, and nothing that is shown has a secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark_kit import run_query

import tradewind.sync
from certificates import Authority, Certificate
from harness import ServerProcess
from tradewind.nkeys import KeyPair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_SECONDS = 280
COUNT = 50
USER = KeyPair("U", b"n" * 32)
OTHER = KeyPair("U", b"o" * 32)
PASSWORD = "correct-horse-battery"
WRONG = "wrong-horse-battery"
TOKEN = "a-token-that-nobody-knows"
JWT = "a-jwt-that-nobody-knows"
DOMAIN = "hub"


class Place:
    """A server with a domain that wants client certificates and a login; streams IN and OUT."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.authority = Authority(folder)
        self.client: Certificate = self.authority.client()
        server = self.authority.server()
        config = folder / "server.conf"
        config.write_text(
            f"""
            jetstream {{ domain: {DOMAIN}, store_dir: "{folder / "store"}" }}
            tls {{ cert_file: "{server.cert_file}", key_file: "{server.key_file}",
                   ca_file: "{self.authority.ca_file}", verify: true }}
            accounts {{ A: {{ jetstream: enabled, users: [
                {{ nkey: {USER.public} }}, {{ user: spark, password: "{PASSWORD}" }} ] }} }}
            """
        )
        self.process = ServerProcess(
            kind, ["-a", "127.0.0.1", "-p", "-1", "-c", str(config)]
        ).wait_ready()

    @property
    def tls(self) -> dict[str, str]:
        """The options that every login needs."""
        return {
            "tlsCaFile": self.authority.ca_file,
            "tlsCertFile": self.client.cert_file,
            "tlsKeyFile": self.client.key_file,
            "jetstreamDomain": DOMAIN,
        }

    def connect(self) -> Any:
        return tradewind.sync.connect(
            self.process.url,
            nkey_seed=USER.seed,
            tls_ca_file=self.authority.ca_file,
            tls_cert_file=self.client.cert_file,
            tls_key_file=self.client.key_file,
            jetstream_domain=DOMAIN,
        )

    def fill(self) -> None:
        with self.connect() as connection:
            streams = connection.jetstream_manager().streams
            streams.add(name="IN", subjects=["in.>"], retention="interest", allow_direct=True)
            connection.jetstream_manager().consumers.add("IN", durable_name="keeps")
            streams.add(name="OUT", subjects=["out.>"])
            for number in range(COUNT):
                connection.jetstream().publish("in.x", b"%d" % number)

    def check_copies(self, count: int) -> None:
        """OUT has each row of IN so many times."""
        with self.connect() as connection:
            streams = connection.jetstream_manager().streams
            subjects = streams.info("OUT", subjects_filter=">").state.subjects
            assert subjects == {f"out.{seq}": count for seq in range(1, COUNT + 1)}

    @classmethod
    @contextmanager
    def opened(cls, kind: str, folder: Path) -> Iterator[Place]:
        made = cls(kind, folder)
        try:
            made.fill()
            yield made
        finally:
            made.process.stop()


@pytest.fixture(params=["official", "tradewind"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with Place.opened(request.param, tmp_path) as made:
        yield made


def test_jobs_log_in_with_what_references_stand_for(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    """Driver and executors look them up themselves; IN is read by direct batches of the domain."""
    (tmp_path / "servers").write_text(place.process.url)
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    (tmp_path / "seed").write_text(USER.seed)
    by_seed = {
        **place.tls,
        "servers": f"file:{tmp_path}/servers",
        "nkeySeed": f"file:{tmp_path}/seed",
    }
    by_password = {
        **place.tls,
        "servers": place.process.url,
        "user": "spark",
        "password": f"file:{tmp_path}/password",
    }
    assert (
        spark.read.format("jetstream").options(**by_password, stream="IN").load().count() == COUNT
    )
    run_query(
        spark.readStream.format("jetstream")
        .options(**by_seed, stream="IN", minPartitions=2)
        .load()
        .selectExpr("concat('out.', seq) as subject", "data")
        .writeStream.format("jetstream")
        .options(**by_password, stream="OUT", checkpointLocation=str(tmp_path / "check"))
        .trigger(availableNow=True)
    )
    place.check_copies(1)
    wrong = {**by_password, "password": WRONG}
    with pytest.raises(Exception, match="option servers: cannot connect: ") as raised:
        spark.read.format("jetstream").options(**wrong, stream="IN").load().count()
    assert WRONG not in str(raised.value)


def test_no_secret_is_in_what_spark_shows_or_keeps(tmp_path: Path) -> None:
    with Place.opened("tradewind", tmp_path) as place:
        nobody = {"servers": place.process.url, **place.tls}
        host = place.process.url.removeprefix("nats://")
        literal = {**nobody, "servers": f"nats://spark:{PASSWORD}@{host}", "nkeySeed": USER.seed}
        refers = {**nobody, "servers": "env:LOGIN_SERVERS", "nkeySeed": "env:LOGIN_SEED"}
        given = {
            "logins": [literal, refers],
            "literal": literal | {"token": TOKEN, "userJwt": JWT},
            "wrong": [
                {**nobody, "nkeySeed": OTHER.seed},
                {**nobody, "nkeySeed": f"{OTHER.seed[:-4]}AAAA"},
                {**nobody, "user": "spark", "password": "env:LOGIN_NONE"},
            ],
        }
        texts = run_driver(place, tmp_path, given)
        place.check_copies(1)
    secrets = [PASSWORD, TOKEN, JWT, USER.seed, OTHER.seed, OTHER.seed[:-4]]
    found = [(name, s) for name, text in texts.items() for s in secrets if s.encode() in text]
    assert found == []
    # What was searched has what it should have.
    names = " ".join(texts)
    assert all(part in names for part in ("checkpoint0/offsets/0", "events_", "batch 0 extended"))
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["rows"] == [COUNT] * 2
    for error, text in zip(
        result["errors"],
        (
            "option servers: cannot connect: ",
            "option nkeySeed: what was given is not an nkey seed",
            "option password: env:LOGIN_NONE: the variable is not set where it is used",
        ),
        strict=True,
    ):
        assert text in error


def run_driver(place: Place, folder: Path, given: dict[str, Any]) -> dict[str, bytes]:
    """Run the driver; all files that it has left, and its log, by name."""
    shown = folder / "shown"
    shown.mkdir()
    (folder / "given.json").write_text(json.dumps(given))
    with (shown / "log").open("wb") as log:
        driver = subprocess.run(
            [
                *(sys.executable, str(Path(__file__).with_name("login_driver.py"))),
                *(str(folder), str(folder / "given.json")),
            ],
            env={**os.environ, "LOGIN_SERVERS": place.process.url, "LOGIN_SEED": USER.seed},
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=RUN_SECONDS,
        )
    files = [file for file in shown.rglob("*") if file.is_file()]
    texts = {str(file.relative_to(shown)): file.read_bytes() for file in files}
    assert driver.returncode == 0, texts["log"].decode()
    return texts
