#!/usr/bin/env bash
# Regenerates docs/commands from the command table; with --check only tells whether it is fresh.
# The generator is a test of the engine: it compares, and writes where DUNLIN_WRITE_DOCS is set.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
--check) cargo test -q -p dunlin-engine documents >/dev/null || {
    echo "docs/commands is stale: run 'make docs'" >&2
    exit 1
} ;;
"") DUNLIN_WRITE_DOCS=1 cargo test -q -p dunlin-engine documents ;;
*)
    echo "usage: scripts/docs.sh [--check]" >&2
    exit 2
    ;;
esac
