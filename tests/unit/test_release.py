"""The workflow that publishes: valid, and made of targets, files and tools that exist."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import yaml
from tools import dist

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
MAKEFILE = (ROOT / "Makefile").read_text()


def workflow() -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load((WORKFLOWS / "release.yml").read_text())
    return document


def commands() -> list[str]:
    jobs = workflow()["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def test_every_workflow_is_valid_and_its_jobs_are_whole() -> None:
    for path in WORKFLOWS.iterdir():
        document = yaml.safe_load(path.read_text())
        # YAML 1.1 reads the key `on` as a truth value.
        assert {"name", True, "jobs"} <= set(document), path
        for name, job in document["jobs"].items():
            assert job["runs-on"], name
            assert all(("run" in step) != ("uses" in step) for step in job["steps"]), name
            assert set(job.get("needs", [])) <= set(document["jobs"]), name


def test_commands_are_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.MULTILINE))
    used = {found[1] for line in commands() if (found := re.match(r"make (\S+)", line))}
    assert used == {"dist", "test"}
    assert used <= targets


def test_variables_and_flags_of_the_commands_exist() -> None:
    (command,) = [line for line in commands() if line.startswith("make dist")]
    for name in re.findall(r"\b([A-Z]+)=", command):
        assert f"$({name})" in MAKEFILE
    assert "--only" in command
    assert '"--only"' in Path(dist.__file__).read_text()


def test_what_is_published_has_asked_the_official_server_everything() -> None:
    assert "make test OFFICIAL=all" in commands()
    assert "--official=$(OFFICIAL)" in MAKEFILE


def test_each_python_is_built_for_each_processor() -> None:
    matrix = workflow()["jobs"]["wheel"]["strategy"]["matrix"]
    images = {row["machine"]: row["image"] for row in matrix["include"]}
    pairs = set(itertools.product(matrix["machine"], matrix["python"]))
    assert {images[machine].rpartition("manylinux_2_28_")[2] for machine, _ in pairs} == {
        "x86_64",
        "aarch64",
    }
    page = (ROOT / "docs" / "how-to" / "INSTALL.md").read_text()
    assert set(matrix["python"]) == set(re.findall(r"\b3\.1\d\b", page.partition("## From")[0]))
    assert set(images) == set(matrix["machine"])


def test_only_tags_are_published_without_a_password_after_all_has_passed() -> None:
    jobs = workflow()["jobs"]
    publish = jobs["publish"]
    assert publish["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert publish["permissions"] == {"id-token": "write"}
    assert set(publish["needs"]) == set(jobs) - {"publish"}
    assert "secrets." not in (WORKFLOWS / "release.yml").read_text()
    assert all(job.get("permissions") is None for name, job in jobs.items() if name != "publish")


def test_one_job_hands_over_the_source_package() -> None:
    steps = workflow()["jobs"]["wheel"]["steps"]
    (upload,) = [step for step in steps if step.get("with", {}).get("name") == "sdist"]
    matrix = workflow()["jobs"]["wheel"]["strategy"]["matrix"]
    for key, value in re.findall(r"matrix\.(\w+) == '([^']+)'", upload["if"]):
        assert value in matrix[key]
