"""Clusters under faults: real processes in network namespaces, histories of their clients, and checkers.

    network.py     the namespaces, and what can happen to their links
    systems.py     clusters of Dunlin, and of redis-server, which proves that the checkers find lost writes
    client.py      a connection that knows what became of each request: done, not done, or unknown
    workloads.py   lists in transactions, registers, counters, queues
    checkers.py    what no history may show
    faults.py      what befalls the nodes, and when
    run.py         one run: a seed, its history, its verdict
"""
