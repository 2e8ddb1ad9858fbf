#!/usr/bin/env bash
# Writes DIRECTORY/SHA256SUMS over all files of a release, and signs it:
#   scripts/checksums.sh DIRECTORY           checksums
#   scripts/checksums.sh DIRECTORY KEY       and SHA256SUMS.asc, by gpg with this key (an id, a fingerprint or an address)
#   scripts/checksums.sh --verify DIRECTORY  verifies the checksums and, if it is there, the signature
set -euo pipefail

if [ "${1:-}" = --verify ]; then
    cd "$2"
    sha256sum --check --strict --quiet SHA256SUMS
    if [ -e SHA256SUMS.asc ]; then
        gpg --verify SHA256SUMS.asc SHA256SUMS
    else
        echo "checksums: good, and not signed"
    fi
    exit
fi

directory=${1:?usage: scripts/checksums.sh [--verify] DIRECTORY [KEY]} key=${2:-}
cd "$directory"
rm -f SHA256SUMS SHA256SUMS.asc
files=$(find . -maxdepth 1 -type f -printf '%P\n' | LC_ALL=C sort)
if [ -z "$files" ]; then
    echo "checksums: $directory has no files" >&2
    exit 1
fi
xargs -d '\n' sha256sum <<<"$files" >SHA256SUMS
[ -z "$key" ] || gpg --batch --yes --local-user "$key" --armor --detach-sign --output SHA256SUMS.asc SHA256SUMS
echo "$directory/SHA256SUMS"
