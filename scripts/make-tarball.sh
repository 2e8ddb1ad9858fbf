#!/usr/bin/env bash
# Writes a tarball with a static program, manual pages, completions, a unit and a commented configuration:
#   scripts/make-tarball.sh PROGRAM OUT-DIRECTORY     packs a program that is there
#   scripts/make-tarball.sh --build OUT-DIRECTORY     builds it for musl first
# The same program makes the same bytes. ALLOW_DYNAMIC=1 packs a program that needs shared libraries, too (for tests).
set -euo pipefail
from=$1
out=$(realpath -m "$2")
[ "$from" = --build ] || from=$(realpath "$from")
cd "$(dirname "$0")/.."

if [ "$from" = --build ]; then
    target=$(uname -m)-unknown-linux-musl
    missing=
    command -v musl-gcc >/dev/null || missing="a C compiler for musl (Debian: apt install musl-tools; Alpine: gcc and musl-dev are one)"
    if command -v rustup >/dev/null && ! rustup target list --installed | grep -qx "$target"; then
        missing="${missing:+$missing; }the Rust target (rustup target add $target)"
    fi
    if [ -n "$missing" ]; then
        echo "make-tarball: missing: $missing" >&2
        exit 1
    fi
    # For the C sources of mimalloc, Lua, ring and SQLite.
    export "CC_${target//-/_}=musl-gcc"
    scripts/build.sh --release -p dunlin --target "$target"
    from=$(scripts/target-dir.sh)/$target/release/dunlin
fi

if readelf --program-headers "$from" | grep -q INTERP && [ -z "${ALLOW_DYNAMIC:-}" ]; then
    echo "make-tarball: $from needs shared libraries: a static program is built by scripts/make-tarball.sh --build" >&2
    exit 1
fi
version=$("$from" --version | cut -d' ' -f2)
name=dunlin-$version-linux-$(uname -m)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
root=$tree/$name
install -D -m 755 "$from" "$root/bin/dunlin"
[ -n "${KEEP_SYMBOLS:-}" ] || strip --strip-unneeded "$root/bin/dunlin"
"$from" man "$root/share/man/man1"
for shell in bash zsh fish; do
    mkdir -p "$root/share/completions"
    "$from" completions "$shell" >"$root/share/completions/dunlin.$shell"
done
install -D -m 644 deploy/systemd/dunlin.service "$root/share/systemd/dunlin.service"
install -D -m 644 deploy/systemd/dunlin.sysusers "$root/share/systemd/dunlin.sysusers"
install -D -m 644 deploy/grafana/dunlin.json "$root/share/examples/grafana.json"
install -D -m 644 deploy/prometheus/dunlin.rules.yml "$root/share/examples/dunlin.rules.yml"
mkdir -p "$root/etc"
"$from" server --print-config | sed -E 's/^([a-z])/# \1/' >"$root/etc/dunlin.conf"
install -m 644 LICENSE CHANGELOG.md "$root/"
scripts/licences.py >"$root/LICENCES-OF-LIBRARIES"
cat >"$root/README" <<END
Dunlin $version: one static program, which needs nothing else.

    bin/dunlin server                      starts a server on port 6379
    bin/dunlin server etc/dunlin.conf      with a configuration; every default stands in it, commented out
    man -l share/man/man1/dunlin.1         the manual

To install it for all users: cp bin/dunlin /usr/local/bin/, and share/systemd/dunlin.service to /etc/systemd/system/ (it names
/usr/bin/dunlin and the user of dunlin.sysusers).
END
mkdir -p "$out"
tar --create --gzip --file "$out/$name.tar.gz" --directory "$tree" --sort=name --owner=0 --group=0 --numeric-owner \
    --mtime=@0 --mode=u+rw,go-w,a+rX "$name"
echo "$out/$name.tar.gz"
