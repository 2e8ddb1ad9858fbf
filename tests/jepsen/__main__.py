"""Plays clusters under faults and judges their histories: `make jepsen`, or in the folder `tests`:

    PYTHONPATH=lib .env/bin/python -m jepsen --system redis          # has to find lost writes
    PYTHONPATH=lib .env/bin/python -m jepsen --seed 7 --runs 1       # plays a seed again
    PYTHONPATH=lib .env/bin/python -m jepsen --judge FOLDER          # judges a kept history
"""

import argparse
import json
import pathlib
import sys
import time

from . import network, run, systems

HISTORIES = pathlib.Path(__file__).parent / "histories"


def main():
    parser = argparse.ArgumentParser(prog="jepsen", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", choices=systems.ALL, default="dunlin")
    parser.add_argument("--seed", type=int, help="the first seed [default: the time]")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=300, help="of each run")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--durability", choices=("async", "sync"), default="sync", help="of Dunlin's cluster")
    parser.add_argument("--directive", action="append", default=[], help="one more word of every node's command line")
    parser.add_argument("--calm", action="store_true", help="without faults")
    parser.add_argument("--judge", type=pathlib.Path, help="a folder with a history")
    arguments = parser.parse_args()
    if arguments.judge:
        records = [json.loads(line) for line in open(arguments.judge / "history.jsonl")]
        return report(records, run.judge(records))
    if reason := network.missing():
        print(f"jepsen: {reason}", file=sys.stderr)
        return 2
    network.enter()
    net = network.Network()
    first = arguments.seed if arguments.seed is not None else int(time.time())
    failed = 0
    for seed in range(first, first + arguments.runs):
        folder = HISTORIES / f"{arguments.system}-{seed}-{time.strftime('%Y%m%d-%H%M%S')}"
        kept = systems.KEPT[seed % len(systems.KEPT)]
        durability = ("--cluster-durability", arguments.durability) if arguments.system == "dunlin" else ()
        wrong = run.run(
            net,
            arguments.system,
            seed,
            arguments.seconds,
            folder,
            arguments.shards,
            arguments.replicas,
            is_calm=arguments.calm,
            directives=(*kept, *durability, *arguments.directive),
        )
        records = [json.loads(line) for line in open(folder / "history.jsonl")]
        print(f"{folder}:")
        failed += report(records, wrong)
        net.forget()
    print(f"{arguments.runs - failed} of {arguments.runs} runs are right")
    return min(failed, 1)


def report(records, wrong):
    print(f"    {run.summary(records)}: {'nothing is wrong' if not wrong else 'WRONG'}")
    for line in wrong:
        print(f"    {line}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
