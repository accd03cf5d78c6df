"""Lists the compiled modules: every .pyx under src, and every .py with a .pxd that types it. All
other metadata is in pyproject.toml.

Cython runs only in `build_ext`, as part of a build: a command that asks for metadata or for a
source distribution translates nothing. A build shows which module of how many it is at.

TRADEWIND_SANITIZE=1 builds with AddressSanitizer and UBSan, TRADEWIND_TRACE=1 with line tracing for
coverage, which finds the C sources beside the modules; it is compiled once for a few runs, so it is
not optimised. TRADEWIND_QUICK=1 does not optimise either, for a build that is only tried.
TRADEWIND_PORTABLE=1 leaves out the calls that only Linux has, to test what other systems would get.
TRADEWIND_COMPILED=1 makes no modules: they are in place already. The modules are made side by side,
one per processor.
"""

import contextlib
import io
import os
import re
import sys
import threading
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

sanitize = os.environ.get("TRADEWIND_SANITIZE") == "1"
trace = os.environ.get("TRADEWIND_TRACE") == "1"
is_quick = os.environ.get("TRADEWIND_QUICK") == "1"
is_compiled = os.environ.get("TRADEWIND_COMPILED") == "1"
# What the compiler says of C that Cython wrote is nothing that a reader could mend. Errors stay.
compile_args = ["-w"]
compile_args += (
    [
        "-O1",
        "-g",
        "-fsanitize=address,undefined",
        "-fno-omit-frame-pointer",
        "-fno-sanitize-recover=undefined",
    ]
    if sanitize
    else ["-O0" if trace or is_quick else "-O3", "-g0"]
)
link_args = ["-fsanitize=address,undefined"] if sanitize else []
processors = os.cpu_count() or 1
build_dir = "build/cython-sanitize" if sanitize else None if trace else "build/cython"
macros = [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")] if trace else []
if os.environ.get("TRADEWIND_PORTABLE") == "1":
    macros.append(("TRADEWIND_PORTABLE", "1"))

directives = {
    "language_level": 3,
    "cdivision": True,
    "initializedcheck": False,
    "linetrace": trace,
    "embedsignature": True,
}
quick = {"boundscheck": False, "wraparound": False}
# Its threads would take the GIL for each line that is traced, also where they hold a lock for which
# the loop waits with the GIL.
untraced = "tradewind.server.threads.threads"
CYTHON_SAYS = re.compile(r"\[ *(\d+)/(\d+)\] Cythonizing (.+)")


def extensions() -> list[Extension]:
    """The modules with their sources as they are in git, sorted by path."""
    typed = (path for path in Path("src").rglob("*.py") if path.with_suffix(".pxd").exists())
    return [
        Extension(
            str(path.relative_to("src").with_suffix("")).replace(os.sep, "."),
            [str(path)],
            extra_compile_args=compile_args,
            extra_link_args=link_args,
            define_macros=macros,
        )
        for path in sorted([*Path("src").rglob("*.pyx"), *typed])
    ]


def own_directives(extension: Extension) -> dict[str, bool]:
    """The directives of one module, on top of those for all."""
    if extension.sources[0].endswith(".py"):
        # These are Python, and what they say of types is for mypy.
        return {"annotation_typing": False}
    return quick | {"linetrace": False} if extension.name == untraced else quick


def show(verb: str, number: int, of: int, name: str) -> None:
    """One step of many: a line of its own in a log, the same line again on a terminal."""
    text = f"{verb} module {number} of {of}: {name}"
    is_last = number == of
    if sys.__stdout__ is None:
        return
    if sys.__stdout__.isatty():
        text = f"\r\033[K{text}" + "\n" * is_last
    else:
        text += "\n"
    sys.__stdout__.write(text)
    sys.__stdout__.flush()


class CythonOutput(io.TextIOBase):
    """Standard output while Cython runs: its progress in our words, and nothing else."""

    def write(self, text: str) -> int:
        """Called for each line, also in the processes that Cython forks."""
        if found := CYTHON_SAYS.match(text):
            name = str(Path(found[3]).with_suffix("")).removeprefix("src" + os.sep)
            show("translating", int(found[1]), int(found[2]), name.replace(os.sep, "."))
        return len(text)


class BuildModules(build_ext):
    """Translates the modules to C just before it compiles them."""

    def build_extensions(self) -> None:
        """Called when the compiler is known, once for each build."""
        groups: dict[str, list[Extension]] = {}
        for extension in self.extensions:
            groups.setdefault(repr(own_directives(extension)), []).append(extension)
        for group in groups.values():
            self.translate(group)
        # Those that take longest come first, so that the processors finish together.
        self.extensions.sort(key=lambda each: Path(each.sources[0]).stat().st_size, reverse=True)
        self.outdated = {each.name for each in self.extensions if self.is_outdated(each)}
        self.begun = 0
        self.lock = threading.Lock()
        super().build_extensions()

    def translate(self, group: list[Extension]) -> None:
        """Replace the sources of modules with the same directives by C."""
        from Cython.Build import cythonize  # only a build needs it

        with contextlib.redirect_stdout(CythonOutput()):
            made = cythonize(
                group,
                build_dir=build_dir,
                include_path=["src"],
                nthreads=processors,
                compiler_directives={**directives, **own_directives(group[0])},
            )
        translated = {each.name: each for each in made}
        for extension in group:
            extension.sources = translated[extension.name].sources
            extension.depends = translated[extension.name].depends

    def is_outdated(self, extension: Extension) -> bool:
        """Whether a module is older than what it is made of."""
        sources = [*extension.sources, *extension.depends]
        return self.force or newer_group(sources, self.get_ext_fullpath(extension.name), "newer")

    def build_extension(self, ext: Extension) -> None:
        """Called in a thread for each module, also for one that is up to date."""
        if ext.name in self.outdated:
            with self.lock:
                self.begun += 1
                show("compiling", self.begun, len(self.outdated), ext.name)
        super().build_extension(ext)


setup(
    ext_modules=[] if is_compiled else extensions(),
    cmdclass={"build_ext": BuildModules},
    options={"build_ext": {"parallel": processors}},
)
