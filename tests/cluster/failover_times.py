"""How long writes of one client pause while its shard's primary is killed, stopped, or asked to hand over.

    PYTHONPATH=tests/lib tests/.env/bin/python tests/cluster/failover_times.py [ROUNDS]

Two nodes, sync. The client gives up on a silent node after 0.2 s and asks the other one.
"""

import signal
import sys
import time

from etcd_cluster import Etcd, dunlin_nodes, until
from failovers import SYNC, Writer, answer, in_sync, list_of, restart, serving
from harness import suspend


def round_of(etcd, cluster, fault):
    until(lambda: in_sync(etcd), "both in sync")
    primary = until(lambda: serving(cluster.nodes), "a primary")
    other = next(node for node in cluster.nodes if node is not primary)
    writer = Writer(cluster.nodes, f"list:{time.monotonic()}", patience_s=0.2)
    writer.start()
    until(lambda: len(writer.acknowledged) > 200, "writes")
    writer.gap_s = 0.0
    if fault == "kill":
        primary.process.kill()
        primary.process.wait()
    elif fault == "stop":
        suspend(primary.process)
    else:
        until(lambda: answer(other, "CLUSTER", "FAILOVER") in (b"OK", True), "the order")
    until(lambda: serving([other]), other.log)
    time.sleep(0.5)
    writer.end()
    if fault == "kill":
        restart(primary, etcd, *SYNC)
    elif fault == "stop":
        primary.process.send_signal(signal.SIGCONT)
    writer.check(list_of(cluster.nodes, writer.key))
    return writer.gap_s, len(writer.errors)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with Etcd() as etcd, dunlin_nodes(etcd, 2, *SYNC, replicas=1) as cluster:
        for fault in ("kill", "stop", "hand over"):
            results = [round_of(etcd, cluster, fault) for _ in range(rounds)]
            pauses = sorted(pause for pause, _ in results)
            shown = " ".join(f"{pause:.3f}" for pause in pauses)
            print(f"{fault:>9}: median {pauses[len(pauses) // 2]:.3f} s, longest {pauses[-1]:.3f} s; {shown}", flush=True)


if __name__ == "__main__":
    main()
