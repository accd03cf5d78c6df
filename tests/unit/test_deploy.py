"""The files for operations name metrics, flags and files that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools import dist

from harness import COMMANDS
from tradewind.cli.main import run
from tradewind.pipelines.definition.loading import load_pipeline
from tradewind.systemd import ServiceUnit

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\btradewind_[a-z_]+")
# Names of the page that documents them; test_docs compares that with the source.
METRICS = set(METRIC.findall((ROOT / "docs" / "reference" / "MONITORING.md").read_text()))


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return document


@pytest.mark.parametrize("name", ["grafana-dashboard.json", "prometheus-rules.yaml"])
def test_every_metric_exists(name: str) -> None:
    used = set(METRIC.findall((DEPLOY / name).read_text()))
    assert used
    assert used <= METRICS


def test_every_panel_has_a_place_a_title_and_a_query() -> None:
    panels = json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    assert all(panel["title"] and panel["targets"] for panel in panels)


def test_every_alert_says_what_happened_where() -> None:
    groups = yaml.safe_load((DEPLOY / "prometheus-rules.yaml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert "{{ $labels.instance }}" in rule["annotations"]["summary"]


def test_prometheus_accepts_the_rules() -> None:
    """By its own tool where that is installed; the structure is checked above in any case."""
    tool = shutil.which("promtool")
    if tool is not None:
        command = [tool, "check", "rules", str(DEPLOY / "prometheus-rules.yaml")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_server_accepts_the_configuration_of_the_image() -> None:
    command = [COMMANDS["tradewind"], "-t", "-c", str(DEPLOY / "server.conf")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_image_copies_files_that_exist() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ")]
    sources = [name for names in copies for name in names if not names[0].startswith("--from")]
    assert sources
    assert all((ROOT / name).exists() for name in sources)
    # Whatever follows USER runs without the rights of root.
    assert any(line == "USER tradewind" for line in lines)
    assert not any(line.startswith("RUN") for line in lines[lines.index("USER tradewind") :])


def stages() -> tuple[str, str]:
    """The stage of the image that builds the wheel, and the one that installs it."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    _, build, final = text.split("\nFROM ")
    return build, final


def test_the_image_makes_its_wheel_by_the_target_of_the_makefile() -> None:
    build, _ = stages()
    assert 'RUN make dist ARGS="--only ${PYTHON}"' in build
    # What the target runs and reads is there.
    copied = build.split("COPY", 1)[1]
    recipe = (ROOT / "Makefile").read_text().partition("\ndist: ")[2].partition("\n\n")[0]
    assert set(re.findall(r"tools/\w+\.py", recipe)) == {"tools/dist.py"}
    needed = {"Makefile", "constraints.txt", "tools/dist.py", *dist.SDIST_FILES}
    assert all(name in copied for name in needed), needed


def test_what_is_copied_into_the_image_makes_a_whole_source_package(tmp_path: Path) -> None:
    build, _ = stages()
    for line in re.findall(r"^COPY (.+)$", build, re.MULTILINE):
        *names, target = line.split()
        for name in names:
            to = tmp_path / target / (Path(name).name if name != target else "")
            to.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
                shutil.copytree(ROOT / name, to, ignore=ignored)
            else:
                shutil.copyfile(ROOT / name, to)
    sources = dist.sources(tmp_path)
    made = dist.build_sdist(tmp_path / "dist", sources, tmp_path)
    assert dist.sdist_problem(dist.sdist_names(made), sources) == dist.WORKS


def test_the_image_installs_the_wheel_and_has_no_compiler() -> None:
    _, final = stages()
    assert "/source/dist/tradewind-*.whl)[${EXTRAS}]" in final
    assert "--only-binary=:all:" in final
    assert "--constraint /source/constraints.txt" in final
    assert not re.search(r"apt-get|\bgcc\b|\bmake\b", final)


