import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.pubsub.StatefulRedisClusterPubSubConnection;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.masterreplica.MasterReplica;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/** Lettuce's cluster client, with the refresh of the topology that its documentation advises, and its client of Sentinel. */
final class LettuceClients {
  static final Duration TIMEOUT = Duration.ofMillis(Driver.TIMEOUT_MS);

  private LettuceClients() {}

  static Driver.Client connect(List<String> addresses, String name) {
    if (name == null) {
      RedisClusterClient client = RedisClusterClient.create(
          addresses.stream().map(address -> RedisURI.create("redis://" + address)).collect(Collectors.toList()));
      client.setOptions(ClusterClientOptions.builder()
          .topologyRefreshOptions(ClusterTopologyRefreshOptions.builder()
              .enablePeriodicRefresh(Duration.ofSeconds(1))
              .enableAllAdaptiveRefreshTriggers()
              .build())
          // Commands that were sent to a node that is gone would wait for it for a minute.
          .timeoutOptions(TimeoutOptions.enabled(TIMEOUT))
          .build());
      return new Cluster(client);
    }
    RedisURI.Builder address = null;
    for (String node : addresses) {
      String host = node.substring(0, node.indexOf(':'));
      int port = Integer.parseInt(node.substring(node.indexOf(':') + 1));
      address = address == null ? RedisURI.Builder.sentinel(host, port, name) : address.withSentinel(host, port);
    }
    return new One(RedisClient.create(), address.build());
  }

  static void all(List<? extends RedisFuture<?>> futures) {
    Driver.expect("all in time", LettuceFutures.awaitAll(Duration.ofSeconds(20), futures.toArray(new RedisFuture[0])), true);
  }

  static final class Cluster implements Driver.Client {
    final RedisClusterClient client;
    final StatefulRedisClusterConnection<String, String> connection;

    Cluster(RedisClusterClient client) {
      this.client = client;
      connection = client.connect();
      connection.setTimeout(TIMEOUT);
    }

    @Override
    public long incr(String key) {
      return connection.sync().incr(key);
    }

    @Override
    public String get(String key) {
      return connection.sync().get(key);
    }

    /** The library has transactions on connections to one node only, which no redirection follows: a script does the same. */
    @Override
    public long[] pair(String c, String d) {
      List<Long> got = connection.sync().eval(Driver.PAIR, ScriptOutputType.MULTI, c, d);
      return new long[] {got.get(0), got.get(1)};
    }

    @Override
    public void check(String prefix) throws Exception {
      String a = "{" + prefix + "}a";
      String b = "{" + prefix + "}b";
      List<RedisFuture<?>> sets = new ArrayList<>();
      for (int at = 0; at < 200; at++) {
        sets.add(connection.async().set(prefix + ":" + at, "" + at));
      }
      all(sets);
      List<RedisFuture<String>> gets = new ArrayList<>();
      for (int at = 0; at < 200; at++) {
        gets.add(connection.async().get(prefix + ":" + at));
      }
      all(gets);
      for (int at = 0; at < 200; at++) {
        Driver.expect("GET", gets.get(at).get(), at);
      }
      connection.sync().mset(java.util.Map.of(a, "1", b, "2"));
      Driver.expect("MGET", connection.sync().mget(a, b), "[KeyValue[" + a + ", 1], KeyValue[" + b + ", 2]]");
      long[] pair = pair(a, b);
      Driver.expect("EVAL", pair[0] + " " + pair[1], "2 3");
      RedisClusterNode node = connection.getPartitions().getPartitionBySlot(io.lettuce.core.cluster.SlotHash.getSlot(a));
      StatefulRedisConnection<String, String> own = connection.getConnection(node.getNodeId());
      own.sync().multi();
      own.sync().incr(a);
      own.sync().incr(b);
      TransactionResult result = own.sync().exec();
      Driver.expect("EXEC", result.get(0) + " " + result.get(1), "3 4");
      LinkedBlockingQueue<String> heard = new LinkedBlockingQueue<>();
      try (StatefulRedisClusterPubSubConnection<String, String> listener = client.connectPubSub()) {
        listener.addListener(new RedisPubSubAdapter<>() {
          @Override
          public void message(String channel, String message) {
            heard.add(message);
          }

          @Override
          public void smessage(String channel, String message) {
            heard.add("sharded " + message);
          }
        });
        listener.sync().subscribe(prefix);
        connection.sync().publish(prefix, "hello");
        Driver.expect("message", heard.poll(20, TimeUnit.SECONDS), "hello");
        listener.sync().ssubscribe(prefix);
        connection.sync().spublish(prefix, "hi");
        Driver.expect("smessage", heard.poll(20, TimeUnit.SECONDS), "sharded hi");
      }
      // Commands of several slots are split by the library.
      Driver.expect("MGET of slots", connection.sync().mget(prefix + ":1", prefix + ":2").size(), 2);
      Driver.expect("DBSIZE", connection.sync().dbsize() >= 200, true);
    }
  }

  static final class One implements Driver.Client {
    final StatefulRedisConnection<String, String> connection;

    One(RedisClient client, RedisURI address) {
      connection = MasterReplica.connect(client, StringCodec.UTF8, address);
      connection.setTimeout(TIMEOUT);
    }

    @Override
    public long incr(String key) {
      return connection.sync().incr(key);
    }

    @Override
    public String get(String key) {
      return connection.sync().get(key);
    }

    /** Two threads share the connection, so a transaction of one would have commands of the other in it. */
    @Override
    public long[] pair(String c, String d) {
      List<Long> got = connection.sync().eval(Driver.PAIR, ScriptOutputType.MULTI, c, d);
      return new long[] {got.get(0), got.get(1)};
    }

    @Override
    public void check(String prefix) {
      connection.sync().mset(java.util.Map.of(prefix + "a", "1", prefix + "b", "2"));
      Driver.expect("MGET", connection.sync().mget(prefix + "a", prefix + "b").size(), 2);
      connection.sync().multi();
      connection.sync().incr(prefix + "a");
      connection.sync().incr(prefix + "b");
      TransactionResult result = connection.sync().exec();
      Driver.expect("EXEC", result.get(0) + " " + result.get(1), "2 3");
    }
  }
}
