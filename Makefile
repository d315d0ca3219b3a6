# Everything is installed into .venv; `make demo` is the main job, `make test` the test suite.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Processes that share the tests out, file by file; `.venv/bin/python -m pytest tests/...` runs in one.
WORKERS ?= 2

.PHONY: demo test faults clean

demo: $(VENV)/installed
	$(BIN)/mhsa train --config configs/repeat.yaml

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

# Breaks everything on purpose, for about an hour, and writes what held into docs/promises.md.
faults: $(VENV)/installed-dev
	$(BIN)/python -m tests.faults.run --long

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mhsa-cli needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/installed-dev: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info