def test_the_extras_of_the_image_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    builds = [service.get("build", {}) for service in compose()["services"].values()]
    given = [build["args"]["EXTRAS"] for build in builds if "args" in build]
    given += re.findall(r"EXTRAS=([\w,]+)", (DEPLOY / "Dockerfile").read_text())
    assert len(given) == 3
    assert {extra for each in given for extra in each.split(",")} <= set(
        project["optional-dependencies"]
    )


def test_services_use_flags_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    services = compose()["services"]
    commands = [service["command"] for service in services.values() if "command" in service]
    assert len(commands) == 2
    run(["--help"])
    shared = capsys.readouterr().out
    for command in commands:
        words = [word for word in command[1:] if re.fullmatch("[a-z]+", word)]
        run([*words, "--help"])
        known = capsys.readouterr().out + shared
        flags = [word.partition("=")[0] for word in command if word.startswith("--")]
        assert all(re.search(rf"(?<!\S){flag}\b", known) for flag in flags), command


def test_the_image_leaves_out_what_was_built_on_this_machine() -> None:
    """docker uses the file of this name beside the Dockerfile; the last rule that fits counts."""
    rules = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [rule for rule in rules if rule and not rule.startswith("#")]
    assert rules[0] == "*"
    kept = {rule[1:] for rule in rules if rule.startswith("!")}
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    copies = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY ")]
    assert kept == {name for names in copies if "--from" not in names[0] for name in names}
    left_out = rules[max(rules.index(f"!{name}") for name in kept) + 1 :]
    assert left_out == ["**/*.so", "**/*.c", "**/*.egg-info", "**/__pycache__"]


def test_the_pipeline_of_the_services_is_right_and_writes_into_its_volume(
    capsys: pytest.CaptureFixture[str],
) -> None:
    service = compose()["services"]["pipeline"]
    assert service["command"][-1] == "/pipelines/pipeline.yaml"
    assert service["volumes"] == ["./pipelines:/pipelines:ro", "checkpoints:/data"]
    path = DEPLOY / "pipelines" / "pipeline.yaml"
    pipeline = yaml.safe_load(path.read_text())
    assert pipeline["checkpoint"].startswith("/data/")
    assert all(sink["parquet"].startswith("/data/") for sink in pipeline["sinks"].values())
    load_pipeline(path)


def test_services_of_one_image_build_it_alike() -> None:
    """One that only names the image of another is pulled by some versions of docker compose."""
    services = compose()["services"].values()
    builds: dict[str, list[Any]] = {}
    for service in services:
        builds.setdefault(service["image"], []).append(service["build"])
    assert all(build == first for first, *others in builds.values() for build in others)


def test_ports_are_published_on_loopback_only() -> None:
    ports = [port for s in compose()["services"].values() for port in s.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_systemd_accepts_a_unit(tmp_path: Path) -> None:
    unit = ServiceUnit(
        description="a server", command="/bin/true", store="/var/lib/x", user="root", type="notify"
    )
    path = tmp_path / "tradewind-test.service"
    path.write_text(unit.text())
    assert "Type=notify" in unit.text()
    tool = shutil.which("systemd-analyze")
    if tool is not None:
        command = [tool, "verify", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_unit_of_the_tables_runs_a_command_that_exists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DEPLOY / "tradewind-tables.service").read_text()
    (called,) = re.findall(r"^ExecStart=/usr/local/bin/tradewind (.+)$", text, re.MULTILINE)
    run([*called.split(), "--help"])
    assert "Keep the tables" in capsys.readouterr().out
    tool = shutil.which("systemd-analyze")
    if tool is not None:
        path = tmp_path / "tradewind-tables.service"
        there = text.replace("/usr/local/bin/tradewind", "/bin/true")
        path.write_text(re.sub("^(User|Group)=tradewind$", r"\1=root", there, flags=re.MULTILINE))
        done = subprocess.run(
            [tool, "verify", str(path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
