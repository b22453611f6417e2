# One command each: what a newcomer runs is what CI runs. Everything is set up in .venv; `make clean` removes it.

# The newest Python, but pip has a redis-server for 3.11 and 3.12 alone: these come first where the machine has none.
PYTHONS = $(if $(shell command -v redis-server),3.14 3.13 3.12 3.11 3,3.12 3.11 3.14 3.13 3)
PYTHON ?= $(shell for v in $(PYTHONS); do p=$$(command -v python$$v) && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
HAS_REDIS = command -v redis-server >/dev/null || $(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 13))'
VENV := .venv
# What is compiled, and what that is made from.
COMPILED := setup.py $(shell find schemas policies streams workers deploy load -name '*.pyx' -o -name '*.pxd')
BIN := $(VENV)/bin
TESTS ?= tests
PINS := deploy/constraints.txt
INSTALL := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --constraint $(PINS)
# It works with the onnx of the extra `onnx`, but requires an older one (0.4.12).
HUMMINGBIRD := hummingbird-ml onnxconverter-common dill

# The clone on the path of its environment: else a folder `skysail` beside a script, such as the clone, hides the module.
ON_PATH = $(BIN)/python -c "import sysconfig; open(sysconfig.get_path('purelib') + '/skysail-clone.pth', 'w').write('$(CURDIR)\n')"

export BROKER ?= apache
export DEMO_SECONDS ?= 60
export DEMO_RATE ?= 100
BENCH_SECONDS ?= 9

.DEFAULT_GOAL := help
.PHONY: help demo test bench lint sanitize docs wheel sbom audit clean

help:  ## what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

demo: $(VENV)/demo.stamp  ## watch five models compete, one break, the policy walk away (BROKER, DEMO_SECONDS, DEMO_RATE)
	@$(BIN)/skysail demo

test: lint  ## style, types, import contracts and every test (TESTS=tests/unit for a part)
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(TESTS)

bench: $(VENV)/test.stamp  ## the loop beside hand-written ones, the short form (two and a half minutes)
	@$(BIN)/skysail load run loop --seconds $(BENCH_SECONDS)

lint: $(VENV)/test.stamp  ## style, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

sanitize: $(VENV)/test.stamp  ## the tests of compiled modules under the address and undefined-behaviour sanitizers
	@.ci/sanitize

docs: $(VENV)/docs.stamp  ## the site with its search, in build/site; a broken link, anchor or name ends it
	@$(BIN)/python -m sphinx --conf-dir docs/site --builder html --fail-on-warning --keep-going --quiet docs build/site
	@echo "the site is in build/site: open build/site/index.html"

wheel: | $(BIN)/python  ## the package for machines without a compiler, of this platform, in dist/
	@rm -rf build
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@$(BIN)/python .ci/wheel

sbom: $(VENV)/test.stamp  ## what an installation is made of, as CycloneDX, in dist/sbom.json
	@.ci/contents sbom

audit: $(VENV)/test.stamp  ## known vulnerabilities of what is installed, where the data on them can be reached
	@.ci/contents audit

clean:  ## remove what was set up and produced
	rm -rf $(VENV) build dist reports .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache *.egg-info

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Skysail needs Python 3.11 or later; install it, or say where it is: make demo PYTHON=/path/to/python"; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip

$(VENV)/demo.stamp: pyproject.toml $(PINS) $(COMPILED) | $(BIN)/python
	@echo "installing what the demo needs (about 200 MB the first time)"
	@$(INSTALL) --editable '.[bench]'
	@$(ON_PATH)
	@touch $@

$(VENV)/docs.stamp: pyproject.toml $(PINS) $(COMPILED) | $(BIN)/python
	@echo "installing what the site is built with, and what it tells of"
	@$(INSTALL) --editable '.[docs]'
	@$(ON_PATH)
	@touch $@

$(VENV)/test.stamp: pyproject.toml $(PINS) $(COMPILED) | $(BIN)/python
	@$(HAS_REDIS) || { echo "This machine has no redis-server, and pip has none for $$($(PYTHON) --version). Tests need one: install it (such as: apt-get install redis-server), or name a Python 3.11 or 3.12: make test PYTHON=/path/to/python3.12"; exit 1; }
	@echo "installing what the tests need, torch included"
	@$(INSTALL) --no-compile --editable '.[all,dev,docs]'
	@$(INSTALL) --no-compile --no-deps $(HUMMINGBIRD)
	@$(ON_PATH)
	@touch $@ $(VENV)/demo.stamp $(VENV)/docs.stamp
