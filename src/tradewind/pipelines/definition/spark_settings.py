"""The Spark settings in a pipeline's file: master, settings, packages and user interface.

Owns which settings a file may contain, and applying them to a session. A value never appears in a
message, and in `explain` only if its name does not look like a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tradewind.pipelines.definition.document import Key, PipelineDocument

SETTINGS_MAX: Final = 1000
VALUE_CHARACTERS_MAX: Final = 10_000
HIDDEN: Final = "(not shown)"
_SECTION: Final = "spark"
_NAME: Final = re.compile(r"spark(\.[A-Za-z0-9_*-]+)+")
_PACKAGE: Final = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")
_SECRET: Final = re.compile(
    r"secret|passw|token|key|credential|login|auth|seed|jwt|nats_url", re.IGNORECASE
)
# Settings that another key of the file has, or that the results would not be right with.
FORBIDDEN: Final = {
    "spark.master": "set `master` in the section spark",
    "spark.app.name": "it follows from the name of the pipeline",
    "spark.submit.deployMode": "the driver is the process of the command",
    "spark.ui.enabled": "set `ui: true` in the section spark",
    "spark.ui.port": "set `ui: PORT` in the section spark",
    "spark.jars.packages": "set `packages` in the section spark",
    "spark.sql.session.timeZone": "times are in UTC",
    "spark.sql.streaming.checkpointLocation": "say `checkpoint`",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "a checkpoint is never deleted",
    "spark.sql.ansi.enabled": "what a payload means would change",
}
# Sessions have settings of these kinds that no list of Spark names.
_OPEN: Final = ("spark.sql.catalog.", "spark.sql.streaming.stateStore.", "spark.sql.sources.")


class SparkSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The section `spark`. `ui` is a port, true for the next one that is free, or false."""

    master: str = ""
    conf: dict[str, str | int | float | bool] = {}
    packages: list[str] = []
    ui: bool | int = False

    def session_settings(self) -> dict[str, str]:
        """The same as settings of a session."""
        found = {name: _text(value) for name, value in self.conf.items()}
        if self.packages:
            found["spark.jars.packages"] = ",".join(self.packages)
        found["spark.ui.enabled"] = "true" if self.ui is not False else "false"
        if self.ui is not True and self.ui is not False:
            found["spark.ui.port"] = str(self.ui)
        return found

    def lines(self) -> Iterator[str]:
        """The settings, one line each, without secrets."""
        if self.master:
            yield f"master {self.master}"
        for name, value in sorted(self.conf.items()):
            yield f"{name} = {HIDDEN if is_secret(name) else _text(value)}"
        for package in self.packages:
            yield f"package {package}"
        if self.ui is not False:
            yield "with the user interface" + ("" if self.ui is True else f" on port {self.ui}")


def is_secret(name: str) -> bool:
    """Whether the value of a setting is not to be shown."""
    return _SECRET.search(name) is not None


def check_settings(document: PipelineDocument, settings: SparkSettings) -> None:
    """PipelineFileError if a setting is none, or one that a file may not have."""

    def fail(keys: tuple[Key, ...], text: str) -> Exception:
        return document.error((_SECTION, *keys), text)

    if len(settings.conf) > SETTINGS_MAX or len(settings.packages) > SETTINGS_MAX:
        raise fail(("conf",), f"more than {SETTINGS_MAX} settings or packages")
    for name, value in settings.conf.items():
        if not _NAME.fullmatch(name):
            text = f"{name!r} is not a setting of Spark: its names are like spark.executor.memory"
            if re.match(r"fs\.|hadoop\.|dfs\.", name):
                text += f"; one of Hadoop is spark.hadoop.{name}"
            raise fail(("conf", name), text)
        if name in FORBIDDEN:
            raise fail(("conf", name), f"{name} cannot be set here: {FORBIDDEN[name]}")
        if len(_text(value)) > VALUE_CHARACTERS_MAX:
            raise fail(("conf", name), f"{name}: more than {VALUE_CHARACTERS_MAX} characters")
    for index, package in enumerate(settings.packages):
        if not _PACKAGE.fullmatch(package):
            text = f"{package!r} is not a package: group:name:version, as Maven writes it"
            raise fail(("packages", index), text)
    if settings.ui is not True and settings.ui is not False and not 1 <= settings.ui <= 65535:
        raise fail(("ui",), f"ui: {settings.ui} is not a port: true, false, or from 1 to 65535")


def check_sql_settings(
    document: PipelineDocument, settings: SparkSettings, spark: SparkSession
) -> None:
    """The same for names of Spark SQL, all of which Spark can list."""
    from tradewind.pipelines.definition.loading import near

    asked = [name for name in settings.conf if name.startswith("spark.sql.")]
    asked = [name for name in asked if not name.startswith(_OPEN)]
    java = spark._jvm
    if not asked or java is None:
        return
    known = getattr(getattr(java.org.apache.spark.sql.internal, "SQLConf$"), "MODULE$")
    for name in asked:
        if not known.containsConfigKey(name):
            names = [entry.key() for entry in java.java.util.ArrayList(known.getConfigEntries())]
            text = f"Spark has no setting {name!r}{near(name, names)}"
            raise document.error((_SECTION, "conf", name), text)


def apply_settings(spark: SparkSession, wanted: Mapping[str, str]) -> None:
    """Give a session that runs already what it can still take; PipelineError names what it cannot.

    A session of a program that also runs pipelines has been started with other settings.
    """
    for name, value in wanted.items():
        if name.startswith("spark.ui.") or spark.conf.get(name, None) == value:
            continue
        if not spark.conf.isModifiable(name):
            raise PipelineError(
                f"Spark is already running, and {name} cannot be changed while it does: "
                "start it with"
                " this setting, or leave it out"
            )
        spark.conf.set(name, value)


def _text(value: str | float | bool) -> str:  # noqa: FBT001
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
