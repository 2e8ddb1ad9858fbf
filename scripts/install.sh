#!/usr/bin/env bash
# Puts the release build's program into PREFIX/bin (below DESTDIR, for packages), for `make install`.
set -euo pipefail
# Not every shell expands the tilde of `make install PREFIX=~/.local`.
bin=${PREFIX:?}/bin
bin=${bin/#\~\//$HOME/}
program=$("$(dirname "$0")/target-dir.sh")/release/dunlin
place=${DESTDIR:-}$bin
if ! install -d "$place" 2>/dev/null || ! [ -w "$place" ]; then
    echo "install: cannot write to $place: choose another place (make install PREFIX=\$HOME/.local), or" >&2
    echo "    sudo install -m 755 $program $place/dunlin" >&2
    exit 1
fi
install -m 755 "$program" "$place/dunlin"
echo "installed $place/dunlin" >&2
case :$PATH: in
*":$bin:"*) ;;
*) echo "install: $bin is not on PATH: export PATH=\"$bin:\$PATH\"" >&2 ;;
esac
