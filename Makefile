# The only entry points; CI calls `make test`.

CARGO ?= cargo
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?=
SEEDS ?= 10000
SEED ?=
KEY ?=
ARGS ?=
PREFIX ?= /usr/local
TIER ?= all
# FULL=1 builds in all of `dunlin bench` (`compare`, `cache`, TLS) and the screen of `dunlin top`: they take longer to compile than the server.
FULL ?=
features := $(if $(FULL),,--no-default-features)

export CARGO PREFIX DESTDIR

.DEFAULT_GOAL := help
.PHONY: help run cluster install deb tarball image sbom release check quick test lint audit bench instructions lab fuzz miri simulate jepsen console docs setup

help: ## Show this list
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## Build the release binary and start the server (ARGS="--port 7000")
	@scripts/build.sh --release -p dunlin $(features)
	@exec scripts/serve.sh $(ARGS)

cluster: ## Build the release binary and start etcd and six nodes of a cluster on ports 7001 to 7006, until Ctrl-C
	@scripts/build.sh --release -p dunlin $(features)
	@exec scripts/cluster.sh "$$(scripts/target-dir.sh)/release/dunlin"

install: ## Build the release binary and put it into PREFIX/bin (PREFIX=~/.local, FULL=1 for all of dunlin bench and top)
	@scripts/build.sh --release -p dunlin $(features)
	@scripts/install.sh

deb: ## Build the release binary and write a Debian package into dist/
	@scripts/build.sh --release -p dunlin
	@scripts/make-deb.sh "$$(scripts/target-dir.sh)/release/dunlin" dist

tarball: ## Build a static program for musl and write a tarball into dist/
	@scripts/make-tarball.sh --build dist

image: ## Build the release binary and write a container image into dist/dunlin-image.tar
	@scripts/build.sh --release -p dunlin $(if $(FULL),,--no-default-features --features tls)
	@scripts/make-image.py "$$(scripts/target-dir.sh)/release/dunlin" dist/dunlin-image.tar

sbom: ## Write the software bill of materials (CycloneDX) into dist/; installs cargo-cyclonedx where it is missing
	@scripts/sbom.py "dist/dunlin-$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1).cdx.json"

release: deb tarball image sbom ## Write all files of a release and their checksums into dist/ (KEY=… signs them)
	@scripts/checksums.sh dist $(KEY)

check: ## Check what changed within a minute, without network and set-up: unit tests, documents, links, 500 seeds (ARGS=--all)
	@scripts/check.py $(ARGS)

quick: ## Build the server and run the black-box tests that need Python and redis-server only (ARGS="tests/wire -k inline")
	@scripts/setup-tests.sh quick
	@scripts/build.sh --profile fast --workspace --bin dunlin
	@DUNLIN="$${DUNLIN:-$$(scripts/target-dir.sh)/fast/dunlin}" tests/.env/bin/pytest -m quick -rs -n "$${PYTEST_PROCESSES:-3}" \
		--dist loadfile $(or $(ARGS),tests)

test: ## Set up what is missing, then run every test
	@scripts/run-tests.sh

setup: ## Only install what the tests need (TIER=quick for those of make quick)
	@scripts/setup-tests.sh $(TIER)

lint: ## Formatting, clippy, whether the generated documents are fresh, links of all pages, licences of dependencies (deny.toml)
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path lab/Cargo.toml --check
	$(CARGO) clippy --profile fast --workspace --all-targets -- -D warnings
	$(CARGO) clippy --profile fast --manifest-path lab/Cargo.toml --target-dir "$$(scripts/target-dir.sh)" --all-targets -- -D warnings
	$(CARGO) clippy --profile fast -p dunlin-bench -p dunlin-ops --no-default-features -- -D warnings
	@scripts/docs.sh --check
	@scripts/check-links.py
	@scripts/check-prose.py
	@scripts/deny.sh

audit: ## Published faults of dependencies: from the database of RustSec, or from docs/advisories.md without it
	@scripts/deny.sh advisories

bench: ## Compare with redis-server and write docs/benchmarks (ARGS="--peer valkey=/path/to/valkey-server")
	@scripts/build.sh --release -p dunlin
	@scripts/build.sh --release -p dunlin-net --example constant_answer
	@target="$$(scripts/target-dir.sh)/release"; \
	exec "$$target/dunlin" bench compare --limit "$$target/examples/constant_answer" --out docs/benchmarks $(ARGS)

instructions: ## Count the instructions of requests by callgrind; fail if one grew by more than 1% (ARGS=--update, ARGS="--rows get")
	@scripts/build.sh --release -p dunlin $(features)
	@exec scripts/instructions.py "$$(scripts/target-dir.sh)/release/dunlin" $(or $(ARGS),--check)

lab: ## Run the lab's experiments (ARGS="E1 --peer redis-server --scale 0.1")
	@scripts/build.sh --release -p dunlin $(features)
	@$(CARGO) build --quiet --release --locked --manifest-path lab/Cargo.toml --target-dir "$$(scripts/target-dir.sh)"
	@exec "$$(scripts/target-dir.sh)/release/dunlin-lab" $(ARGS)

fuzz: ## Fuzz every target for FUZZ_SECONDS (FUZZ_TARGETS="request" for some)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz.sh $(FUZZ_TARGETS)

miri: ## Run the tests of what has unsafe code under Miri (needs: rustup toolchain install nightly --component miri,rust-src)
	PROPTEST_CASES=4 MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" \
	$(CARGO) +nightly miri test -p dunlin-structures --lib -- bits:: block:: slab:: page_pool:: tiers:: bit_set:: bucket_table:: rope::part:: rope::tests::rope_is --skip behaves_as_a_map_with --skip scan_returns_what_stays
	PROPTEST_CASES=2 MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" \
	$(CARGO) +nightly miri test -p dunlin-persist --lib -- ring:: --skip writers_do_not_mix_their_records

simulate: ## Run the cluster's simulator for SEEDS seeds, from FIRST on (SEED=n plays one again, TRACE=1 shows its transitions)
	SEEDS=$(SEEDS) SEED=$(or $(SEED),0) $(CARGO) test --profile fast -q -p dunlin-cluster --test simulator -- --nocapture storm_breaks moves_lose

jepsen: ## Play clusters of real processes under faults, 10 times 300 s, and judge their histories (ARGS="--seed 7 --runs 1")
	@scripts/build.sh --profile fast -p dunlin
	@cd tests && PYTHONPATH=lib DUNLIN="$$(../scripts/target-dir.sh)/fast/dunlin" .env/bin/python -m jepsen $(ARGS)

console: ## Build the console's files anew from console/ (needs Node.js)
	@npm install --prefix console --no-save --ignore-scripts --no-audit --no-fund --loglevel=error
	@npm run --silent --prefix console build

docs: ## Regenerate docs/commands and build the API documentation
	@scripts/docs.sh
	$(CARGO) doc --workspace --no-deps
