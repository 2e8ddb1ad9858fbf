#!/usr/bin/env bash
# Builds this commit twice, in two directories with targets of their own, and compares the programs:
#   scripts/reproduce.sh                         both builds are made here
#   scripts/reproduce.sh --against SHA256SUMS    one build, which is compared with the program in a release's tarball beside that file
# Takes two release builds (four minutes each on two cores). The tree must have no changes that are not committed.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
against=
if [ "${1:-}" = --against ]; then
    against=$(realpath "$2")
fi
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
    echo "reproduce: commit or stash changes first: a build is of a commit" >&2
    exit 2
fi
commit=$(git rev-parse HEAD)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Builds the commit in the directory $1, which no part of the program may know, and prints its checksum.
build() {
    local sources=$work/$1/sources target=$work/$1/target
    mkdir -p "$sources"
    git archive "$commit" | tar -x -C "$sources"
    local home=${CARGO_HOME:-$HOME/.cargo}
    # In the order in which they are looked for: the last one that fits counts.
    local maps="--remap-path-prefix=$home=/cargo --remap-path-prefix=$target=/target --remap-path-prefix=$sources=/dunlin"
    local c_maps="-fwrapv -ffile-prefix-map=$home=/cargo -ffile-prefix-map=$target=/target -ffile-prefix-map=$sources=/dunlin"
    (
        cd "$sources"
        env SOURCE_DATE_EPOCH="$(git -C "$OLDPWD" log -1 --format=%ct "$commit")" RUSTFLAGS="$maps" CFLAGS="$c_maps" CXXFLAGS="$c_maps" \
            CARGO_TARGET_DIR="$target" CARGO_INCREMENTAL=0 "$cargo" build --quiet --locked --release -p dunlin ${TARGET:+--target "$TARGET"} >&2
    )
    local program=$target/${TARGET:+$TARGET/}release/dunlin
    strip --strip-unneeded -o "$work/$1.stripped" "$program"
    sha256sum "$work/$1.stripped" | cut -d' ' -f1
}

first=$(build one)
echo "reproduce: $commit is $first"
if [ -n "$against" ]; then
    folder=$(dirname "$against")
    (cd "$folder" && sha256sum --check --strict --quiet --ignore-missing "$against")
    tarball=$(find "$folder" -maxdepth 1 -name 'dunlin-*-linux-*.tar.gz' | head -n 1)
    tar -xzOf "$tarball" --wildcards '*/bin/dunlin' >"$work/released"
    second=$(sha256sum "$work/released" | cut -d' ' -f1)
else
    second=$(build two)
fi
if [ "$first" != "$second" ]; then
    echo "reproduce: DIFFERENT: the other one is $second" >&2
    cmp "$work/one.stripped" "$([ -n "$against" ] && echo "$work/released" || echo "$work/two.stripped")" >&2 || true
    exit 1
fi
echo "reproduce: the same"
