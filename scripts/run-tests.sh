#!/usr/bin/env bash
# Runs every test, keeps going after a failed part, and ends with one line: `N passed, N failed` and, where tests were left
# out, `, N skipped`, with the reasons in the lines before it.
# A part that breaks before it can count its tests (a build error, say) counts as one failure.
#
# Everything but the models of loom, which need a flag of their own in every crate, is built once, in one profile and with one
# choice of features: --workspace, always. Naming single crates would have cargo build their dependencies again.
set -uo pipefail
cd "$(dirname "$0")/.."

passed=0
failed=0
skipped=0
logs=$(mktemp -d)
reasons=$logs/reasons
retellings=$logs/retellings
touch "$reasons" "$retellings"
trap 'for job in $(jobs -p); do kill -- -"$job" 2>/dev/null; done; rm -rf "$logs"' EXIT

# Sums the numbers before the given word on the lines that match a pattern.
count() { # LOG LINE-PATTERN WORD
    grep -E "$2" "$1" | grep -oE "[0-9]+ $3" | awk '{n += $1} END {print n + 0}'
}

# `part NAME LINE-PATTERN COMMAND...`: the pattern selects the summary lines of the command's output.
part() {
    local name=$1 pattern=$2 log=$logs/part code good bad start=$SECONDS
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
    skipped=$((skipped + $(count "$log" "$pattern" '(skipped|ignored)')))
    # pytest's list of them (-rs), cargo's lines of ignored tests, and what the set-up could not get.
    sed -nE -e 's/^SKIPPED \[([0-9]+)\] (.*)$/\1 × \2/p' -e 's/^test (.* \.\.\. ignored.*)$/\1/p' \
        -e 's/^setup: (MISSING: .*)$/\1/p' "$log" >>"$reasons"
    grep -E '^(told again: |(FAILED: )?[0-9]+ told again, )' "$log" >>"$retellings"
    echo "== $name: $((SECONDS - start)) s"
    return "$code"
}

finish() {
    echo
    if [ -s "$reasons" ]; then
        echo "skipped, and why:"
        sed 's/^/    /' "$reasons"
    fi
    cat "$retellings"
    if [ "$skipped" -gt 0 ]; then
        echo "$passed passed, $failed failed, $skipped skipped"
    else
        echo "$passed passed, $failed failed"
    fi
    [ "$failed" -eq 0 ]
    exit
}

# `beside NAME COMMAND...` runs a command beside what follows. `beside_done NAME LINE-PATTERN` waits for it, and is its part.
beside() {
    local name=$1 begun=$SECONDS
    shift
    # In a process group of its own, which ends with this script.
    set -m
    {
        "$@"
        echo "exit $?" >"$logs/$name.end"
        echo "== it took $((SECONDS - begun)) s beside others"
    } >"$logs/$name" 2>&1 &
    set +m
    echo $! >"$logs/$name.pid"
}

beside_done() {
    wait "$(cat "$logs/$1.pid")"
    part "$1" "$2" eval "cat '$logs/$1'; $(cat "$logs/$1.end")"
}

start=$SECONDS
target=$(scripts/target-dir.sh)
# The set-up waits for downloads most of the time. It comes first where the build needs its compiler, or sudo a password.
if command -v cc >/dev/null && { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }; then
    beside set-up scripts/setup-tests.sh
else
    part set-up '^$' scripts/setup-tests.sh || finish
fi
part "build (profile fast)" '^$' cargo build --profile fast --workspace --all-targets || finish
part "build of the lab" '^$' cargo build --profile fast --locked --manifest-path lab/Cargo.toml --target-dir "$target" --all-targets || finish
[ ! -e "$logs/set-up.pid" ] || beside_done set-up '^$' || finish
part "links and words of all pages" '^$' bash -c 'scripts/check-links.py && scripts/check-prose.py'
part "unit, property and wire tests (cargo)" '^test result:' cargo test --profile fast --workspace --no-fail-fast
part "unit tests of the lab (cargo)" '^test result:' cargo test --profile fast --locked --manifest-path lab/Cargo.toml --target-dir "$target"

# Beside the black-box tests, most of which wait.
# What `make run` builds; to check it is enough, as the whole was tested above.
beside "bench and ops without their features (check)" \
    nice -n 19 cargo check --profile fast -p dunlin-bench -p dunlin-ops --no-default-features
beside "models of what threads share (loom)" env RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$target/loom" nice -n 19 \
    cargo test --profile fast -p dunlin-engine -p dunlin-mailbox -p dunlin-persist --lib --no-fail-fast loom_tests

# Three files at a time on two processors: many of these tests wait. A file's tests share its servers. The order is that of
# tests/tiers.py.
export DUNLIN=${DUNLIN:-$target/fast/dunlin}
export DUNLIN_DRIVERS=${DUNLIN_DRIVERS:-$target/fast}
part "black-box tests (pytest)" '^(=+ )?[0-9]+ (passed|failed|skipped|errors?)\b.* in [0-9.]+s' \
    tests/.env/bin/pytest tests -rs -n "${PYTEST_PROCESSES:-3}" --dist loadfile --no-loadscope-reorder ${PYTEST_ARGS:-}
beside_done "bench and ops without their features (check)" '^$'
beside_done "models of what threads share (loom)" '^test result:'
echo "took $((SECONDS - start)) s"
finish
