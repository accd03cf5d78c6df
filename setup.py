"""Lists the compiled modules: every .pyx under src, and every .py with a .pxd that types it. All
other metadata is in pyproject.toml.

TRADEWIND_SANITIZE=1 builds with AddressSanitizer and UBSan, TRADEWIND_TRACE=1 with line tracing for
coverage, which finds the C sources beside the modules; it is compiled once for a few runs, so it is
not optimised. TRADEWIND_QUICK=1 leaves that out too, for whoever only wants to know whether a build
works. TRADEWIND_COMPILED=1 makes none: they are in place already. The modules are made side by
side, one per processor.
"""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

sanitize = os.environ.get("TRADEWIND_SANITIZE") == "1"
trace = os.environ.get("TRADEWIND_TRACE") == "1"
is_quick = os.environ.get("TRADEWIND_QUICK") == "1"
compile_args = ["-Wno-unused-function", "-Wno-unused-variable"]
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
untraced = Path("src/tradewind/server/threads.pyx")
# These are Python, and what they say of types is for mypy.
plain = {"annotation_typing": False}


def compiled(sources: list[Path], own_directives: dict[str, bool]) -> list[Extension]:
    """What Cython makes of these, with directives of their own."""
    extensions = [
        Extension(
            str(path.relative_to("src").with_suffix("")).replace(os.sep, "."),
            [str(path)],
            extra_compile_args=compile_args,
            extra_link_args=link_args,
            define_macros=macros,
        )
        for path in sorted(sources)
    ]
    return cythonize(
        extensions,
        build_dir=build_dir,
        include_path=["src"],
        nthreads=processors,
        compiler_directives={**directives, **own_directives},
    )


cython_sources = list(Path("src").rglob("*.pyx"))
typed = [path for path in Path("src").rglob("*.py") if path.with_suffix(".pxd").exists()]

# A source distribution has no use for their translation, which takes a minute.
is_source_only = "sdist" in sys.argv
is_compiled = os.environ.get("TRADEWIND_COMPILED") == "1"
modules = (
    []
    if is_source_only or is_compiled
    else [
        *compiled([path for path in cython_sources if path != untraced], quick),
        *compiled(
            [path for path in cython_sources if path == untraced], quick | {"linetrace": False}
        ),
        *compiled(typed, plain),
    ]
)

setup(
    ext_modules=modules,
    options={"build_ext": {"parallel": processors}},
)
