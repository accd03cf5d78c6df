"""Access to local folders and other file systems, as far as a checkpoint needs it.

Owns access to files beside Spark's own: through the operating system for local folders, otherwise
through Spark's Hadoop while Spark runs, so that everything Spark can access is accessed with the
same settings. Without Spark, Arrow's file systems are used (S3, Google, Azure); others cannot be
read then, which is reported as an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tradewind.pipelines.errors import PipelineError

# File systems of Hadoop, and the package that Spark needs for those that are not part of it.
PACKAGES: Final = {
    "hdfs": "",
    "webhdfs": "",
    "viewfs": "",
    "s3a": "org.apache.hadoop:hadoop-aws",
    "abfs": "org.apache.hadoop:hadoop-azure",
    "abfss": "org.apache.hadoop:hadoop-azure",
    "gs": "com.google.cloud.bigdataoss:gcs-connector",
}
_S3: Final = "spark.hadoop.fs.s3a."
FILE_BYTES_MAX: Final = 64 << 20
# A file is there when it is complete, and not before.
_OBJECT_STORES: Final = ("s3a", "gs")


def problem_of(uri: str) -> str:
    """The problem with the address of a folder; empty if nothing is."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return "" if parts.path.strip("/") and not parts.netloc else "use file:///FOLDER"
    if parts.scheme in ("s3", "s3n"):
        return f"Hadoop calls this file system s3a: s3a{uri[len(parts.scheme) :]}"
    if parts.scheme not in PACKAGES:
        return f"{parts.scheme} is not one of file, {', '.join(PACKAGES)}"
    if parts.password is not None:
        return "no password in an address: set it in the section spark, or in the environment"
    if not parts.path.strip("/"):
        return "name a folder after the bucket, host or container"
    return ""


@dataclass(frozen=True)
class RemoteFolder:
    """A folder, or a file in it, of another file system; it has what a `Path` has of these.

    `settings` are those of Spark, which may hold secrets.
    """

    uri: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __truediv__(self, name: str) -> RemoteFolder:
        return RemoteFolder(f"{self.uri}/{name}".rstrip("/"), self.settings)

    def __str__(self) -> str:
        return self.uri

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.uri.rstrip("/").rpartition("/")[2]

    def read_bytes(self) -> bytes:
        """The content of a file; FileNotFoundError if there is none."""
        return self._files().read(self.uri)

    def exists(self) -> bool:
        """Whether there is a file."""
        try:
            self.read_bytes()
        except FileNotFoundError:
            return False
        return True

    def names(self) -> list[str]:
        """The names of what is in a folder; none if it is not there."""
        return self._files().names(self.uri)

    def write(self, data: bytes, *, is_new: bool = False) -> None:
        """Replace a file; FileExistsError if it must be new and is not."""
        self._files().write(self.uri, data, is_new=is_new)

    def remove(self) -> None:
        """Remove a file, if there is one."""
        self._files().remove(self.uri)

    def _files(self) -> _HadoopFiles | _ArrowFiles:
        context = _active_context()
        return _HadoopFiles(context) if context is not None else _ArrowFiles(self.settings)


Place = Path | RemoteFolder


def place_of(folder: Path, text: str, settings: Mapping[str, str]) -> Place:
    """The folder that a file names; a relative one is in `folder`."""
    if "://" not in text:
        return folder / text.removeprefix("file:")
    if urlsplit(text).scheme == "file":
        return Path(urlsplit(text).path)
    return RemoteFolder(text.rstrip("/"), settings)


def replace_file(place: Place, data: bytes) -> None:
    """Replace a small file; readers see the old one or the new one."""
    if isinstance(place, RemoteFolder):
        place.write(data)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    aside = place.with_name(f"{place.name}.{os.getpid()}")
    aside.write_bytes(data)
    aside.rename(place)


def names_in(place: Place) -> list[str]:
    """The names of what is in a folder; none if it is not there."""
    if isinstance(place, RemoteFolder):
        return place.names()
    return [path.name for path in place.iterdir()] if place.is_dir() else []


def _active_context() -> Any:
    """The context of Spark, if it runs in this process."""
    import sys

    spark = sys.modules.get("pyspark")
    return getattr(spark, "SparkContext")._active_spark_context if spark else None  # noqa: B009


