#!/usr/bin/env bash
# Runs every test, keeps going after a failed part, and ends with one line: `N passed, N failed`.
# A part that breaks before it can count its tests (a build error, say) counts as one failure.
set -uo pipefail
cd "$(dirname "$0")/.."

passed=0
failed=0
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# Sums the numbers before the given word on the lines that match a pattern.
count() { # LOG LINE-PATTERN WORD
    grep -E "$2" "$1" | grep -oE "[0-9]+ $3" | awk '{n += $1} END {print n + 0}'
}

# `part NAME LINE-PATTERN COMMAND...`: the pattern selects the summary lines of the command's output.
part() {
    local name=$1 pattern=$2 log=$logs/part code good bad
    shift 2
    echo
    echo "== $name"
    "$@" 2>&1 | tee "$log"
    code=${PIPESTATUS[0]}
    good=$(count "$log" "$pattern" passed)
    bad=$(($(count "$log" "$pattern" failed) + $(count "$log" "$pattern" 'errors?')))
    [ "$code" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    passed=$((passed + good))
    failed=$((failed + bad))
    return "$code"
}

finish() {
    echo
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}

start=$SECONDS
part "set-up" '^$' scripts/setup-tests.sh || finish
part "unit, property and wire tests (cargo)" '^test result:' cargo test --workspace --no-fail-fast

target=$(scripts/target-dir.sh)
part "models of what threads share (loom)" '^test result:' env RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$target/loom" \
    cargo test -p dunlin-engine -p dunlin-mailbox -p dunlin-persist --lib --no-fail-fast loom_tests
part "server and test drivers (profile fast)" '^$' \
    cargo build --profile fast -p dunlin -p dunlin-differential -p dunlin-history -p dunlin-crash || finish

export DUNLIN=${DUNLIN:-$target/fast/dunlin}
export DUNLIN_DRIVERS=${DUNLIN_DRIVERS:-$target/fast}
part "black-box tests (pytest)" '^(=+ )?[0-9]+ (passed|failed|errors?)\b.* in [0-9.]+s' tests/.env/bin/pytest tests ${PYTEST_ARGS:-}
echo "took $((SECONDS - start)) s"
finish
