# Tidings: everything a person types. Needs Python 3.11 or newer with pip and venv; `make help` lists the rest.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# The first Python that is new enough and really runs: a shim may exist and still fail.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3 python; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$python" && break; done)

BIN := .venv/bin
LOG := .venv/setup.log
DEV := .venv/.is-installed
# Who only runs it need not wait for what testing takes.
RUN := .venv/.can-run
# Client programs of the API, never in the same environment as ours.
CLIENTS := .venv-clients/.is-installed

# Quick parts first, so that a plain mistake shows early; short ones last, so that no core waits long for another.
SUITES := $(wildcard $(addprefix tests/,tidy unit contract chaos model scenario security))

.PHONY: help setup run test sweep chaos promises board busy fuzz portable clients mutants bench soak size fresh image-check check map platform lock clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | while IFS='|' read -r target text; do \
		printf '%-17s %s\n' "$$target" "$$text"; done

setup: $(DEV)  ## make .venv with everything that running and testing take

run: $(if $(wildcard $(DEV)),$(DEV),$(RUN))  ## start the gateway (ARGS="..." are passed on)
	@exec $(BIN)/tidings run $(ARGS)

# One more than there are cores, since many tests wait for processes; 0 runs them in one process, for a debugger.
WORKERS ?= 3
# What pytest has made of a test file is kept, whatever the environment says: it takes a quarter of a minute to make.
test: setup  ## run all tests, quick ones first (ARGS="..." are passed on)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(SUITES) $(ARGS)

sweep: $(DEV)  ## kill a gateway before and after every commit, then at every failpoint (PART=1/4 is a quarter of it)
	@$(BIN)/python -m tests.chaos.sweep --scenario people --doubles 1 --progress --part $(or $(PART),1/1) $(ARGS)
	@$(BIN)/python -m tests.chaos.sweep --scenario approvals --doubles 1 --progress --part $(or $(PART),1/1) $(ARGS)
	@$(BIN)/python -m tests.chaos.sweep --scenario busy --doubles 1 --progress --part $(or $(PART),1/1) $(ARGS)
	@$(BIN)/python -m tests.chaos.sweep --scenario sixty --doubles 1 --failpoints --progress --part $(or $(PART),1/1) $(ARGS)

SEED ?= 1
MESSAGES ?= 2000
KILLS ?= 100
chaos: $(DEV)  ## kill a gateway at random while all else fails too (SEED=1 MESSAGES=2000 KILLS=100)
	@$(BIN)/python -m tests.chaos.chaos --seed $(SEED) --messages $(MESSAGES) --kills $(KILLS) $(ARGS)

PROMISES ?= 1000
promises: $(DEV)  ## kill a gateway while a thousand promises are open, and look whether each is kept (SEED=1 KILLS=100)
	@$(BIN)/python -m tests.chaos.promises --seed $(SEED) --promises $(PROMISES) --kills $(KILLS) $(ARGS)

CARDS ?= 500
board: $(DEV)  ## work off a board of unruly workers while the gateway is killed (SEED=1 CARDS=500)
	@$(BIN)/python -m tests.chaos.board --seed $(SEED) --cards $(CARDS) $(ARGS)

busy: $(DEV)  ## kill a gateway at every commit of a busy chat, in each mode and on each platform
	@TIDINGS_BUSY_KILLS=all $(BIN)/python -m pytest -n $(WORKERS) tests/scenario/places/test_platform_busy.py $(ARGS)

MINUTES ?= 5
fuzz: $(DEV)  ## fuzz the HTTP API by what its own /openapi.json says (MINUTES=5 SEED=1)
	@$(BIN)/python -m tests.security.fuzz --minutes $(MINUTES) --seed $(SEED) $(ARGS)

portable: $(DEV)  ## ask a PostgreSQL about every statement (DATABASE=postgresql://user@host/name)
	@$(BIN)/python -m tests.postgres $(DATABASE)

clients: $(DEV) $(CLIENTS)  ## drive real client programs, in an environment of their own, against a gateway (ARGS=--asking: with questions)
	@$(BIN)/python -m tests.clients $(ARGS)

mutants: $(DEV)  ## seed one bug after the other and show what catches it (ARGS="NAME" tries one)
	@$(BIN)/python -m tests.chaos.mutation $(ARGS)

bench: $(DEV)  ## measure, beside a bare writer of the same rows in the same run
	@$(BIN)/python -m tests.bench

SOAK_MINUTES ?= 60
soak: $(DEV)  ## talk to a gateway for an hour, with restarts, and see whether it grows (SOAK_MINUTES=60)
	@$(BIN)/python -m tests.bench.soak --minutes $(SOAK_MINUTES) $(ARGS)

size: $(DEV)  ## install what running takes into an empty folder, and say how big it is
	@$(BIN)/python -m tests.deploy.size

fresh: $(DEV)  ## time a clone and its first start, with empty caches, to the first answer
	@$(BIN)/python -m tests.deploy.fresh $(ARGS)

image-check: $(DEV)  ## do what deploy/Dockerfile says without an engine, start it as another uid, list what is in it
	@$(BIN)/python -m tests.deploy.image $(ARGS)

