#!/usr/bin/env bash
# Prints the folder that cargo builds into.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -n "${CARGO_TARGET_DIR:-}" ]; then
    echo "$CARGO_TARGET_DIR"
else
    echo "$PWD/target"
fi
