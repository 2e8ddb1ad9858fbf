#!/usr/bin/env bash
# Writes a Debian package of a built program: scripts/make-deb.sh PROGRAM OUT-DIRECTORY
# Needs dpkg-deb. The version is the program's, or DEB_VERSION.
set -euo pipefail
program=$(realpath "$1")
out=$(realpath -m "$2")
cd "$(dirname "$0")/.."
version=${DEB_VERSION:-$("$program" --version | cut -d' ' -f2)}
architecture=$(dpkg --print-architecture)
tree=$(mktemp -d)
# The package's root entry becomes that of the system: dpkg would take the permissions of mktemp over.
chmod 755 "$tree"
trap 'rm -rf "$tree"' EXIT

install -D -m 755 "$program" "$tree/usr/bin/dunlin"
[ -n "${KEEP_SYMBOLS:-}" ] || strip --strip-unneeded "$tree/usr/bin/dunlin"
install -D -m 644 deploy/systemd/dunlin.service "$tree/usr/lib/systemd/system/dunlin.service"
install -D -m 644 deploy/systemd/dunlin.sysusers "$tree/usr/lib/sysusers.d/dunlin.conf"
# The defaults of the program itself, with what a package decides in front.
mkdir -p "$tree/etc/dunlin"
{
    echo "# The choices of this package; every other directive follows with its default, commented out."
    echo "dir /var/lib/dunlin"
    echo "unixsocket /run/dunlin/dunlin.sock"
    echo
    "$program" server --print-config | sed -E 's/^([a-z])/# \1/'
} >"$tree/etc/dunlin/dunlin.conf"
chmod 640 "$tree/etc/dunlin/dunlin.conf"
"$program" man "$tree/usr/share/man/man1"
gzip -9n "$tree"/usr/share/man/man1/*.1
for shell in bash zsh fish; do
    case $shell in
    bash) place=usr/share/bash-completion/completions/dunlin ;;
    zsh) place=usr/share/zsh/vendor-completions/_dunlin ;;
    fish) place=usr/share/fish/vendor_completions.d/dunlin.fish ;;
    esac
    mkdir -p "$tree/$(dirname "$place")"
    "$program" completions "$shell" >"$tree/$place"
done
install -D -m 644 deploy/debian/copyright "$tree/usr/share/doc/dunlin/copyright"
scripts/licences.py | gzip -9n >"$tree/usr/share/doc/dunlin/licences.gz"
chmod 644 "$tree/usr/share/doc/dunlin/licences.gz"
install -D -m 644 deploy/grafana/dunlin.json "$tree/usr/share/doc/dunlin/examples/grafana.json"
install -D -m 644 deploy/prometheus/dunlin.rules.yml "$tree/usr/share/doc/dunlin/examples/dunlin.rules.yml"
# What an alert's runbook_url names, and the pages that it leads to.
for page in runbook disaster-recovery upgrade monitoring sizing operations durability security; do
    install -D -m 644 "docs/$page.md" "$tree/usr/share/doc/dunlin/$page.md"
done
mkdir -p "$tree/DEBIAN"
# The newest version of the C library that the program asks for.
libc=$(objdump -T "$program" | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -V | tail -1)
sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@LIBC@/${libc:-2.36}/" deploy/debian/control >"$tree/DEBIAN/control"
[ -n "$libc" ] || sed -i 's/libc6 ([^)]*), //' "$tree/DEBIAN/control"
install -m 644 deploy/debian/conffiles "$tree/DEBIAN/conffiles"
install -m 755 deploy/debian/{postinst,prerm,postrm} "$tree/DEBIAN/"
mkdir -p "$out"
dpkg-deb --root-owner-group --build "$tree" "$out/dunlin_${version}_${architecture}.deb" >&2
echo "$out/dunlin_${version}_${architecture}.deb"
