PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := -m pip install --quiet --disable-pip-version-check
LOCKED := $(PIP) --require-hashes --no-deps --requirement

.DEFAULT_GOAL := help
.PHONY: help setup browser demo check test test-slow bench site lock wheel oldest newest clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z -]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## Make .venv with the locked versions

# Everything by its hash, without asking what it needs: the lock is complete. Setuptools comes first, because what is not
# a wheel is built with it. Then torch, whose builds differ by platform and so have no hash here; it brings what only its
# build needs.
$(VENV)/.ready: pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -m venv $(VENV)
	sed -n '/^setuptools==/,/[^\\]$$/p' requirements.lock > $(VENV)/setuptools.txt
	$(BIN)/python $(LOCKED) $(VENV)/setuptools.txt
	$(BIN)/python $(LOCKED) requirements.lock --no-build-isolation
	$(BIN)/python $(PIP) --constraint constraints.txt torch
	$(BIN)/python $(PIP) --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip --disable-pip-version-check check
	@touch $@

# The page of `errornorm report` is tested in a real browser. Without one these tests are skipped, and say so.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && timeout 300 sh -c \
	  'apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium' >/dev/null 2>&1; } || \
	  echo "no Chromium: the tests in a browser are skipped (apt-get install chromium)"

demo: setup ## Six methods on text full of copies, and a page about it
	$(BIN)/errornorm demo

check: setup ## Lint, formatting, types and import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

test: setup browser check ## The checks, then the fast tests
	$(BIN)/pytest --numprocesses auto --dist loadfile

test-slow: setup browser ## The slow tests; RECORD=1 writes their counts for docs/reliability.md
	$(BIN)/pytest -m 'slow or recorded' $(if $(RECORD),--record)
	$(if $(RECORD),$(BIN)/python -m errornorm.cards)

bench: setup ## Time and memory beside the peers
	$(BIN)/errornorm bench

# Without the variable mkdocs-material speaks of its successor each time.
site: setup ## The documentation, to read in a browser: build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lock: setup ## Write requirements.lock anew; UPGRADE=1 takes newer versions
	$(BIN)/uv pip compile --quiet pyproject.toml --extra plot --extra gpu --extra dev --extra bench \
	  --constraint constraints.txt --no-emit-package torch --universal --python-version 3.11 --generate-hashes \
	  --no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
	  $(if $(UPGRADE),--upgrade) --output-file requirements.lock

wheel: setup ## Build the wheel, and use it in an environment of its own
	rm -rf build/wheel dist
	$(BIN)/python -m hatchling build --target wheel
	$(PYTHON) -m venv build/wheel
	sed -n 's/^\([A-Za-z0-9._-]*==[^ ;]*\).*/\1/p' requirements.lock constraints.txt > build/versions.txt
	build/wheel/bin/python $(PIP) --constraint build/versions.txt "$$(echo dist/*.whl)[train]"
	build/wheel/bin/python scripts/try_wheel.py dist/*.whl

# The oldest versions that pyproject.toml allows, or the newest that there are, of what the library itself imports.
# TORCH=torch==2.13.0 where there is no build of the oldest torch without CUDA. Warnings are not errors here: they are
# about each other.
VERSIONS_TESTS ?= tests/test_loss.py tests/data tests/evaluation tests/training/test_run.py \
  tests/training/test_corpora.py tests/integrations/test_trainer.py tests/scoring/test_run.py tests/security
oldest: RESOLUTION := lowest-direct
oldest: TORCH ?= torch==2.7.0
newest: RESOLUTION := highest
newest: TORCH ?= --constraint constraints.txt torch
oldest newest: setup ## Test with the oldest, or the newest, versions that are allowed
	rm -rf build/$@
	$(PYTHON) -m venv build/$@
	mkdir -p build && printf '%s\n' 'pytest>=8.3' 'pytest-timeout>=2.3' 'hypothesis>=6.100' > build/$@.in
	$(BIN)/uv pip compile --quiet pyproject.toml build/$@.in --extra train --extra trl --extra lightning \
	  --resolution $(RESOLUTION) --no-emit-package torch --no-annotate --output-file build/$@.txt
	build/$@/bin/python $(PIP) $(TORCH)
	$(BIN)/uv pip install --quiet --python build/$@/bin/python --no-deps --requirement build/$@.txt
	build/$@/bin/python $(PIP) --no-deps --editable .
	build/$@/bin/python -m pytest --quiet -W default $(if $(RECORD),--as-one $@ --record) $(VERSIONS_TESTS)

clean: ## Remove .venv, caches and build output
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +
