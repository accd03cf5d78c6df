"""Compiles the Cython sources of a benchmark package on first use, into build/benchmarks.

Rebuilds when a source or a declaration is newer than a compiled module. Never writes beside the
sources; the compiled modules become importable as members of their package all the same.
"""

import fcntl
import sys
from pathlib import Path
from types import ModuleType

CHECKOUT = Path(__file__).resolve().parent.parent
PRODUCT = CHECKOUT / "src"
BUILD = CHECKOUT / "build" / "benchmarks"
COMPILE_ARGS = ["-O2", "-g0", "-Wno-unused-function", "-Wno-unused-variable"]


def is_stale(source_times: list[float], module_times: list[float], module_count: int) -> bool:
    """True if a module is missing, or any source is newer than any module.

    All are compared with all: modules share their declarations, so one change may touch each.
    """
    return len(module_times) < module_count or max(source_times) > min(module_times)


def ensure_loadgen() -> None:
    """Makes `import benchmarks.loadgen.flow` and its siblings work."""
    import benchmarks.loadgen

    _ensure(benchmarks.loadgen, [])


def ensure_micro() -> None:
    """Makes `import benchmarks.micro.probes` work; the product's declarations count as sources."""
    import benchmarks.micro

    _ensure(benchmarks.micro, sorted(PRODUCT.rglob("*.pxd")))


def _ensure(package: ModuleType, declarations: list[Path]) -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests in several processes may all be the first user
        _ensure_locked(package, declarations)


def _ensure_locked(package: ModuleType, declarations: list[Path]) -> None:
    source_folder = Path(package.__path__[0])
    built_folder = BUILD / "lib" / package.__name__.replace(".", "/")
    sources = sorted(source_folder.glob("*.pyx"))
    built = [path for source in sources for path in built_folder.glob(f"{source.stem}.*.so")]
    watched = [*sources, *source_folder.glob("*.pxd"), *declarations]
    times = [path.stat().st_mtime for path in watched]
    if is_stale(times, [path.stat().st_mtime for path in built], len(sources)):
        print(f"compiling {package.__name__} ...", file=sys.stderr)
        _compile(package.__name__, sources)
    if str(built_folder) not in package.__path__:
        package.__path__.append(str(built_folder))


def _compile(package_name: str, sources: list[Path]) -> None:
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension  # type: ignore[import-untyped]
    from setuptools.command.build_ext import build_ext  # type: ignore[import-untyped]

    extensions = [
        Extension(f"{package_name}.{path.stem}", [str(path)], extra_compile_args=COMPILE_ARGS)
        for path in sources
    ]
    compiled = cythonize(  # type: ignore[no-untyped-call]
        extensions,
        build_dir=str(BUILD / "cython"),
        include_path=[str(CHECKOUT), str(PRODUCT)],
        force=True,
        quiet=True,
    )
    command = build_ext(Distribution({"name": "benchmarks", "ext_modules": compiled}))
    command.build_lib = str(BUILD / "lib")
    command.build_temp = str(BUILD / "temp")
    command.force = True
    command.ensure_finalized()
    command.run()
