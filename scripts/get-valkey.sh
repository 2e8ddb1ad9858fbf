#!/usr/bin/env bash
# scripts/get-valkey.sh FOLDER: a Valkey server, and its valkey-cli, in FOLDER/bin, for the tests that need an oracle newer than
# redis-server 7.0.
#
# A valkey-server on PATH is taken as it is. Otherwise Debian's packages of it, and of the libraries that it needs, are
# unpacked into FOLDER out of Debian's development release: nothing is installed, no list of packages of this system changes.
# Ends with one line on standard error, and code 1, where neither can be had.
set -euo pipefail
folder=${1:?usage: scripts/get-valkey.sh FOLDER}
release=sid
# The program itself is in valkey-tools: server and tools are one file under several names.
packages=(valkey-server valkey-tools libc6 libjemalloc2 liblzf1 libssl3t64 libsystemd0 libcap2 libgcc-s1 libatomic1 zlib1g libzstd1 libstdc++6)

refuse() {
    echo "no Valkey server: $*" >&2
    exit 1
}

works() { timeout 10 "$1" --version 2>/dev/null | grep -qi valkey; }

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
[ -x "$folder/bin/valkey-cli" ] && works "$folder/bin/valkey-server" && exit 0
rm -rf "${folder:?}"/{bin,root,debs,apt}
mkdir -p "$folder"/{bin,root,debs,apt/lists/partial,apt/cache/archives/partial}

installed=$(command -v valkey-server || true)
if [ -n "$installed" ] && works "$installed"; then
    ln -s "$installed" "$folder/bin/valkey-server"
    ! command -v valkey-cli >/dev/null || ln -s "$(command -v valkey-cli)" "$folder/bin/valkey-cli"
    exit 0
fi
for tool in apt-get dpkg; do
    command -v "$tool" >/dev/null || refuse "valkey-server is not on PATH, and without $tool it cannot be had from Debian's packages"
done

# The mirrors, and the proxy and keys, are those that the system is configured with.
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | grep -v security | head -n 1)
keys=$(find /usr/share/keyrings -name 'debian-archive-keyring.*' 2>/dev/null | sort | head -n 1)
[ -n "$keys" ] || refuse "this system has no keys of Debian's archive"
echo "deb [signed-by=$keys] ${mirror:-http://deb.debian.org/debian} $release main" >"$folder/apt/sources.list"
apt=(apt-get -qq
    -o "Dir::Etc::sourcelist=$folder/apt/sources.list" -o Dir::Etc::sourceparts=/nonexistent
    -o "Dir::State::lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt/cache"
    -o Dir::State::status=/dev/null -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)"
    -o APT::Update::Error-Mode=any -o Acquire::Retries=2 -o Acquire::http::Timeout=30)
timeout 300 "${apt[@]}" update >"$folder/apt/log" 2>&1 || refuse "apt-get update of Debian $release failed: $(tail -n 1 "$folder/apt/log")"
(cd "$folder/debs" && timeout 300 "${apt[@]}" download "${packages[@]}") >"$folder/apt/log" 2>&1 ||
    refuse "apt-get download of Debian $release failed: $(tail -n 1 "$folder/apt/log")"
for package in "$folder"/debs/*.deb; do
    dpkg -x "$package" "$folder/root" || refuse "$package cannot be unpacked"
done

# The program is newer than the libraries of this system, so it comes with its own loader.
server=$folder/root/usr/bin/valkey-server
libraries=$(dirname "$(find "$folder/root" -name libc.so.6 | head -n 1)")
loader=$(find "$libraries" -name 'ld-linux*.so.*' | head -n 1)
[ -x "$server" ] && [ -n "$loader" ] || refuse "Debian's packages have no program where it is expected"
for name in valkey-server valkey-cli; do
    cat >"$folder/bin/$name" <<END
#!/bin/sh
exec "$loader" --library-path "$libraries" --argv0 $name "$folder/root/usr/bin/$name" "\$@"
END
    chmod +x "$folder/bin/$name"
done
works "$folder/bin/valkey-server" || refuse "the program out of Debian's packages does not run here"
rm -rf "$folder"/{debs,apt}
