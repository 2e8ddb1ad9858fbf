#!/bin/sh
# The preStop hook of a node of a shard: pre-stop.sh PORT TIMEOUT SETTLE [FLAG…], with the flags that dunlin's clients need (--tls …).
# DUNLIN_PASSWORD is the password, DUNLIN_USER the user, if it is not `default`.
#
#   1. While the node is its shard's primary, asks the shard's other nodes to take over, one after the other (CLUSTER FAILOVER, which
#      loses nothing, and which a replica refuses that lacks something). A replica only waits for another node of its shard to be
#      online. Either lasts TIMEOUT seconds at most.
#   2. Waits SETTLE seconds, while Services forget the pod and clients that still come are sent on.
#
# SIGTERM, which follows, hands over as well; it does not wait for a replica that has yet to come, and leaves clients no time.
# Needs `sleep`, the program, and nothing else of the container.
set -u
dunlin=${DUNLIN:-/usr/bin/dunlin}
port=$1 timeout=$2 settle=$3
shift 3
[ -z "${DUNLIN_PASSWORD:-}" ] || set -- "$@" -a "$DUNLIN_PASSWORD"
[ -z "${DUNLIN_USER:-}" ] || set -- "$@" --user "$DUNLIN_USER"

# Reads `dunlin cluster nodes`: NODE ADDRESS NAME HEALTH STATE ROLE SHARD …, with a star behind the id of the node that is asked.
# Sets own_role; online, the addresses of the shard's other nodes that are online; and others, how many it has.
look() {
    own_role='' own_shard='' online='' others=0
    listed=$("$dunlin" cluster nodes -h 127.0.0.1 -p "$port" "$@" 2>/dev/null) || return 1
    while read -r node _ _ _ _ role shard _; do
        case $node in *\*) own_role=$role own_shard=$shard ;; esac
    done <<END
$listed
END
    [ -n "$own_shard" ] || return 1
    # A drained node, or one that has only come, has nothing to hand over.
    [ "$own_shard" != - ] || return 0
    while read -r node address _ health _ _ shard _; do
        case $node in *\*) continue ;; esac
        [ "$shard" = "$own_shard" ] || continue
        others=$((others + 1))
        [ "$health" != online ] || online="$online $address"
    done <<END
$listed
END
}

waited=0
while [ "$waited" -lt "$timeout" ]; do
    if look "$@"; then
        if [ "$others" -eq 0 ]; then
            echo "pre-stop: no other node has this node's data"
            break
        elif [ "$own_role" != primary ] && [ -n "$online" ]; then
            echo "pre-stop: another node is the primary"
            break
        elif [ "$own_role" = primary ]; then
            for address in $online; do
                if "$dunlin" bench -h "${address%:*}" -p "${address##*:}" "$@" -c 1 -n 1 -q CLUSTER FAILOVER >/dev/null 2>&1; then
                    echo "pre-stop: $address takes over"
                    break
                fi
            done
        fi
    fi
    sleep 1
    waited=$((waited + 1))
done
[ "$waited" -lt "$timeout" ] || echo "pre-stop: no node took over within $timeout s"
sleep "$settle"
