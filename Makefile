# make demo   an array in several encodings, then an archive of files opened as one: ends with the numbers that matter
# make test   what continuous integration runs: lint, types, import layers, tests, doctests, README
# make torture   the long versions of the tests that kill, race and damage
# make soak   what is tried for hours: a million damaged inputs, histories with kills, failing disks; resumable, ends
#             with the table of docs/trust.md; make soak PARTS="damage disk" CASES=1000 for some of it
# make docs   the documentation site, into site/
# make vectors   the test vectors of the formats through every reader on this machine; who reads what, into docs/
# make bench   all benchmarks into docs/benchmarks.md; make bench CLAIMS="read_s3 nullable" for some of them
# make lint | types | layers | picture | browser
# All of them create .venv on first use and reuse it afterwards.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test tests torture soak lint types layers vectors javascript bench docs picture browser clean

# Tests start Python hundreds of times: it may keep what it has compiled.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS := $(VENV)/.docs-installed
APT := timeout 600 apt-get -y -q --no-install-recommends -o Acquire::Retries=1 -o Acquire::http::Timeout=20

help:
	@sed -n 's/^# make/make/p' Makefile

# The first interpreter that really runs and is new enough (a pyenv shim may exist and fail).
define find_python
for candidate in "$${PYTHON:-}" python3.14 python3.13 python3.12 python3 python; do \
  if [ -n "$$candidate" ] && command -v "$$candidate" >/dev/null 2>&1 \
    && "$$candidate" -c 'import sys; raise SystemExit(sys.version_info < (3, 12))' >/dev/null 2>&1; then \
    echo "$$candidate"; exit 0; \
  fi; \
done; \
echo "intarsia needs Python >= 3.12: install one, or name it: make PYTHON=/path/to/python3.12" >&2; exit 1
endef

# pip older than 25.1 knows no dependency groups, hence the upgrade; constraints.txt pins what CI tests.
$(STAMP): pyproject.toml constraints.txt
	@python=$$($(find_python)); \
	if command -v uv >/dev/null 2>&1; then \
	  [ -x $(BIN)/python ] || uv venv --python "$$python" $(VENV); \
	  VIRTUAL_ENV=$(VENV) uv pip install -e . --group dev -c constraints.txt; \
	else \
	  [ -x $(BIN)/python ] || "$$python" -m venv $(VENV); \
	  $(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'; \
	  $(BIN)/python -m pip install --quiet -e . --group dev -c constraints.txt; \
	fi
	@touch $@

demo: $(STAMP)
	@$(BIN)/intarsia demo --output demo-output
	@echo
	@$(BIN)/python examples/archives.py demo-output/archive

# Types are checked while the tests run: mypy keeps one core busy, and tests wait often.
test: lint layers
	@$(MAKE) --no-print-directory -j 2 types tests

# More processes than cores: many tests wait for processes and servers of their own. But each process takes ten
# seconds or more to collect all tests, and has servers of its own.
tests: $(STAMP) browser
	$(BIN)/python -m pytest -n 4

torture: $(STAMP)
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -n 2 -m torture -o faulthandler_timeout=3600

soak: $(STAMP)
	nice -n 15 $(BIN)/python -m soak $(PARTS) $(if $(CASES),--cases $(CASES))

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

# The packages of the reader in JavaScript; without npm, or its registry, it is left out.
javascript:
	@[ -d js/node_modules/zarrita ] || { command -v npm >/dev/null 2>&1 \
	  && npm install --silent --no-audit --no-fund --no-package-lock --fetch-retries=0 --prefix js; } \
	|| echo "no npm, or no network: the reader in JavaScript is skipped"

vectors: $(STAMP) javascript
	$(BIN)/python -m standard.vectors.run

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(CLAIMS)

# The site is built offline: the pages load nothing from elsewhere.
$(DOCS): $(STAMP)
	@if command -v uv >/dev/null 2>&1; then \
	  VIRTUAL_ENV=$(VENV) uv pip install --quiet --group docs -c constraints.txt; \
	else \
	  $(BIN)/python -m pip install --quiet --group docs -c constraints.txt; \
	fi
	@touch $@

docs: $(DOCS)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

# The picture of the README, drawn anew.
picture: $(STAMP)
	@$(BIN)/python examples/picture.py

# The tests of pages want a Chromium. Where we may install one, we do; where not, they are skipped and say so.
browser:
	@command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 \
	     && { $(APT) install chromium || { $(APT) update && $(APT) install chromium; }; } >/dev/null 2>&1; } \
	|| echo "no Chromium: the tests of pages in a browser will be skipped"

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache demo-output site test-artefacts soak-state js/node_modules
