"""A JSON document of 120 MB is set, read, filtered, changed and cut while another client asks for a string: how long that client
waits.

    DUNLIN=target/release/dunlin tests/.env/bin/python tests/json/large.py
"""

import json
import multiprocessing
import pathlib
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from harness import Server
from wire import command

CALLS = [
    ("JSON.GET", "k"),
    ("JSON.GET", "k", "$[?(@.price>190000)].id"),
    ("JSON.NUMINCRBY", "k", "$..price", 1),
    ("JSON.NUMINCRBY", "k", "$[5].price", 1),
    ("JSON.DEL", "k", "$[100:700000]"),
    ("JSON.SET", "k", "$", 1),
]


def ask_on(port, queue, stop):
    """Asks for a string each millisecond; gives the times at which answers came, and how long each took."""
    client, taken = socket.create_connection(("127.0.0.1", port)), []
    while not stop.is_set():
        begun = time.perf_counter()
        client.sendall(b"GET x\r\n")
        client.recv(100)
        taken.append((time.perf_counter(), time.perf_counter() - begun))
        time.sleep(0.001)
    queue.put(taken)


def skip(client):
    """Reads a reply that is no array."""
    head = client.recv(1 << 20)
    left = 0
    if head[:1] == b"$" and head[1:2] != b"-":
        line = head.index(b"\r\n")
        left = line + 4 + int(head[1:line]) - len(head)
    while left > 0:
        left -= len(client.recv(min(left, 1 << 22)))


def main():
    record = lambda n: {"id": n, "name": f"record {n}", "tags": ["a", "b"], "price": n / 4, "text": "x" * 60}
    document = json.dumps([record(n) for n in range(800_000)]).encode()
    queue, stop = multiprocessing.Queue(), multiprocessing.Event()
    with Server() as server:
        asking = multiprocessing.Process(target=ask_on, args=(server.port, queue, stop))
        asking.start()
        client, calls = socket.create_connection(("127.0.0.1", server.port)), []
        for words in [("JSON.SET", "k", "$", document), *CALLS]:
            request, begun = command(*words), time.perf_counter()
            client.sendall(request)
            skip(client)
            calls.append((" ".join(str(word)[:30] for word in words), begun, time.perf_counter()))
            time.sleep(0.2)
        stop.set()
        taken = queue.get()
        asking.join()
    print("| command | its time, s | others: p99.9, ms | longest, ms |\n|---|---:|---:|---:|")
    for shown, begun, ended in calls:
        # What the command leaves to be done in the background counts, too.
        waits = sorted(took for at, took in taken if begun <= at and at - took <= ended + 0.2)
        print(f"| {shown} | {ended - begun:.3f} | {waits[int(len(waits) * 0.999)] * 1e3:.1f} | {waits[-1] * 1e3:.1f} |")


if __name__ == "__main__":
    main()
