# make demo   sets up .venv, judges the example pair with the bundled judge, and says what to do next
# make test   sets up .venv and runs the tests, but for those of train/
# make nightly  runs the tests that are marked nightly: long ones, and those that depend on timing
# make campaign  attacks the tool at random with bad input for MINUTES, with SEED or a random one, which it prints
# make wheel  builds the wheel in dist/, and uses it alone in an empty environment
# make docs   builds the documentation in build/docs/site; a link that leads nowhere ends it
# make check  format, lint, types, words, wheel, demo, documentation, tests
# make parity sets up .venv/parity, with torch, and holds the golden files to the reference
# make train  adds what training needs to .venv/parity and runs the tests of train/; CI runs all three (.ci/run)
# make llama-server  builds llama.cpp's own server once and runs its tests; make vllm runs vLLM's own request path
# make vocabulary  tokenises texts of many scripts with Qwen's published vocabulary, as tokenizers does
# make gpu    builds the engine for Vulkan in .venv/gpu and runs the tests marked gpu; without a GPU on Mesa's software device
# make floors sets up .venv/floors with the lowest versions that pyproject.toml allows, and runs all of these tests
PYTHON ?= python3
VENV ?= .venv
# What the golden files were made with. The public index has torch for Linux with CUDA, some gigabytes; the small build:
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu. TORCH=torch takes the newest.
TORCH ?= torch==2.13.0
REFERENCES ?= transformers==4.57.6 transformers==5.23.0
ifeq ($(OS),Windows_NT)
SCRIPTS := Scripts
else
SCRIPTS := bin
endif
BIN := $(VENV)/$(SCRIPTS)
RUN := $(BIN)/python -m
PARITY := $(VENV)/parity
PARITY_RUN := $(PARITY)/$(SCRIPTS)/python -m
FLOORS := $(VENV)/floors
FLOORS_RUN := $(FLOORS)/$(SCRIPTS)/python -m

# vLLM's Python files without its engine; what else its request path imports is in a list of its own.
VLLM ?= vllm==0.33.0
VLLM_ENV := $(VENV)/vllm
VLLM_RUN := $(VLLM_ENV)/$(SCRIPTS)/python -m
VLLM_FILES := tests/backends/vllm_environment
LLAMA_SERVER := $(VENV)/llama-server
VOCABULARY := $(VENV)/vocabulary

.PHONY: demo test nightly campaign lint wheel docs parity train floors check clean llama-server vllm vocabulary gpu
.NOTPARALLEL:

# What the larger judges take here is added up first: on a terminal compare says which one fits.
demo: $(VENV)/run.stamp
	@$(RUN) vrt_lite.show.better_judge > $(VENV)/better_judge.txt
	@$(RUN) vrt_lite compare examples/star.mp4 examples/circle.mp4 --prompt "A blue star moves up." --again
	@echo
	@echo "Next:"
	@echo "  source $(BIN)/activate    so that vrt-lite is found; it is $(abspath $(BIN))/vrt-lite"
	@echo "  vrt-lite serve --open         the same in the browser"
	@[ -t 1 ] || cat $(VENV)/better_judge.txt

# One worker process more than there are processors, at most 8: many tests wait for a server or for a process that ends.
# A file's tests run in one worker. Files run in the order of tests/conftest.py: by default those with few tests are last,
# which are long.
# Many processes are started. Where compiled files may not be kept, each would compile all that it imports.
WORKERS = $(shell $(PYTHON) -c "import os; print(min((os.cpu_count() or 1) + 1, 8))")
test: export OMP_NUM_THREADS := 1
test: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/test.stamp
	$(RUN) pytest --ignore tests/train --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

nightly: $(VENV)/test.stamp
	$(RUN) pytest -m nightly

MINUTES ?= 2
campaign: $(VENV)/test.stamp
	$(BIN)/python tests/campaign/run_campaign.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

lint: $(VENV)/lint.stamp
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) pyright --pythonpath $(BIN)/python
	$(BIN)/python docs/count_words.py
	$(BIN)/python tests/check_layout.py

wheel: $(VENV)/lint.stamp
	$(RUN) tests.check_wheel

docs: $(VENV)/docs.stamp
	$(BIN)/python docs/make_site.py

check: lint wheel demo docs test

# One reference after the other in one environment: torch is what is large. More threads than one contend.
parity: export OMP_NUM_THREADS := 1
parity: $(PARITY)/parity.stamp $(REFERENCES)

.PHONY: $(REFERENCES)
$(REFERENCES): $(PARITY)/parity.stamp
	@echo "The golden files beside $@"
	@$(PARITY_RUN) pip install --quiet --disable-pip-version-check --retries 2 "$@"
	$(PARITY_RUN) pytest tests/parity

train: export OMP_NUM_THREADS := 1
train: $(PARITY)/parity.stamp
	@$(PARITY_RUN) pip install --quiet --disable-pip-version-check --retries 2 --editable ".[test,train]" "$(TORCH)"
	$(PARITY_RUN) pytest tests/train

# From the engine's source distribution, 10 to 20 minutes on two cores, once.
llama-server: export VRT_LITE_LLAMA_SERVER := $(abspath $(LLAMA_SERVER))/build/bin/llama-server
llama-server: export PATH := $(abspath $(BIN)):$(PATH)
llama-server: $(VENV)/test.stamp
	@$(RUN) pip install --quiet --disable-pip-version-check cmake ninja
	$(BIN)/python tests/build_llama_server.py $(LLAMA_SERVER)
	$(RUN) pytest tests/backends/test_http_real.py -k llama-server

