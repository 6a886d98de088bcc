# Everything installs into .venv; a fresh machine needs Python 3.11 or later, pip and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
REFEREES := .venv-referees
FORMATS := .venv-formats

.PHONY: run test test-slow lint format bench referees formats clean

run: $(READY)
	$(BIN)/python -m jobs.run

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-slow: $(READY) formats  # more than an hour
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

formats: $(FORMATS)/.ready  # the tools whose formats exports have, for slow tests

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

$(FORMATS)/.ready: tests/benchmarks/formats.txt
	$(PYTHON) -m venv $(FORMATS)
	$(FORMATS)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(FORMATS)/bin/python -m pip install --quiet --requirement tests/benchmarks/formats.txt
	$(FORMATS)/bin/python -m pip install --quiet --no-deps megatron-core==0.16.1 mosaicml-streaming==0.13.0
	touch $@
