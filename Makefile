# `make demo` and `make test` each do all set-up by themselves; nothing but Python 3.11+ and make is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-all check bench docs site site-serve browser coverage release clean help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*##/\t/'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "alchemy needs Python 3.11 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# torch first and alone: with it in place, no other package pulls in another build
$(VENV)/.torch: constraints.txt | $(BIN)/python
	$(BIN)/pip install -q torch
	@touch $@

$(VENV)/.demo: pyproject.toml $(VENV)/.torch
	$(BIN)/pip install -q -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.torch
	$(BIN)/pip install -q -e '.[dev]'
	@touch $@

$(VENV)/.ray: pyproject.toml $(VENV)/.dev
	$(BIN)/pip install -q -e '.[ray]'
	@touch $@

# without alchemy itself, whose dependencies include torch: the site is made from source
SITE = $(shell $(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["site"])')
$(VENV)/.site: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install -q $(foreach package,$(SITE),'$(package)')
	@touch $@

$(VENV)/.browser: pyproject.toml $(VENV)/.dev $(VENV)/.site
	$(BIN)/pip install -q -e '.[browser]'
	@command -v chromium || command -v chromium-browser || command -v google-chrome || $(BIN)/playwright install chromium
	@touch $@

demo: $(VENV)/.demo  ## train and test a sentiment classifier on real reviews, in about two minutes
	$(BIN)/python examples/reviews/demo.py

check: $(VENV)/.dev  ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check  ## all checks and the fast tests
	OMP_NUM_THREADS=1 $(BIN)/pytest

test-all: check $(VENV)/.ray  ## the slow tests too, also those on a Ray cluster, with coverage: report in build/coverage
	@rm -rf build/coverage
	OMP_NUM_THREADS=1 $(BIN)/coverage run -m pytest -m ''; code=$$?; $(MAKE) --no-print-directory coverage; exit $$code

coverage:
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage xml --quiet
	@$(BIN)/coverage html --quiet
	@$(BIN)/coverage report > build/coverage/report.txt
	@echo "the 20 files with the lowest coverage; all of them: build/coverage/html/index.html"
	@head -n 22 build/coverage/report.txt
	@grep '^TOTAL' build/coverage/report.txt

release: $(VENV)/.dev  ## check, build and tag a release: make release VERSION=1.0.0 [DRY=1]
	$(BIN)/python tools/release.py $(VERSION) $(if $(DRY),--dry-run)

bench: $(VENV)/.dev  ## measure start-up and the loop, side by side with plain PyTorch
	OMP_NUM_THREADS=1 $(BIN)/python -m bench

docs: $(VENV)/.dev  ## run every command and config of the documentation
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/docs

site: $(VENV)/.site  ## build the documentation site into site/; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

site-serve: $(VENV)/.site  ## serve the documentation site, and rebuild it when a page changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

browser: $(VENV)/.browser  ## the tests that open the site in a browser
	$(BIN)/pytest -n 0 -m browser tests/site

clean:  ## remove what was built
	rm -rf $(VENV) build site *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
