# The targets that people and CI use. `reproduce` and `test` set everything up by themselves, once.
#
#   make reproduce PYTHON=python3.12                      another interpreter (3.11 or newer)
#   make reproduce TORCH_INDEX=https://download.pytorch.org/whl/cpu      the CPU build of torch
#   make test PIP_ARGS="--index-url https://mirror/simple"               anything else for pip

PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
PIP_ARGS ?=
REPLICATES ?= 1
ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --constraint constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) $(PIP_ARGS)
INPUTS := pyproject.toml constraints.txt

.PHONY: reproduce test test-slow check golden catalogue wheel-test constraints
.DELETE_ON_ERROR:

reproduce: $(VENV)/.run
	$(BIN)/bam-lab reproduce bam-attention-routing --replicates $(REPLICATES)

test: $(VENV)/.test
	$(BIN)/python -m pytest -m "not slow and not gpu" $(ARGS)

test-slow: $(VENV)/.slow
	$(BIN)/python -m pytest -m "slow or gpu" $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/bam-lab check

golden: $(VENV)/.test
	BAM_LAB_GOLDEN=write $(BIN)/python -m pytest tests/golden $(ARGS)

catalogue: $(VENV)/.run
	$(BIN)/python -m bam_lab.cli.catalogue

wheel-test: $(VENV)/.test
	$(BIN)/python -m pytest -m slow tests/test_wheel.py $(ARGS)

# Resolve anew what the core, the extras train, data, report and all groups need, and pin it.
constraints: $(VENV)/.dev
	$(PIP) install --dry-run --ignore-installed --quiet --report $(VENV)/report.json \
		$(PIP_ARGS) '.[train,data,report]' --group dev
	$(BIN)/python tests/pin.py $(VENV)/report.json > constraints.txt

# A stamp file stands for one finished installation; an interrupted one leaves none.
$(VENV)/.run: $(INPUTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "make: PYTHON must be Python 3.11 or newer, got " + sys.version.split()[0])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet 'pip>=25.1' $(PIP_ARGS)
	$(INSTALL) --editable '.[train,data,report]'
	@touch $@

$(VENV)/.test: $(VENV)/.run
	$(INSTALL) --group test
	@touch $@

$(VENV)/.slow: $(VENV)/.test
	$(INSTALL) --group slow
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	$(INSTALL) --group dev
	@touch $@
