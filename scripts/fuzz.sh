#!/usr/bin/env bash
# Runs fuzz targets (all, or those named) for FUZZ_SECONDS each. libFuzzer needs compiler flags that
# only nightly accepts; without a nightly toolchain, RUSTC_BOOTSTRAP=1 unlocks them in the stable one.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "fuzz: installing cargo-fuzz"
    cargo install --locked cargo-fuzz
fi
if rustup run nightly rustc --version >/dev/null 2>&1; then
    fuzz() { rustup run nightly cargo fuzz "$@"; }
else
    echo "fuzz: no nightly toolchain, using the default one with RUSTC_BOOTSTRAP=1"
    fuzz() { RUSTC_BOOTSTRAP=1 cargo fuzz "$@"; }
fi

# Quick to build, and a panic unwinds to libFuzzer: the workspace's release profile is for the server.
export CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_PANIC=unwind
# clang instruments Lua's C code like our own: addresses, bounds, its own assertions, and coverage, in the form that
# rustc's runtime knows. Stacks move whenever they could (HARDSTACKTESTS), so that a kept pointer is caught. Lua relies on
# integers that wrap (`luaH_getnum` looks up `key - 1`), so they are defined to, as in every build (`.cargo/config.toml`).
clang=$(compgen -c clang | grep -xE 'clang(-[0-9]+)?' | sort -uV | tail -n 1 || true)
if [ -n "$clang" ]; then
    export CC="$clang"
    export CFLAGS="-g -fwrapv -fsanitize=address,bounds -fsanitize-trap=bounds \
-fsanitize-coverage=inline-8bit-counters,pc-table,trace-cmp,indirect-calls \
-DLUA_USE_APICHECK -DHARDSTACKTESTS -Dlua_assert=assert -include assert.h"
else
    echo "fuzz: no clang, so Lua's C code is built as usual: its faults are found only where they crash"
fi

targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(fuzz list)
for target in "${targets[@]}"; do
    echo "fuzz: $target for ${FUZZ_SECONDS:=60} s"
    # The corpus grows from run to run on this machine; the seeds are in the repository. One allocation
    # of 64 MiB from a few bytes of input would be a length believed unchecked. A stack of Lua that moves at each call makes
    # the sanitizer map memory for seconds: an input may take a minute on a busy machine.
    mkdir -p "fuzz/corpus/$target"
    fuzz run "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$FUZZ_SECONDS" -rss_limit_mb=2048 -malloc_limit_mb=64 -timeout=60
done
