# The two commands of the README are `make run` and `make test`; both set up everything they need.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CYTHON_SOURCES := $(shell find src -name '*.pyx' -o -name '*.pxd')
PORT ?= 4222
WORKERS ?= 2

.PHONY: run test quick lint types tidy bench build sanitize fuzz clean
.DEFAULT_GOAL := build

$(VENV)/.created: constraints.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade -c constraints.txt pip setuptools Cython
	touch $@

$(VENV)/.built: $(VENV)/.created setup.py $(CYTHON_SOURCES)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt -e '.[dev]'
	touch $@

build: $(VENV)/.built

run: build
	$(BIN)/tradewind-server --addr 127.0.0.1 --port $(PORT) $(ARGS)

lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/cython-lint src benchmarks
	$(BIN)/lint-imports
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs src

test: build lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

quick: build
	$(BIN)/python -m pytest -n $(WORKERS) tests/unit tests/model -m 'not slow'

clean:
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
	find src benchmarks -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
