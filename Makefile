# Every target sets up its own environment first; nothing else needs to be installed by hand.
#   PYTHON=python3.12     the interpreter to build with (default: the first of python3, python3.13, ... that is new enough)
#   VENV=folder           where the environment lives (default: .venv)
#   PYTEST_ARGS="-k kd"   passed on to pytest
# pip's own settings apply as usual; PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS choose another build of torch.

VENV ?= .venv
PYTEST_ARGS ?=
QUICKSTART_ARGS ?=
MUTANTS_ARGS ?=
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed-for-limbeck
DOCS_STAMP = $(VENV)/.installed-for-its-docs
INTEGRATION_STAMP = $(VENV)/.installed-for-its-integration
export PYTHON VENV

.DEFAULT_GOAL := help
.PHONY: help install quickstart test integration processors net docs mutants check lint types format clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

install: $(STAMP) ## build the environment (the other targets do it when needed)

$(STAMP): pyproject.toml scripts/install
	@sh scripts/install "$(STAMP)"

quickstart: $(STAMP) ## train a teacher, distil students, show the table: a few minutes
	@"$(BIN)/limbeck" quickstart $(QUICKSTART_ARGS)

# Tests run side by side, so each keeps to one thread; nothing in them needs the network. Bytecode is kept
# even where the environment says otherwise: to rewrite all asserts anew takes a twentieth of the time.
test: $(STAMP) ## run the test suite
	@PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$(BIN)/python" -m pytest -n auto --maxprocesses 8 --dist worksteal $(PYTEST_ARGS)

# None of them may be left out for want of a package: -rs names those that are.
integration: $(INTEGRATION_STAMP) ## label against real servers, clusters and buckets, and kill it: some minutes more
	@OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$(BIN)/python" -m pytest -m integration -rs $(PYTEST_ARGS)

$(INTEGRATION_STAMP): $(STAMP)
	@"$(BIN)/python" -m pip install --quiet --editable '.[integration]'
	@touch "$(INTEGRATION_STAMP)"

# The default suite runs as this processor computes; these run its numeric tests as others would.
processors: $(STAMP) ## run the numeric tests with other instruction sets, threads and rounding
	@PYTHON="$(BIN)/python" scripts/processors $(PYTEST_ARGS)

# Six minutes of one core; test takes a sample of it.
net: $(STAMP) ## hold every recipe, command and error text against tests/net/reference.json
	@HF_HUB_OFFLINE=1 "$(BIN)/python" -m pytest tests/net -m "slow or not slow" $(PYTEST_ARGS)

# Without --quiet, which would hide warnings from --strict.
docs: $(DOCS_STAMP) ## build the searchable documentation into site/, links checked
	@NO_MKDOCS_2_WARNING=1 "$(BIN)/mkdocs" build --strict
	@echo "Built. Open site/index.html in a browser."

$(DOCS_STAMP): $(STAMP)
	@"$(BIN)/python" -m pip install --quiet --editable '.[docs]'
	@touch "$(DOCS_STAMP)"

# About a minute a mutant and core; MUTANTS_ARGS="--sample 30 --only functional" takes fewer.
mutants: $(STAMP) ## change the core in small ways, and see whether the tests notice
	@"$(BIN)/python" -m pip install --quiet --editable '.[mutants]'
	@"$(BIN)/python" scripts/mutants.py $(MUTANTS_ARGS)

check: lint types test processors ## everything that must be green: format, lint, types, tests

lint: $(STAMP)
	@"$(BIN)/ruff" format --check --quiet . || { echo "some files are not formatted: run 'make format'" >&2; exit 1; }
	@"$(BIN)/ruff" check .

types: $(STAMP)
	@"$(BIN)/mypy"

format: $(STAMP) ## put the code into its standard form
	@"$(BIN)/ruff" format .
	@"$(BIN)/ruff" check --fix .

clean: ## remove the environment and the tools' caches
	rm -rf "$(VENV)" site .pytest_cache .mypy_cache .ruff_cache
