# make demo   sets up .venv and judges the example pair with the bundled judge
# make test   sets up .venv and runs the tests
# make check  what CI runs: format, lint, types, wheel, demo, tests
PYTHON ?= python3
VENV ?= .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
RUN := $(BIN)/python -m

.PHONY: demo test lint wheel golden check clean

demo: $(VENV)/run.stamp
	@$(RUN) vrt_lite compare examples/a.mp4 examples/b.mp4 --prompt "A red square moving right."

test: $(VENV)/test.stamp
	$(RUN) pytest

lint: $(VENV)/lint.stamp
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) pyright --pythonpath $(BIN)/python

wheel: $(VENV)/lint.stamp
	$(RUN) tests.check_wheel

check: lint wheel demo test

# The engine comes as source and is built once, in 3 to 5 minutes on two cores; pip keeps the result.
$(VENV)/run.stamp: pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'vrt-lite needs Python 3.11 or newer; this is ' + sys.version + '. Set PYTHON=...')"
	@echo "Setting up $(VENV); the first time the engine is built from source, 3 to 5 minutes on two cores."
	@$(PYTHON) -m venv $(VENV)
	@$(RUN) pip install --quiet --disable-pip-version-check --editable .
	@$(BIN)/python -c "open('$@', 'w').close()"

$(VENV)/test.stamp: $(VENV)/run.stamp
	@$(RUN) pip install --quiet --disable-pip-version-check --editable ".[test]"
	@$(BIN)/python -c "open('$@', 'w').close()"

$(VENV)/lint.stamp: $(VENV)/test.stamp
	@$(RUN) pip install --quiet --disable-pip-version-check --editable ".[lint]"
	@$(BIN)/python -c "open('$@', 'w').close()"

clean:
	$(PYTHON) -c "import shutil; shutil.rmtree('$(VENV)', ignore_errors=True)"
