#!/usr/bin/env bash
# Checks dependencies by deny.toml: licences, duplicates, banned crates and sources; with `advisories` the published faults,
# where the database of RustSec can be had. Installs cargo-deny where it is missing; without it the first check says that it was left
# out, and ends well: no dependency is at fault.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.20.2
missing=
if [ "$(cargo deny --version 2>/dev/null)" != "cargo-deny $version" ]; then
    echo "deny: installing cargo-deny $version"
    cargo install --quiet --locked "cargo-deny@$version" || missing=1
fi

case "${1:-}" in
"")
    if [ -n "$missing" ]; then
        echo "deny: NOT CHECKED: cargo-deny $version cannot be installed here; licences, duplicates and sources were not compared with deny.toml"
        exit 0
    fi
    cargo deny check --hide-inclusion-graph licenses bans sources
    cargo deny --manifest-path lab/Cargo.toml check --config deny.toml --hide-inclusion-graph licenses bans sources
    ;;
advisories)
    if [ -z "$missing" ] && cargo deny fetch db 2>/dev/null; then
        exec cargo deny check advisories
    fi
    echo "audit: the database of advisories cannot be had here; docs/advisories.md has those that are known, with verdicts"
    # The list says for which versions it was read: others have to be read again.
    status=0
    while IFS='|' read -r _ crate read _; do
        crate=$(tr -d ' `' <<<"$crate") read=$(tr -d ' ' <<<"$read")
        locked=$(awk -v name="\"$crate\"" '$1 == "name" && $3 == name { getline; gsub(/"/, "", $3); print $3 }' Cargo.lock)
        grep -qxF "$read" <<<"$locked" || {
            echo "audit: docs/advisories.md speaks of $crate $read, Cargo.lock has: ${locked:-none}" >&2
            status=1
        }
    done < <(sed -n '/^| crate /,/^$/p' docs/advisories.md | tail -n +3)
    exit $status
    ;;
*)
    echo "usage: scripts/deny.sh [advisories]" >&2
    exit 2
    ;;
esac