check: $(DEV)  ## lint, format, types, import contracts and house rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m pytest tests/tidy

map: $(DEV)  ## write the map of files in ARCHITECTURE.md from the files' opening sentences
	@$(BIN)/python -m tests.tidy.map

platform: $(DEV)  ## copy the starter of a platform under a new name (NAME=carrier)
	@$(BIN)/python -m tests.starter $(NAME)

lock: $(DEV)  ## write all lock files anew (ARGS=--upgrade takes the newest versions)
	@$(call compile,pyproject.toml --extra build,requirements.lock)
	@$(call compile,pyproject.toml --extra build --extra dev --constraint requirements.lock,requirements-dev.lock)
	@$(call compile,--group clients,requirements-clients.lock)

clean:  ## remove .venv and everything that tools left behind
	@rm -rf .venv .venv-clients build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +


# One lock serves every platform and every Python from 3.11 on, and names no host.
compile = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command 'make lock' --no-emit-index-url --no-emit-find-links $(ARGS) $(1) -o $(2)

# A stamp stands for an installed lock; a second start finds it and does nothing else.
$(DEV): requirements-dev.lock pyproject.toml | .venv/pyvenv.cfg
	@$(call install,requirements-dev.lock,--compile-bytecode)
	@touch $@

# Not compiled: that takes most of an install's time, and Python compiles what it comes across.
$(RUN): requirements.lock pyproject.toml | .venv/pyvenv.cfg
	@$(call install,requirements.lock)
	@touch $@

# Python clients by hash, and Node clients if npm is installed.
$(CLIENTS): requirements-clients.lock $(wildcard tests/clients/node/*) | $(DEV)
	@echo "Installing requirements-clients.lock"; rm -rf .venv-clients; uv=$(BIN)/uv; "$$uv" --version >/dev/null 2>&1 || uv=uv; \
	{ "$$uv" venv --quiet --python $(BIN)/python .venv-clients && \
	  "$$uv" pip install --quiet --python .venv-clients/bin/python --require-hashes -r requirements-clients.lock; } || \
	{ echo "Could not install requirements-clients.lock (no network?)" >&2; exit 1; }
	@mkdir -p .venv-clients/node && cp tests/clients/node/* .venv-clients/node/
	@if npm --version >/dev/null 2>&1; then npm ci --prefix .venv-clients/node --no-audit --no-fund --loglevel=error >.venv-clients/npm.log 2>&1 || \
		{ rm -rf .venv-clients/node/node_modules; echo "npm could not install: .venv-clients/npm.log says why" >&2; }; fi
	@touch $@

.venv/pyvenv.cfg:
	@python="$(PYTHON)"; \
	test -n "$$python" || { echo "Tidings needs Python 3.11 or newer: install it, or name it: make PYTHON=/path/to/python" >&2; exit 1; }; \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "$$python does not run or is older than 3.11: name another, make PYTHON=/path/to/python" >&2; exit 1; }; \
	echo "Making .venv with $$("$$python" --version)"; \
	if uv --version >/dev/null 2>&1 && uv venv --quiet --python "$$("$$python" -c 'import sys; print(sys.executable)')" .venv 2>/dev/null; then exit 0; fi; \
	"$$python" -c 'import ensurepip, venv' 2>/dev/null || { echo "$$python has no venv or no pip: install them (Debian, Ubuntu: apt install python3-venv python3-pip)" >&2; exit 1; }; \
	rm -rf .venv; "$$python" -m venv .venv >/dev/null 2>&1 || { rm -rf .venv; echo "$$python could not make .venv here: is the folder writable and the disk not full?" >&2; exit 1; }

# Takes a lock file and options for uv. uv from PATH, else uv from the lock (hashed like the rest), else plain pip: whatever works first.
define install
echo "Installing $(1)"; : >$(LOG); \
if uv --version >/dev/null 2>&1; then uv=uv; else uv=$(BIN)/uv; $(BIN)/uv --version >/dev/null 2>&1 || { \
	awk '/^uv==/ { found = 1 } found { print } found && !/\\$$/ { exit }' requirements-dev.lock >.venv/uv.lock; \
	$(BIN)/python -m pip install --quiet --require-hashes -r .venv/uv.lock >>$(LOG) 2>&1; }; fi; \
{ "$$uv" pip install --python $(BIN)/python --require-hashes $(2) -r $(1) && \
  "$$uv" pip install --python $(BIN)/python --no-deps --no-build-isolation --editable .; } >>$(LOG) 2>&1 || \
{ $(BIN)/python -m pip --version || $(BIN)/python -m ensurepip; \
  $(BIN)/python -m pip install --require-hashes -r $(1) && \
  $(BIN)/python -m pip install --no-deps --no-build-isolation --editable .; } >>$(LOG) 2>&1 || \
{ echo "Could not install $(1): $(LOG) says why (no network?)" >&2; exit 1; }; \
$(BIN)/python -m compileall -q core adapters bots >>$(LOG) 2>&1 || true
endef
