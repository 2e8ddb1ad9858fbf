import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import redis.clients.jedis.AbstractPipeline;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.JedisSentinelPool;
import redis.clients.jedis.JedisShardedPubSub;
import redis.clients.jedis.Response;

/** JedisCluster, and JedisSentinelPool. */
final class JedisClients {
  private JedisClients() {}

  static Driver.Client connect(List<String> addresses, String name) {
    Set<HostAndPort> nodes = addresses.stream().map(HostAndPort::from).collect(Collectors.toSet());
    JedisClientConfig config = DefaultJedisClientConfig.builder().timeoutMillis(Driver.TIMEOUT_MS).build();
    if (name == null) {
      // All attempts together take as long as the library has them take with its own timeout.
      return new Cluster(new JedisCluster(nodes, config, JedisCluster.DEFAULT_MAX_ATTEMPTS, Duration.ofSeconds(10)));
    }
    return new Pool(new JedisSentinelPool(name, nodes, config, config));
  }

  static final class Cluster implements Driver.Client {
    final JedisCluster client;

    Cluster(JedisCluster client) {
      this.client = client;
    }

    @Override
    public long incr(String key) {
      return client.incr(key);
    }

    @Override
    public String get(String key) {
      return client.get(key);
    }

    /** The library has no transactions in a cluster; a script does the same. */
    @Override
    public long[] pair(String c, String d) {
      List<?> got = (List<?>) client.eval(Driver.PAIR, List.of(c, d), List.of());
      return new long[] {(Long) got.get(0), (Long) got.get(1)};
    }

    @Override
    public void check(String prefix) throws Exception {
      String a = "{" + prefix + "}a";
      String b = "{" + prefix + "}b";
      for (int at = 0; at < 200; at++) {
        Driver.expect("SET", client.set(prefix + ":" + at, "" + at), "OK");
      }
      List<Response<String>> got = new ArrayList<>();
      try (AbstractPipeline pipeline = client.pipelined()) {
        for (int at = 0; at < 200; at++) {
          got.add(pipeline.get(prefix + ":" + at));
        }
        pipeline.sync();
      }
      for (int at = 0; at < 200; at++) {
        Driver.expect("GET", got.get(at).get(), at);
      }
      Driver.expect("MSET", client.mset(a, "1", b, "2"), "OK");
      Driver.expect("MGET", client.mget(a, b), "[1, 2]");
      long[] pair = pair(a, b);
      Driver.expect("EVAL", pair[0] + " " + pair[1], "2 3");
      Driver.expect("EVAL", client.eval(Driver.SCRIPT, List.of(a), List.of("40")), 42);
      LinkedBlockingQueue<String> heard = new LinkedBlockingQueue<>();
      CountDownLatch[] ready = {new CountDownLatch(1), new CountDownLatch(1)};
      JedisPubSub listener = new JedisPubSub() {
        @Override
        public void onSubscribe(String channel, int count) {
          ready[0].countDown();
        }

        @Override
        public void onMessage(String channel, String message) {
          heard.add(message);
          unsubscribe();
        }
      };
      daemon(() -> client.subscribe(listener, prefix));
      ready[0].await(20, TimeUnit.SECONDS);
      client.publish(prefix, "hello");
      Driver.expect("message", heard.poll(20, TimeUnit.SECONDS), "hello");
      JedisShardedPubSub sharded = new JedisShardedPubSub() {
        @Override
        public void onSSubscribe(String channel, int count) {
          ready[1].countDown();
        }

        @Override
        public void onSMessage(String channel, String message) {
          heard.add(message);
          sunsubscribe();
        }
      };
      daemon(() -> client.ssubscribe(sharded, prefix));
      ready[1].await(20, TimeUnit.SECONDS);
      client.spublish(prefix, "hi");
      Driver.expect("smessage", heard.poll(20, TimeUnit.SECONDS), "hi");
    }
  }

  static final class Pool implements Driver.Client {
    final JedisSentinelPool pool;

    Pool(JedisSentinelPool pool) {
      this.pool = pool;
    }

    @Override
    public long incr(String key) {
      try (Jedis jedis = pool.getResource()) {
        return jedis.incr(key);
      }
    }

    @Override
    public String get(String key) {
      try (Jedis jedis = pool.getResource()) {
        return jedis.get(key);
      }
    }

    @Override
    public long[] pair(String c, String d) {
      try (Jedis jedis = pool.getResource(); AbstractTransaction transaction = jedis.multi()) {
        Response<Long> first = transaction.incr(c);
        Response<Long> second = transaction.incr(d);
        transaction.exec();
        return new long[] {first.get(), second.get()};
      }
    }

    @Override
    public void check(String prefix) {
      try (Jedis jedis = pool.getResource()) {
        Driver.expect("MSET", jedis.mset(prefix + "a", "1", prefix + "b", "2"), "OK");
        Driver.expect("MGET", jedis.mget(prefix + "a", prefix + "b"), "[1, 2]");
      }
      long[] pair = pair(prefix + "a", prefix + "b");
      Driver.expect("EXEC", pair[0] + " " + pair[1], "2 3");
    }
  }

  static void daemon(Runnable work) {
    Thread thread = new Thread(work);
    thread.setDaemon(true);
    thread.start();
  }
}
