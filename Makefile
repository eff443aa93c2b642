PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
# The build backend comes from the constraints too, so nothing is built in an unpinned environment.
INSTALL_SELF := $(INSTALL) --no-build-isolation --editable

.DEFAULT_GOAL := help
.PHONY: help setup browser demo check test test-slow bench clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## Make .venv with the pinned versions

# torch goes first, alone: no later package can then choose another build of it.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) torch
	$(INSTALL) hatchling editables
	$(INSTALL_SELF) '.[plot,gpu,dev]'
	@touch $@

$(VENV)/.ready-bench: $(VENV)/.ready
	$(INSTALL_SELF) '.[bench]'
	@touch $@

# The page of `errornorm report` is tested in a real browser. Without one these tests are skipped, and say so.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && timeout 300 sh -c \
	  'apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium' >/dev/null 2>&1; } || \
	  echo "no Chromium: the tests in a browser are skipped (apt-get install chromium)"

demo: setup ## Five methods on text full of copies, and a page about it
	$(BIN)/errornorm demo

check: setup ## Lint, formatting, types and import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

test: setup browser check ## The checks, then the fast tests
	$(BIN)/pytest

test-slow: setup browser ## The slow tests
	$(BIN)/pytest -m slow

bench: $(VENV)/.ready-bench ## Time and memory beside the peers
	$(BIN)/errornorm bench

clean: ## Remove .venv, caches and build output
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +
