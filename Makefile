# The only entry points; CI calls `make test`.

CARGO ?= cargo
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?=
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run test lint bench fuzz docs setup

help: ## Show this list
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## Build the release binary and start the server (ARGS="--port 7000")
	$(CARGO) build --release -p dunlin
	@exec "$$(scripts/target-dir.sh)/release/dunlin" server $(ARGS)

test: ## Set up what is missing, then run every test
	@scripts/run-tests.sh

setup: ## Only install what the tests need
	@scripts/setup-tests.sh

lint: ## Formatting, clippy, and whether the generated documents are fresh
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@scripts/docs.sh --check

bench: ## Compare with the peers and write docs/benchmarks
	$(CARGO) build --release -p dunlin
	@if [ -x scripts/bench.sh ]; then exec scripts/bench.sh $(ARGS); \
	else exec "$$(scripts/target-dir.sh)/release/dunlin" bench $(ARGS); fi

fuzz: ## Fuzz every target for FUZZ_SECONDS (FUZZ_TARGETS="request" for some)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz.sh $(FUZZ_TARGETS)

docs: ## Regenerate docs/commands and build the API documentation
	@scripts/docs.sh
	$(CARGO) doc --workspace --no-deps
