# `make` alone lists the targets. Everything works on a clean checkout with Rust and network access.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CARGO ?= cargo
CHAOS_ARGS ?=
FUZZ_S ?= 600
FUZZ_SEED ?= 1
SEEDS ?= 2000
JOBS ?= 2
PEERS_ARGS ?=
RELEASE := target/release/treadle
SGLANG_URL ?=
THUNDERAGENT ?=
VLLM_URL ?=

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  %-11s %s\n", $$1, $$2 }'

.PHONY: setup
setup: ## Install what building needs and is missing
	@scripts/setup.sh build

.PHONY: guests
guests: setup ## Build the policies in Rust to WebAssembly
	@scripts/build-guests.sh rust

.PHONY: console
console: ## Build the web console, which the binary has from then on; without Node there is none
	@scripts/build-console.sh

.PHONY: build
build: guests console ## Build the release binary; its debug symbols are beside it, in treadle.debug
	$(CARGO) build --locked --release --package treadle
	@if command -v objcopy >/dev/null; then \
	  objcopy --only-keep-debug $(RELEASE) $(RELEASE).debug; \
	  objcopy --strip-all --add-gnu-debuglink=$(RELEASE).debug $(RELEASE) $(RELEASE).stripped; \
	  mv $(RELEASE).stripped $(RELEASE); \
	else echo "make: objcopy is missing (binutils); $(RELEASE) keeps its debug symbols" >&2; fi

.PHONY: wheel
wheel: ## Build the wheel of the Python package treadle-rl into target/wheels
	python3 -m pip wheel --quiet --no-deps --wheel-dir target/wheels ./sdk/python/treadle_rl

.PHONY: demo
demo: guests console ## Run the daemon with simulated engines and a workload
	$(CARGO) build --locked --package treadle
	target/debug/treadle demo

.PHONY: test
test: ## Check format and lints, run all tests; the time of each phase is printed
	@scripts/run-tests.sh

.PHONY: evidence
evidence: guests ## Run the tests of the benchmarks and check dependencies: for every night
	$(CARGO) nextest run --locked --package treadle-bench --package treadle-systems --lib --bins
	@scripts/check-dependencies.sh

.PHONY: screenshots
screenshots: guests console ## Take pictures of every page of the console, into web/screenshots
	$(CARGO) build --locked --package treadle
	@scripts/setup.sh browser
	@scripts/test-console.sh screenshots

.PHONY: test-agents
test-agents: guests ## Run Codex and Claude Code (800 MB from npm are installed) with simulated engines
	@scripts/test-agents.sh

.PHONY: test-vllm
test-vllm: guests ## Run the tests that need vLLM servers: two here (6 GB are installed), or VLLM_URL=a,b
	@VLLM_URL=$(VLLM_URL) scripts/test-vllm.sh tests $(TESTS)

.PHONY: test-sglang
test-sglang: guests ## Run the tests that need SGLang servers: two here (6 GB are installed), or SGLANG_URL=a,b
	@SGLANG_URL=$(SGLANG_URL) scripts/test-sglang.sh $(TESTS)

.PHONY: bench-vllm
bench-vllm: guests ## Measure moves of caches between two vLLM servers: here, or VLLM_URL=a,b
	@VLLM_URL=$(VLLM_URL) scripts/test-vllm.sh figures

.PHONY: fuzz
fuzz: guests ## Damage uploads, messages of six kinds and requests for FUZZ_S seconds each; FUZZ_SEED chooses the damage
	$(CARGO) run --locked --quiet --package treadle-hostile -- fuzz $(FUZZ_S) $(FUZZ_SEED)
	$(CARGO) run --locked --quiet --package treadle-hostile -- messages $(FUZZ_S) $(FUZZ_SEED)
	@scripts/setup.sh test
	$(CARGO) build --locked --package treadle
	@scripts/fuzz-api.sh $(FUZZ_S)

.PHONY: faults
faults: ## Try every error of SQLite's disk and of PostgreSQL at every statement of the store; prints a report as JSON
	@scripts/setup.sh services
	@trap 'scripts/services.sh stop' EXIT; variables="$$(scripts/services.sh start)" && eval "$$variables"; \
	TREADLE_FAULTS=all $(CARGO) test --locked --quiet --package treadle-store --test faults -- --nocapture --test-threads 1

.PHONY: dst
dst: ## Run SEEDS simulations full of faults; SEED=n TRACE=1 traces one of them
	@$(CARGO) run --locked --quiet --package treadle-dst --bin dst -- \
	  $(if $(SEED),--seed $(SEED) $(if $(TRACE),--trace),--seeds $(SEEDS) --jobs $(JOBS)) $(DST_FLAGS)

.PHONY: chaos
chaos: build ## Kill daemons, broker, database and engines under load; CHAOS_ARGS has its options
	@scripts/setup.sh services
	$(CARGO) run --locked --release --quiet --package treadle-chaos -- --binary target/release/treadle $(CHAOS_ARGS)

.PHONY: bench
bench: build ## Measure the store and the benchmarks of the daemon
	$(CARGO) build --locked --release --package treadle-bench
	$(CARGO) run --locked --release --package treadle-store --example append_rate
	-@scripts/setup.sh services
	@trap 'scripts/services.sh stop' EXIT; \
	variables="$$(scripts/services.sh start)" && eval "$$variables" || echo "no servers: no figures of events"; \
	target/release/treadle-bench

.PHONY: peers
peers: build ## Compare treadle with the routers of others (from PyPI) on simulated engines; THUNDERAGENT=folder with its source, PEERS_ARGS
	@scripts/peers.sh $(THUNDERAGENT)
	$(CARGO) build --locked --release --package treadle-bench
	target/release/treadle-bench peers $(PEERS_ARGS)

.PHONY: results
results: build ## Run the benchmarks behind docs/results.md, or ONLY="demo rollout", into .treadle/results; TRACE=file, THUNDERAGENT=folder
	@scripts/peers.sh $(THUNDERAGENT)
	-@scripts/setup.sh services
	$(CARGO) build --locked --release --package treadle-bench
	@trap 'scripts/services.sh stop' EXIT; \
	variables="$$(scripts/services.sh start)" && eval "$$variables" || echo "no servers: no figures of events"; \
	TRACE="$(TRACE)" scripts/results.sh $(ONLY)

.PHONY: lint
lint: ## Check format, lints and dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	@scripts/check-dependencies.sh

.PHONY: docs
docs: ## Write docs/configuration.md and the API documentation
	UPDATE_DOCS=1 $(CARGO) test --locked --quiet --package treadle-config --lib
	$(CARGO) doc --locked --workspace --no-deps

.PHONY: clean
clean: ## Remove everything that was built; stored data stays
	$(CARGO) clean
	rm -rf .treadle/venv sdk/typescript/node_modules
