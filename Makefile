# Everything is installed into .venv; `make demo` is the main job, `make lesson` the task of the lesson, on which attention
# has no effect, `make test` the test suite, `make quick` the part of it that tells most in half a minute.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Processes that share the tests out, file by file; `.venv/bin/python -m pytest tests/...` runs in one.
WORKERS ?= 2
# `make test DURATIONS=25` also lists the 25 slowest tests.
DURATIONS ?=
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(if $(DURATIONS),--durations=$(DURATIONS))
# What pip, which is silent, takes; and how a shell finds the command that a training ends with.
INSTALLING = echo "installing into $(VENV): torch alone is about 200 MB for CPUs, several GB with CUDA; a few minutes"
ACTIVATE = echo "so that a shell finds mhsa: source $(BIN)/activate"
# What a changed line breaks first: the walls between the rooms, the config, every picture, the laws of attention and of
# positions, and a run that is trained and looked at. Whole folders and names by pattern: a new file there is in it.
QUICK = tests/test_architecture.py tests/config tests/renderers $(wildcard tests/core/test_attention_*.py) \
        tests/core/test_positions.py tests/commands/test_inspect_command.py

.PHONY: demo lesson test quick docs faults dist clean

demo: $(VENV)/installed
	$(BIN)/mhsa train --config configs/copy.yaml
	@$(ACTIVATE)

lesson: $(VENV)/installed
	$(BIN)/mhsa train --config configs/repeat.yaml
	@$(ACTIVATE)

# Compiled tests are kept, whatever the environment says: compiling them is half of collecting them.
test quick: export PYTHONDONTWRITEBYTECODE =

test: $(VENV)/installed-dev
	$(PYTEST)

# For the moment after a change: less than half a minute.
quick: $(VENV)/installed-dev
	$(PYTEST) $(QUICK)

# Builds the site of docs/ into site/; a link, an anchor or a page of the menu that leads nowhere is an error.
docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Breaks everything on purpose, for about an hour and a quarter, and writes what held into docs/explanation/promises.md.
faults: $(VENV)/installed-dev
	$(BIN)/python -m tests.faults.run --long

# Wheel and sdist into dist/, checked, and the wheel used in a fresh environment.
dist:
	.ci/release

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mhsa-cli needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python pyproject.toml constraints.txt
	@$(INSTALLING)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/installed-dev: $(BIN)/python pyproject.toml constraints.txt
	@$(INSTALLING)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/installed-docs: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) build dist site *.egg-info
