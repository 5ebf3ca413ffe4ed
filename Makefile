# Every target sets up .venv by itself; PYTHON chooses the interpreter it is made with.
PYTHON ?= python3
BIN := .venv/bin
# Twice as many as there are cores: many tests wait for processes and clocks.
JOBS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')
# Compiled once, not once for each process of the tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: serve test test-long test-clients coverage check docs bench fuzz explore fmt lock clean

# Needs the gateway alone, which installs in seconds; what tests and checks need is in .venv/ready.
serve: .venv/gateway
	@$(BIN)/weft serve

test: .venv/ready
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not long and not clients"

test-long: .venv/ready coverage
	THOROUGH=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal \
	  -m "long or (hypothesis and not clients)"

# Node clients and command-line agents, installed from npm, and LiteLLM, in an environment of its
# own: needs node, npm and the registries.
test-clients: .venv/ready
	$(BIN)/python -m pytest -q -m clients tests/node_clients

# What stands above the codecs is tested by `make test`; the gate asks for values, law and codecs, and
# for what decides in the agent runtime, by examples alone: chance would make it pass one day and fail
# the next.
OUTER := browser clients crash faults node_clients security $(patsubst %,test_%.py,accounting \
  agent_changes agent_clients agent_cluster agent_cost agent_dispatch agent_followers agent_kill* \
  agent_library agent_mcp* agent_run* agent_segment agent_upstream agent_workers \
  background bodies cli* discovery examples idempotency make page_files rerun trace_http \
  chat_store compacting conversations counting coverage_gate demo_* docs* exports fuzz* \
  gateway_* heads layers logs metrics mutants open_responses* passthrough_gateway protocol relay_* \
  response_identity runs scrub server settings store* stored* taken_* telemetry \
  tool_sessions upstream_* verify* websocket wheel workers writers)
coverage: .venv/ready
	@rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -q -n $(JOBS) --dist worksteal \
	  -m "not hypothesis and not long and not clients" $(patsubst %,'--ignore-glob=tests/%',$(OUTER))
	$(BIN)/coverage combine -q
	$(BIN)/python -m tests.coverage_gate

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

# The documentation as a site in site/. Broken links fail the build, but not with --quiet, which
# would silence them. The variable silences an advertisement.
docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'site/index.html is the first page; search needs a server: python3 -m http.server -d site'

bench: .venv/ready
	$(BIN)/python -m bench
	$(BIN)/python -m bench.gateway
	$(BIN)/python -m bench.gateway.storing
	$(BIN)/python -m bench.gateway.growth
	$(BIN)/python -m bench.gateway.accounting
	$(BIN)/python -m bench.agent
	$(BIN)/python -m bench.observing

# Both stop at a number of inputs, or after SECONDS each; SEED names the inputs.
SEED ?= 1
SECONDS ?= 7200
fuzz: .venv/ready
	$(BIN)/python -m tests.fuzz --seed $(SEED) --seconds $(SECONDS)
	$(BIN)/python -m tests.fuzz_stored --seed $(SEED) --seconds $(SECONDS)

# The properties with examples of chance, which `make test` never draws: it tries the same each time.
explore: .venv/ready
	PROPERTIES=explore THOROUGH=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal \
	  -m "hypothesis and not clients"

fmt: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The exact files that a gateway is installed from, after constraints.txt has changed.
LOCK := deploy/requirements.txt
lock: .venv/ready
	@$(PIP) 'uv>=0.9,<1'
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-annotate --no-header --extra gateway --extra postgres -c constraints.txt pyproject.toml -o .lock
	@{ grep '^# ' $(LOCK); cat .lock; } > .lock.new && mv .lock.new $(LOCK) && rm .lock

clean:
	rm -rf .venv site .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Made anew when what it holds changes. An interrupted set-up leaves no stamp behind.
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
.venv/gateway: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Weft needs Python 3.11 or newer")'
	@echo "Creating .venv with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv .venv
	@echo 'Installing weft[gateway] into it ...'
	@$(PIP) -e '.[gateway]'
	@touch $@

.venv/ready: .venv/gateway
	@echo 'Installing what tests and checks need: weft[dev]. This takes a few minutes ...'
	@$(PIP) -e '.[dev]'
	@touch $@

.venv/docs: .venv/ready
	@echo 'Installing what the documentation needs: weft[docs] ...'
	@$(PIP) -e '.[docs]'
	@touch $@
