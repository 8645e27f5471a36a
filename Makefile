# The whole developer interface. Every target sets up what it needs.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL   := /bin/bash
PYTHON  ?= python3
BIN     := .venv/bin
READY   := .venv/.ready
# Half as many again as processors: tests wait for processes, brokers and clocks most of their time.
WORKERS ?= $(shell echo $$(( ($$(nproc) * 3 + 1) / 2 )))

.PHONY: help setup demo test check docs bench prove release another-python

# A caller that names an interpreter of another version than that of .venv gets .venv made anew.
VERSION := import sys; print(*sys.version_info[:2])
ifneq ($(origin PYTHON),file)
ifneq ($(wildcard $(BIN)/python),)
ifneq ($(shell $(PYTHON) -c '$(VERSION)'),$(shell $(BIN)/python -c '$(VERSION)'))
$(READY): another-python
STALE := .venv
endif
endif
endif

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Tenuto needs Python 3.11 or newer, and '$(PYTHON)' is not; try: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(if $(STALE),rm -rf $(STALE))
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { \
	  echo "Could not create .venv; on Debian and Ubuntu, install the python3-venv package." >&2; \
	  rm -rf .venv; exit 1; }
	@echo "Installing Tenuto and its development tools into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(READY) ## a small sweep, run for real; again, and everything is reused
	@$(BIN)/tenuto demo --dir .demo

test: $(READY) ## every test, slow ones included
	$(BIN)/python -m pytest -n $(WORKERS)

check: $(READY) ## before each commit: format, lint, types, fast tests (under two minutes; programs are driven in `test`)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	HYPOTHESIS_PROFILE=check $(BIN)/python -m pytest -n $$(nproc) --dist loadfile -q -m 'not slow'

docs: $(READY) ## the site, in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

bench: $(READY) ## measure against the targets and peers; QUICK=1 for small sizes, ARGS='--only W7 --no-peers'
	$(BIN)/python -m bench $(if $(QUICK),--quick) $(ARGS)

prove: $(READY) ## try to break what is promised (ARGS='--only models,nth --seeds 1000'), then far more random examples
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[prove]' || \
	  echo "atheris, jax, pyarrow or xgboost cannot be installed here: without atheris our own engine fuzzes" >&2
	$(BIN)/python -m proof $(ARGS)
	HYPOTHESIS_PROFILE=prove $(BIN)/python -m pytest -n $(WORKERS) -m 'hypothesis or prove'

release: $(READY) ## check everything that a release needs, build it, and say what is left to do: VERSION=0.1.0
	$(BIN)/python deploy/release.py "$(VERSION)"
