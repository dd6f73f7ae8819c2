# On a fresh machine with Python, git and make, `make demo` and `make test` need nothing else (and
# bubblewrap and, for the tests, busybox, tmux and Chromium, which a root shell with apt installs by itself).
PYTHON ?= python3
ARGS ?=
SOAK_MINUTES ?= 10

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help isolation browser setup demo test quick check format bench scaling chaos soak fuzz-soak cluster-soak docker-chaos hosted-chaos docs compose-test clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

# Dependency groups need pip 25.1. Whatever configures pip here (PIP_INDEX_URL, pip.conf) counts.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Sandstream needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Setting up $(VENV), once; it takes about a minute ..." >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install -qq --editable '.[uvloop,nkeys]' --group dev
	@touch $@

# Local sandboxes are isolated by bubblewrap; busybox is for tests of boxes without Python, tmux for
# tests of the terminal UI. A root shell with apt (a CI machine) gets them here.
isolation:
	@{ command -v bwrap && command -v busybox && command -v tmux; } >/dev/null 2>&1 || [ "$$(uname)" != Linux ] || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing bubblewrap, for isolated sandboxes, busybox and tmux ..." >&2; \
	    apt-get -qq update >/dev/null && \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends bubblewrap busybox tmux >/dev/null; \
	  else echo "note: without bubblewrap there are no isolated sandboxes, and their tests fail;" \
	    "so do some without busybox or tmux; install them with your package manager" >&2; fi; }

# The page of a run is tested in a real browser. A root shell with apt gets it here.
browser:
	@command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || \
	command -v google-chrome >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing Chromium, for the tests of pages ..." >&2; \
	    apt-get -qq update >/dev/null && \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium >/dev/null; \
	  else false; fi; } || \
	echo "note: there is no Chromium, and the tests of pages will fail;" \
	  "install it with your package manager" >&2

setup: $(STAMP) isolation browser ## Create the environment in .venv (the other targets do it on demand)

demo: $(STAMP) isolation ## Watch agents work on the bus, and survive a kill -9: 20 seconds, no keys
	@$(BIN)/python examples/demo.py $(ARGS)

test: $(STAMP) isolation browser ## Run all tests, side by side; ARGS="-k name" for some
	@if [ -n "$(ARGS)" ]; then $(BIN)/python -m pytest -q $(ARGS); \
	else $(BIN)/python tests/lanes.py $(if $(JUNIT),--junit $(JUNIT)); fi

quick: $(STAMP) ## Run the tests that need no server and no process, within 30 s; ARGS="-k name"
	@$(BIN)/python tests/quick.py -- $(ARGS)

check: $(STAMP) isolation browser ## Format, lint, types (mypy strict, pyright), tests
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/pyright --level error
	@$(MAKE) --no-print-directory test

format: $(STAMP) ## Format the code and apply the safe fixes of the linter
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --fix --quiet .

bench: $(STAMP) isolation ## Measure, against the in-process SDK; ARGS="--quick" for a first look
	@$(BIN)/python benchmarks/run.py $(ARGS)

scaling: $(STAMP) isolation ## Measure how cost grows with size; ARGS="--quick" for a first look
	@$(BIN)/python benchmarks/scaling.py $(ARGS)

chaos: $(STAMP) isolation ## kill -9 of actors and servers while runs are going
	@$(BIN)/python -m pytest -q tests/chaos $(ARGS)

soak: $(STAMP) isolation ## Storm after storm of kills, for SOAK_MINUTES (10)
	@PYTHONPATH=tests $(BIN)/python -m chaos.soak --minutes $(SOAK_MINUTES) $(ARGS)

fuzz-soak: $(STAMP) isolation ## 100,000 hostile messages while honest runs go on; ARGS="--seed N"
	@PYTHONPATH=tests $(BIN)/python -m fuzz.soak $(ARGS)

cluster-soak: $(STAMP) isolation ## Random faults of a three-node cluster, for SOAK_MINUTES (10)
	@PYTHONPATH=tests $(BIN)/python -m cluster.soak --minutes $(SOAK_MINUTES) $(ARGS)

docker-chaos: $(STAMP) isolation ## kill -9 of actors, containers and Docker engines; ten minutes
	@$(BIN)/python -m pytest -q tests/chaos/docker $(ARGS)

hosted-chaos: $(STAMP) isolation ## kill -9 of actors with boxes at Daytona and E2B; ten minutes
	@$(BIN)/python -m pytest -q tests/chaos/hosted $(ARGS)

docs: $(STAMP) ## Generate the pages in docs/ that are made from the code
	@for generator in docs/generate*.py; do $(BIN)/python "$$generator" || exit 1; done

compose-test: $(STAMP) isolation browser ## Try compose.yaml for real; needs a Docker engine
	@PATH="$(CURDIR)/$(BIN):$$PATH" tests/compose/try.sh $(ARGS)

clean: ## Remove the environment, caches and build results
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache tests/output
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
