#!/usr/bin/env bash
# etcd and six nodes on this machine: three shards with a replica each, on ports 7001 to 7006. All of it ends with Ctrl-C.
#   scripts/cluster.sh DUNLIN
set -euo pipefail

dunlin=$1
ports=(7001 7002 7003 7004 7005 7006)
command -v etcd >/dev/null || { echo "etcd is missing: apt-get install etcd-server" >&2; exit 1; }

folder=$(mktemp -d "${TMPDIR:-/tmp}/dunlin-cluster.XXXXXX")
pids=()
end() {
    trap - EXIT INT TERM
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$folder"
}
trap end EXIT INT TERM

client=http://127.0.0.1:7079 peer=http://127.0.0.1:7080
etcd --data-dir "$folder/etcd" --name one --listen-client-urls $client --advertise-client-urls $client \
    --listen-peer-urls $peer --initial-advertise-peer-urls $peer --initial-cluster one=$peer >"$folder/etcd.log" 2>&1 &
pids+=($!)
for port in "${ports[@]}"; do
    mkdir "$folder/$port"
    "$dunlin" server --port "$port" --dir "$folder/$port" --threads 1 --save "" \
        --cluster-join etcd://127.0.0.1:7079/local --cluster-replicas 1 >"$folder/$port.log" 2>&1 &
    pids+=($!)
done
echo "etcd and ${#ports[@]} nodes are starting; their files are in $folder"
echo "  redis-cli -c -p 7001          redis-cli --cluster check 127.0.0.1:7001          Ctrl-C ends all of it"
wait -n
echo "a process has ended:" >&2
tail -n 3 "$folder"/*.log >&2
exit 1
