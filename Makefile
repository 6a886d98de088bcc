# Everything installs into .venv; a fresh machine needs Python 3.11 or later, pip and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
REFEREES := .venv-referees

.PHONY: run test test-slow lint format bench referees clean

run: $(READY)
	$(BIN)/python -m jobs.run

test: $(READY)
	$(BIN)/python -m pytest

test-slow: $(READY)  # about half an hour
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group models
	$(BIN)/python -m pytest -m slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) referees
	$(BIN)/python -m tests.benchmarks

referees: $(REFEREES)/.ready  # the tools that benchmarks compare with

clean:
	rm -rf $(VENV) .venv-* .mypy_cache .pytest_cache .ruff_cache

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --group dev
	touch $@

$(REFEREES)/.ready: tests/benchmarks/referees.txt
	$(PYTHON) -m venv $(REFEREES)
	$(REFEREES)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(REFEREES)/bin/python -m pip install --quiet --requirement tests/benchmarks/referees.txt
	touch $@
