#!/usr/bin/env bash
# Regenerates docs/commands from the command table; with --check only tells whether it is fresh.
# The generator is a test of the server: it compares, and writes where UPDATE_DOCS is set.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
--check) cargo test --profile fast -q --workspace --lib documentation >/dev/null || {
    echo "docs/commands is stale: run 'make docs'" >&2
    exit 1
} ;;
"") UPDATE_DOCS=1 cargo test --profile fast -q --workspace --lib documentation ;;
*)
    echo "usage: scripts/docs.sh [--check]" >&2
    exit 2
    ;;
esac