class _HadoopFiles:
    """The file systems of Spark's Hadoop, by Java."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def _open(self, uri: str) -> tuple[Any, Any]:
        java = self._context._jvm
        path = java.org.apache.hadoop.fs.Path(uri)
        with _java_errors(uri, self._context):
            return path.getFileSystem(self._context._jsc.hadoopConfiguration()), path

    def read(self, uri: str) -> bytes:
        system, path = self._open(uri)
        with _java_errors(uri, self._context):
            stream = system.open(path)
            try:
                return bytes(stream.readNBytes(FILE_BYTES_MAX))
            finally:
                stream.close()

    def write(self, uri: str, data: bytes, *, is_new: bool) -> None:
        system, path = self._open(uri)
        java = self._context._jvm
        with _java_errors(uri, self._context):
            is_whole = urlsplit(uri).scheme in _OBJECT_STORES
            # Where files grow while they are written, a reader would see half of one.
            aside = path if is_new or is_whole else java.org.apache.hadoop.fs.Path(f"{uri}.new")
            stream = system.create(aside, not is_new)
            stream.write(bytearray(data))
            stream.close()
            if aside is path:
                return
            kinds = java.org.apache.hadoop.fs.Options.Rename
            how = self._context._gateway.new_array(kinds, 1)
            how[0] = kinds.OVERWRITE
            configuration = self._context._jsc.hadoopConfiguration()
            java.org.apache.hadoop.fs.FileContext.getFileContext(
                path.toUri(), configuration
            ).rename(aside, path, how)

    def names(self, uri: str) -> list[str]:
        system, path = self._open(uri)
        try:
            with _java_errors(uri, self._context):
                return [status.getPath().getName() for status in system.listStatus(path)]
        except FileNotFoundError:
            return []

    def remove(self, uri: str) -> None:
        system, path = self._open(uri)
        with _java_errors(uri, self._context):
            system.delete(path, False)


@contextmanager
def _java_errors(uri: str, context: Any) -> Iterator[None]:
    """Errors of Hadoop as those of Python, in one line."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        raised = error.java_exception
        kind = raised.getClass().getSimpleName()
        text = str(raised.getMessage() or kind).splitlines()[0]
        if kind in ("FileNotFoundException", "NoSuchFileException"):
            raise FileNotFoundError(uri) from None
        if kind == "FileAlreadyExistsException":
            raise FileExistsError(uri) from None
        scheme = urlsplit(uri).scheme
        if "ClassNotFoundException" in text or kind == "UnsupportedFileSystemException":
            raise PipelineError(_package_hint(uri, scheme, context)) from None
        raise PipelineError(f"{uri}: {text}") from None
    except Py4JError as error:
        raise PipelineError(f"{uri}: Spark does not respond: {error}") from None


def _package_hint(uri: str, scheme: str, context: Any) -> str:
    package = PACKAGES.get(scheme, "")
    version = context._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    if package.startswith("org.apache.hadoop"):
        package = f"{package}:{version}"
    hint = f"; in the section spark of the file: packages: ['{package}']" if package else ""
    return f"{uri}: Spark has no file system for {scheme}{hint}"


class _ArrowFiles:
    """The file systems of Arrow, for what is asked without Spark."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings

    def _open(self, uri: str) -> tuple[Any, str]:
        from pyarrow import ArrowException, fs

        parts = urlsplit(uri)
        try:
            if parts.scheme == "s3a":
                return self._s3(), f"{parts.netloc}{parts.path}"
            if parts.scheme in ("gs", "abfss", "abfs", "hdfs"):
                system, path = fs.FileSystem.from_uri(uri)
                return system, path
        except (ArrowException, OSError, ValueError) as error:
            text = str(error).splitlines()[0]
            raise PipelineError(f"{uri} cannot be opened without Spark: {text}") from None
        raise PipelineError(
            f"{uri} cannot be read without Spark: Arrow has no file system for {parts.scheme}"
        )

    def _s3(self) -> Any:
        """S3 with the settings that Spark has for it, else with those of the environment."""
        from pyarrow import fs

        options: dict[str, Any] = {}
        wanted = {
            "access_key": "access.key",
            "secret_key": "secret.key",
            "session_token": "session.token",
            "region": "endpoint.region",
        }
        for name, setting in wanted.items():
            if value := self._settings.get(_S3 + setting):
                options[name] = value
        if endpoint := self._settings.get(f"{_S3}endpoint"):
            is_plain = self._settings.get(f"{_S3}connection.ssl.enabled", "true") == "false"
            scheme, _, host = endpoint.rpartition("://")
            options["endpoint_override"] = host
            options["scheme"] = scheme or ("http" if is_plain else "https")
        return fs.S3FileSystem(**options)

    def read(self, uri: str) -> bytes:
        system, path = self._open(uri)
        with _arrow_errors(uri), system.open_input_stream(path) as stream:
            return bytes(stream.read(FILE_BYTES_MAX))

    def write(self, uri: str, data: bytes, *, is_new: bool) -> None:
        if is_new:
            raise PipelineError(f"{uri}: only Spark takes the lock of a checkpoint")
        system, path = self._open(uri)
        with _arrow_errors(uri), system.open_output_stream(path) as stream:
            stream.write(data)

    def names(self, uri: str) -> list[str]:
        from pyarrow import fs

        system, path = self._open(uri)
        with _arrow_errors(uri):
            found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
            return [info.base_name for info in found]

    def remove(self, uri: str) -> None:
        system, path = self._open(uri)
        with _arrow_errors(uri):
            system.delete_file(path)


@contextmanager
def _arrow_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(uri) from None
    except OSError as error:
        raise PipelineError(f"{uri}: {str(error).splitlines()[0]}") from None