# The vocabulary lies in Qwen's own package. Another tokenizers may have the tables of another Unicode version.
vocabulary: export VRT_LITE_VOCABULARY := $(abspath $(VOCABULARY))/qwen_agent/utils/qwen.tiktoken
vocabulary: $(VENV)/test.stamp
	@$(RUN) pip install --quiet --disable-pip-version-check tokenizers==0.23.3
	@$(RUN) pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(VOCABULARY) qwen-agent==0.0.34
	$(RUN) pytest tests/convert/test_real_vocabulary.py

# The engine takes 12 minutes of a processor, once; the tests take 14 on a software device that compiles all shaders.
gpu: export OMP_NUM_THREADS := 1
gpu:
	$(PYTHON) tests/run_on_gpu.py $(VENV)/gpu

# vLLM warns of much; those are not ours to fail on.
vllm: export OMP_NUM_THREADS := 1
vllm: export PYTHONPATH := $(abspath $(VLLM_FILES))
vllm: $(VLLM_ENV)/vllm.stamp
	$(VLLM_RUN) pytest -W default tests/backends/test_vllm_request.py

$(VLLM_ENV)/vllm.stamp: $(VLLM_FILES)/requirements.txt
	@echo "Setting up $(VLLM_ENV): $(TORCH), and the files of $(VLLM) without its dependencies."
	@$(PYTHON) -m venv $(VLLM_ENV)
	@$(VLLM_RUN) pip install --quiet --disable-pip-version-check --retries 2 "$(TORCH)"
	@$(VLLM_RUN) pip install --quiet --disable-pip-version-check --retries 2 -r $(VLLM_FILES)/requirements.txt
	@$(VLLM_RUN) pip install --quiet --disable-pip-version-check --retries 2 --no-deps torchvision "$(VLLM)"
	@$(VLLM_RUN) pip install --quiet --disable-pip-version-check --no-deps --editable .
	@$(VLLM_ENV)/$(SCRIPTS)/python -c "open('$@', 'w').close()"

# uv finds the lowest versions, pip installs them: it has the engine built already. The reference's transformers and
# then training's. What old releases warn of is not ours to mend.
floors: export OMP_NUM_THREADS := 1
floors:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info[:2] != (3, 11) and 'make floors: the lowest Python is 3.11; this is ' + sys.version + '. Set PYTHON=...')"
	@echo "Setting up $(FLOORS): $(TORCH), and the lowest of all else."
	@$(PYTHON) -m venv --clear $(FLOORS)
	@$(FLOORS_RUN) pip install --quiet --disable-pip-version-check --retries 2 uv "$(TORCH)"
	@$(call at_floors,parity)
	$(FLOORS_RUN) pytest -W default --ignore tests/train
	@$(call at_floors,train)
	$(FLOORS_RUN) pytest -W default tests/train

at_floors = $(FLOORS_RUN) uv pip compile --quiet --resolution lowest-direct --extra test --extra $(1) --output-file $(FLOORS)/$(1).txt pyproject.toml \
	&& $(FLOORS_RUN) pip install --quiet --disable-pip-version-check --retries 2 --constraint $(FLOORS)/$(1).txt --editable ".[test,$(1)]"

# The engine comes as source and is built once, in 3 to 5 minutes on two cores; pip keeps the result.
$(VENV)/run.stamp: pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'vrt-lite needs Python 3.11 or newer; this is ' + sys.version + '. Set PYTHON=...')"
	@echo "Setting up $(VENV); the first time the engine is built from source, 3 to 5 minutes on two cores."
	@$(PYTHON) -m venv $(VENV)
	@$(RUN) pip install --quiet --disable-pip-version-check --editable ".[web]"
	@$(BIN)/python -c "open('$@', 'w').close()"

$(VENV)/test.stamp: $(VENV)/run.stamp
	@$(RUN) pip install --quiet --disable-pip-version-check --editable ".[test]"
	@$(BIN)/python -c "open('$@', 'w').close()"

$(VENV)/lint.stamp: $(VENV)/test.stamp
	@$(RUN) pip install --quiet --disable-pip-version-check --editable ".[lint]"
	@$(BIN)/python -c "open('$@', 'w').close()"

$(VENV)/docs.stamp: $(VENV)/run.stamp
	@$(RUN) pip install --quiet --disable-pip-version-check --editable ".[docs]"
	@$(BIN)/python -c "open('$@', 'w').close()"

# Apart from .venv, so that the tests run without torch. A torch that cannot be had ends it here, in a line.
$(PARITY)/parity.stamp: pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'vrt-lite needs Python 3.11 or newer; this is ' + sys.version + '. Set PYTHON=...')"
	@echo "Setting up $(PARITY): $(TORCH), and the engine as above."
	@$(PYTHON) -m venv $(PARITY)
	@$(PARITY_RUN) pip install --quiet --disable-pip-version-check --retries 2 "$(TORCH)" || $(PYTHON) -c "import sys; sys.exit('make parity: $(TORCH) cannot be installed, see above. Set TORCH=... to one that can.')"
	@$(PARITY_RUN) pip install --quiet --disable-pip-version-check --retries 2 --editable ".[test,parity]" $(firstword $(REFERENCES))
	@$(PARITY)/$(SCRIPTS)/python -c "open('$@', 'w').close()"

clean:
	$(PYTHON) -c "import shutil; shutil.rmtree('$(VENV)', ignore_errors=True)"
