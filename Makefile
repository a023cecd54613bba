# make demo   an archive whose encoding changed, opened as one dataset, and a detector: ends with the numbers that matter
# make test   what continuous integration runs: lint, types, import layers, tests, doctests, README
# make test-min    the tests with the lowest versions that pyproject.toml allows, in .venv-min
# make test-next   the tests with the newest versions, also pre-releases, in .venv-next; for some of them, as for
#                  test-min: make test-next TESTS=tests/codecs
# make torture   the long versions of the tests that kill, race and damage
# make soak   what is tried for hours: a million damaged inputs, histories with kills, failing disks; resumable, ends
#             with the table of docs/trust.md; make soak PARTS="damage disk" CASES=1000 for some of it; SEED=2 tries other cases
# make peers   tests that zarr and xarray wrote for themselves, on our arrays; the counts go into docs/trust.md
# make docs   the documentation site, into site/; SITE_URL=https://… says where it will be
# make vectors   the test vectors of the formats through every reader on this machine; who reads what, into docs/
# make bench   all benchmarks into docs/benchmarks.md; make bench CLAIMS="read_s3 nullable" for some of them
# make lint | types | layers | picture | browser
# make owner OWNER=name   the account of the repository in all files, which is a placeholder until there is one
# All of them create .venv on first use and reuse it afterwards. make demo and make docs install little into it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test tests test-min test-next torture soak peers lint types layers vectors javascript bench docs picture \
  browser owner clean

# Tests start Python hundreds of times: it may keep what it has compiled.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.demo-installed
DOCS := $(VENV)/.docs-installed
MIN := .venv-min
NEXT := .venv-next
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

# One line that changes while pip works, on a terminal only; errors pass by on their own.
progress = awk -v live=$$(test -t 2 && echo 1 || echo 0) '/^ *(Collecting|Downloading|Installing)/ { \
  if (live) { printf "\r\033[K  %d: %s %s", ++n, $$1, substr($$2, 1, 50) > "/dev/stderr"; fflush() } } \
  END { if (live) printf "\r\033[K" > "/dev/stderr" }'

# $(call install,FOLDER,ARGUMENTS): packages into a virtual environment, which is created if it is not there.
# pip older than 25.1 knows no dependency groups, hence the upgrade.
define install
python=$$($(find_python)); \
if command -v uv >/dev/null 2>&1; then \
  [ -x $(1)/bin/python ] || uv venv --quiet --python "$$python" $(1); \
  VIRTUAL_ENV=$(1) uv pip install $(2); \
else \
  [ -x $(1)/bin/python ] || "$$python" -m venv $(1); \
  $(1)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'; \
  $(1)/bin/python -m pip install --progress-bar off $(2) | $(progress); \
fi
endef

# Two stamps for one environment: the demo needs a third of what the tests need. constraints.txt pins what CI tests.
$(DEMO): pyproject.toml constraints.txt
	@echo "Installing intarsia and what the demo needs into $(VENV), once: about 600 MB, half a minute …"
	@$(call install,$(VENV),-e . --group demo -c constraints.txt)
	@touch $@

$(STAMP): pyproject.toml constraints.txt
	@echo "Installing intarsia, its extras and what the tests need into $(VENV), once: about 2 GB, some minutes …"
	@$(call install,$(VENV),-e . --group dev -c constraints.txt)
	@touch $(DEMO) $@

demo: $(DEMO)
	@$(BIN)/intarsia demo --output demo-output

# Types are checked while the tests run: mypy keeps one core busy, and tests wait often.
test: lint layers
	@$(MAKE) --no-print-directory -j 2 types tests

# More processes than cores: many tests wait for processes and servers of their own. But each process takes ten
# seconds or more to collect all tests, and has servers of its own.
tests: $(STAMP) browser
	$(BIN)/python -m pytest -n 4

$(MIN)/.installed: pyproject.toml tools/floors.py
	@echo "Installing the lowest versions of everything into $(MIN): about 2 GB, some minutes …"
	@python=$$($(find_python)); "$$python" tools/floors.py > $(MIN).txt
	@$(call install,$(MIN),-e . --group dev -c $(MIN).txt)
	@touch $@

test-min: $(MIN)/.installed
	$(MIN)/bin/python -m pytest -n 4 $(TESTS)

# Installed again each time: what is new today was not there yesterday.
test-next:
	@echo "Installing the newest versions of everything, also pre-releases, into $(NEXT) …"
	@$(call install,$(NEXT),--pre --upgrade -e . --group dev)
	$(NEXT)/bin/python -m pytest -n 4 $(TESTS)

# Some tests take minutes: a process that has nothing left takes over what waits behind one of them.
torture: $(STAMP)
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -n 2 --dist worksteal -m torture -o faulthandler_timeout=3600

# Tests of zarr and xarray, through our arrays; the sources of zarr's come from the package index.
peers: $(STAMP)
	$(BIN)/python -m peers --write

soak: $(STAMP)
	nice -n 15 $(BIN)/python -m soak $(PARTS) $(if $(CASES),--cases $(CASES)) $(if $(SEED),--seed $(SEED))

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/towncrier build --draft --version next >/dev/null

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
$(DOCS): $(DEMO)
	@echo "Installing the tools for the site into $(VENV) …"
	@$(call install,$(VENV),--group docs -c constraints.txt)
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

owner:
	@[ -n "$(OWNER)" ] || { echo "name the account: make owner OWNER=name" >&2; exit 2; }
	git grep -lz intarsia-dev -- ':!Makefile' | xargs -0 sed -i 's/intarsia-dev/$(OWNER)/g'

clean:
	rm -rf $(VENV) $(MIN) $(MIN).txt $(NEXT) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache demo-output site test-artefacts soak-state js/node_modules
