# Two commands do everything: `make demo` shows it, `make test` proves it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Tests wait for processes and servers: three of them keep two cores busy.
PYTEST_WORKERS ?= 3
CODE   := src tests bench faults fairness fleet mutations checks
SEED ?= 1
SEEDS ?= 200
ROUNDS ?= 3
# The tests that the security guide names; slow ones have the marker `security`.
ATTACKS = tests/security tests/engine/bad_input tests/engine/secrets tests/test_keyring.py \
          $(sort $(shell grep -oE 'tests/[a-z_/]+\.py' docs/guide/security.md))
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
          --no-header --no-annotate --no-emit-index-url

.DEFAULT_GOAL := help
.PHONY: help demo test citus browser screenshots integration check security format lock clean bench bench-quick simulate mutations faults faults-quick fairness fairness-quick fleet

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.runtime  ## Sync this repository's history and a dozen demo connections, live
	@$(BIN)/syncline up --demo

test: $(VENV)/.dev  ## Run the whole suite against real Postgres
	@$(BIN)/pytest -n $(PYTEST_WORKERS) --dist worksteal $(PYTEST_ARGS)

security: $(VENV)/.dev  ## Run every security test, including the slow ones (under 5 minutes)
	@$(BIN)/pytest -n $(PYTEST_WORKERS) --dist worksteal -m 'not integration and not security' $(ATTACKS)
	@$(BIN)/pytest -n $(PYTEST_WORKERS) --dist worksteal -m security --durations=10 $(PYTEST_ARGS)

integration: $(VENV)/.dev  ## Run the connectors against real servers in build/integration
	@PYTHONPATH=tests $(BIN)/python -m integration.environments
	@$(BIN)/pytest -m integration tests/integration $(PYTEST_ARGS)

citus: $(VENV)/.dev  ## Test on a Citus cluster; needs a Postgres with the extension
	@TEST_DATABASE=citus $(BIN)/pytest -n $(PYTEST_WORKERS) --dist worksteal tests/scenarios tests/engine/worker \
	    tests/store --ignore tests/store/test_embedded.py --ignore tests/store/test_plans.py $(PYTEST_ARGS)

browser: $(VENV)/.dev  ## Test every page in a real Chromium, which must be installed
	@$(BIN)/python -c 'import playwright' 2>/dev/null || $(BIN)/python -m pip install --quiet 'playwright>=1.50'
	@$(BIN)/pytest tests/browser $(PYTEST_ARGS)

screenshots: $(VENV)/.dev  ## Retake the pictures in docs/images
	@$(BIN)/python -c 'import playwright' 2>/dev/null || $(BIN)/python -m pip install --quiet 'playwright>=1.50'
	@PYTHONPATH=tests $(BIN)/python -m browser.screenshots

check: $(VENV)/.dev  ## Check format, lint, types, imports and the project's rules
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m checks

format: $(VENV)/.dev  ## Format the code and fix what the linter can fix
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix $(CODE)

bench: $(VENV)/.dev  ## Benchmark against the peers (75 minutes); ONLY=drain,http runs a part
	@$(BIN)/python -m bench --rounds $(ROUNDS) $(if $(ONLY),--only $(ONLY)) $(BENCH_ARGS)

bench-quick: $(VENV)/.dev  ## Benchmark against pgqueuer only, with loose bounds (6 minutes)
	@$(BIN)/python -m bench --quick --rounds 2 $(if $(ONLY),--only $(ONLY)) $(BENCH_ARGS)

simulate: $(VENV)/.dev  ## Simulate many seeds (SEEDS=200), or repeat one (SEED=1234)
	@PYTHONPATH=tests $(BIN)/python -m simulation \
	    $(if $(filter file,$(origin SEED)),--seeds $(SEEDS),--seed $(SEED))

mutations: $(VENV)/.dev  ## Switch off each protection in a copy and see which test notices
	@$(BIN)/python -m mutations

faults: $(VENV)/.dev  ## Inject every kind of fault, 286 in all (under 20 minutes)
	@$(BIN)/python -m faults --seed $(SEED) --output build/faults

faults-quick: $(VENV)/.dev  ## Inject most kinds of fault once (under 4 minutes)
	@$(BIN)/python -m faults --quick --seed $(SEED) --output build/faults-quick

fairness: $(VENV)/.dev  ## Prove politeness and fairness with real processes (under 6 minutes)
	@$(BIN)/python -m fairness --seed $(SEED) --output build/fairness

fairness-quick: $(VENV)/.dev  ## The same in a short form (under 1 minute)
	@$(BIN)/python -m fairness --quick --seed $(SEED) --output build/fairness-quick

fleet: $(VENV)/.dev  ## Show 200,000 connections in trouble, and time every page (5 minutes)
	@$(BIN)/python -m fleet --output build/fleet

lock: $(VENV)/.dev  ## Resolve the dependencies again (hashes, no addresses)
	@$(BIN)/pip install --quiet uv
	@$(COMPILE) --extra build pyproject.toml -o requirements.lock
	@$(COMPILE) $(addprefix --extra ,build dev fast otel caldav imap) -c requirements.lock pyproject.toml -o requirements-dev.lock

clean:  ## Remove what these commands built (never your data)
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Syncline needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	    || { echo "Python's venv module is missing; on Debian: apt install python3-venv"; rm -rf $(VENV); exit 1; }

$(VENV)/.runtime: $(VENV)/bin/python requirements.lock pyproject.toml
	@echo "Installing into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python requirements-dev.lock pyproject.toml
	@echo "Installing into $(VENV), with the development tools …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.runtime
