"""redis-py as a driver; test_cluster_clients.py has the protocol."""

import sys
import threading
import time

import redis
from redis.cluster import ClusterNode
from redis.sentinel import Sentinel

WORKERS, KEYS, PAUSE_S = 2, 32, 0.004
# A reply may take so long: the library's own five seconds are few for a machine that is busy, and what is late is sent again.
TIMEOUT_S = 10


class Driver:
    def __init__(self, mode, addresses, name=None):
        pairs = [(host, int(port)) for host, port in (address.rsplit(":", 1) for address in addresses.split(","))]
        if mode == "cluster":
            nodes = [ClusterNode(host, port) for host, port in pairs]
            self.client = redis.RedisCluster(startup_nodes=nodes, decode_responses=True, socket_timeout=TIMEOUT_S)
        else:
            self.client = Sentinel(pairs, decode_responses=True, socket_timeout=TIMEOUT_S).master_for(name)
        self.is_cluster = mode == "cluster"
        self.lock = threading.Lock()
        self.ends = threading.Event()
        self.threads, self.counters = [], []
        self.forget()

    def forget(self):
        self.done = self.errors = self.doubled = self.lost = self.longest = 0
        self.texts = []

    def check(self, prefix):
        client, tag = self.client, f"{{{prefix}}}"
        keys = [f"{prefix}:{number}" for number in range(200)]
        for number, key in enumerate(keys):
            assert client.set(key, number)
        with client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.incr(key)
            assert pipeline.execute() == list(range(1, 201))
        assert client.mset({tag + "a": 1, tag + "b": 2})
        assert client.mget(tag + "a", tag + "b") == ["1", "2"]
        with client.pipeline(transaction=True) as pipeline:
            pipeline.incr(tag + "a").incr(tag + "b")
            assert pipeline.execute() == [2, 3]
        script = client.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
        assert script(keys=[tag + "a"], args=[40]) == 42
        listener = client.pubsub()
        listener.subscribe(prefix)
        message = self.message(listener.get_message, lambda: client.publish(prefix, "hello"))
        assert message["data"] == "hello"
        listener.close()
        if self.is_cluster:
            listener = client.pubsub()
            listener.ssubscribe(prefix)
            message = self.message(listener.get_sharded_message, lambda: client.spublish(prefix, "hello"))
            assert message["data"] == "hello"
            listener.close()
            assert set(client.scan_iter(match=f"{prefix}:*", count=100)) == set(keys)
            assert client.mget_nonatomic(*keys) == [str(number) for number in range(1, 201)]
            try:
                client.mget(*keys)
            except redis.RedisClusterException:
                pass
            else:
                raise AssertionError("MGET of several slots")

    @staticmethod
    def message(get, publish):
        deadline, published = time.monotonic() + 20, False
        while time.monotonic() < deadline:
            found = get(timeout=1)
            if found and found["type"] in ("subscribe", "ssubscribe") and not published:
                publish()
                published = True
            elif found and found["type"] in ("message", "smessage"):
                return found
        raise AssertionError("no message")

    def load(self, prefix):
        for worker in range(WORKERS):
            counters = [{"key": f"{{{prefix}-{worker}-{at}}}", "c": [0, 0], "d": [0, 0]} for at in range(KEYS)]
            self.counters += counters
            self.threads.append(threading.Thread(target=self.work, args=(counters,)))
        for thread in self.threads:
            thread.start()

    def work(self, counters):
        step = 0
        while not self.ends.is_set():
            counter, kind = counters[step % KEYS], step // KEYS % 4
            self.step(counter, kind)
            step += 1
            time.sleep(PAUSE_S)

    def step(self, counter, kind):
        c, d = counter["key"] + "c", counter["key"] + "d"
        began = time.monotonic()
        try:
            if kind == 2:
                with self.client.pipeline(transaction=True) as pipeline:
                    got = dict(zip("cd", pipeline.incr(c).incr(d).execute()))
            elif kind == 3:
                got = int(self.client.get(c) or 0)
            else:
                got = {"c": self.client.incr(c)}
        except Exception as error:  # noqa: BLE001
            with self.lock:
                self.errors += 1
                if len(self.texts) < 5:
                    self.texts.append(f"{type(error).__name__} {error}")
            if kind != 3:
                counter["c"][1] += 1
                counter["d"][1] += kind == 2
            return
        finally:
            with self.lock:
                self.longest = max(self.longest, int((time.monotonic() - began) * 1000))
        with self.lock:
            self.done += 1
            if kind == 3:
                last, unknown = counter["c"]
                self.lost += got < last
                self.doubled += got - last if got > last and not unknown else 0
                return
            for name, value in got.items():
                last, unknown = counter[name]
                self.lost += value <= last
                self.doubled += value - last - 1 if value > last and not unknown else 0
                counter[name][0] = value

    def report(self):
        with self.lock:
            line = f"{self.done} {self.errors} {self.doubled} {self.lost} {self.longest} {' | '.join(self.texts)}"
            self.forget()
        return " ".join(line.split())

    def stop(self):
        self.ends.set()
        for thread in self.threads:
            thread.join()
        return " ".join(
            f"{counter['key']}{name}={counter[name][0]}:{counter[name][1]}" for counter in self.counters for name in "cd"
        )


def main():
    driver = Driver(*sys.argv[1:])
    for line in sys.stdin:
        word, *arguments = line.split()
        try:
            answer = f"ok {getattr(driver, word)(*arguments) or ''}"
        except Exception as error:  # noqa: BLE001
            answer = " ".join(f"failed {type(error).__name__} {error}".split())
        print(answer, flush=True)
    driver.ends.set()


main()
