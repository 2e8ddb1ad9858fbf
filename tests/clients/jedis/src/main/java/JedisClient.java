import com.google.gson.Gson;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import redis.clients.jedis.AbstractPipeline;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.csc.CacheConfig;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/**
 * Jedis does real work against the server that the task on standard input names. Exits with 0 when every reply was as it
 * should be, else with 1 and the scenario that failed.
 */
public final class JedisClient {
  static final class Task {
    String network;
    String address;
    int protocol;
    int[] lengths;
    String ca;
    String cert;
    String key;
  }

  interface Scenario {
    void run(RedisClient redis, Task task) throws Exception;
  }

  public static void main(String[] arguments) throws Exception {
    Task task = new Gson().fromJson(new InputStreamReader(System.in, StandardCharsets.UTF_8), Task.class);
    try (RedisClient redis = connect(task, false)) {
      redis.flushAll();
      Map<String, Scenario> scenarios = new java.util.LinkedHashMap<>();
      scenarios.put("strings", JedisClient::strings);
      scenarios.put("expiry", JedisClient::expiry);
      scenarios.put("pipelines", JedisClient::pipelines);
      scenarios.put("scan", JedisClient::scan);
      scenarios.put("binary", JedisClient::binary);
      scenarios.put("lengths", JedisClient::lengths);
      scenarios.put("cache", JedisClient::cache);
      for (Map.Entry<String, Scenario> scenario : scenarios.entrySet()) {
        scenario.getValue().run(redis, task);
        System.out.println("ok " + scenario.getKey());
      }
    } catch (Throwable error) {
      error.printStackTrace(System.out);
      System.exit(1);
    }
  }

  static RedisClient connect(Task task, boolean cached) throws Exception {
    DefaultJedisClientConfig.Builder config = DefaultJedisClientConfig.builder().timeoutMillis(60_000);
    config = task.protocol == 3 ? config.resp3() : config.resp2();
    if (task.network.equals("tls")) {
      config = config.ssl(true).sslSocketFactory(trust(task).getSocketFactory());
    }
    String[] address = task.address.split(":");
    ConnectionPoolConfig pool = new ConnectionPoolConfig();
    pool.setMaxTotal(4);
    var builder = RedisClient.builder()
        .hostAndPort(new HostAndPort("localhost", Integer.parseInt(address[1])))
        .clientConfig(config.build())
        .poolConfig(pool);
    return (cached ? builder.cacheConfig(CacheConfig.builder().build()) : builder).build();
  }

  /** The authority that the server's certificate is checked by, and the certificate that the client shows. */
  static SSLContext trust(Task task) throws Exception {
    CertificateFactory certificates = CertificateFactory.getInstance("X.509");
    KeyStore store = KeyStore.getInstance("PKCS12");
    store.load(null, null);
    try (var authority = Files.newInputStream(Path.of(task.ca)); var own = Files.newInputStream(Path.of(task.cert))) {
      store.setCertificateEntry("authority", certificates.generateCertificate(authority));
      String text = Files.readString(Path.of(task.key)).replaceAll("-----[A-Z ]+-----|\\s", "");
      var key = KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(text)));
      store.setKeyEntry("client", key, new char[0], new Certificate[] {certificates.generateCertificate(own)});
    }
    var keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
    keys.init(store, new char[0]);
    var trusted = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trusted.init(store);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(keys.getKeyManagers(), trusted.getTrustManagers(), null);
    return context;
  }

  static void check(String what, Object got, Object wanted) {
    boolean same = got instanceof byte[] ? Arrays.equals((byte[]) got, (byte[]) wanted) : java.util.Objects.equals(got, wanted);
    if (!same) throw new AssertionError(what + ": got " + got + ", wanted " + wanted);
  }

  /** Bytes in which no part looks like its neighbour. */
  static byte[] pattern(int size) {
    byte[] bytes = new byte[size];
    int state = 1;
    for (int at = 0; at < size; at++) {
      state = state * 1664525 + 1013904223;
      bytes[at] = (byte) (state >>> 24);
    }
    return bytes;
  }

  static void strings(RedisClient redis, Task task) {
    check("SET", redis.set("greeting", "hello"), "OK");
    check("APPEND", redis.append("greeting", " world"), 11L);
    check("GET", redis.get("greeting"), "hello world");
    check("GETRANGE", redis.getrange("greeting", -5, -1), "world");
    check("SET NX", redis.set("greeting", "no", SetParams.setParams().nx()), null);
    check("INCRBY", redis.incrBy("counter", 41), 41L);
    check("INCR", redis.incr("counter"), 42L);
    check("INCRBYFLOAT", redis.incrByFloat("float", 0.5), 0.5);
    check("MSET", redis.mset("a", "1", "b", "2"), "OK");
    check("MGET", redis.mget("a", "nothing", "b"), Arrays.asList("1", null, "2"));
    try {
      redis.incr("greeting");
      throw new AssertionError("INCR of text succeeds");
    } catch (JedisDataException error) {
      check("INCR of text", error.getMessage().contains("not an integer"), true);
    }
  }

  static void expiry(RedisClient redis, Task task) throws InterruptedException {
    redis.psetex("short", 20, "v");
    redis.setex("long", 1000, "v");
    long ttl = redis.ttl("long");
    check("TTL", ttl > 990 && ttl <= 1000, true);
    check("PERSIST", redis.persist("long"), 1L);
    for (long deadline = System.nanoTime() + 60_000_000_000L; redis.exists("short"); Thread.sleep(1)) {
      check("the key has gone in time", System.nanoTime() < deadline, true);
    }
  }

  static void pipelines(RedisClient redis, Task task) {
    List<Response<String>> replies = new ArrayList<>();
    try (AbstractPipeline pipeline = redis.pipelined()) {
      for (int n = 0; n < 10_000; n++) {
        pipeline.set("key:" + n, String.valueOf(n));
        replies.add(pipeline.get("key:" + n));
      }
    }
    for (int n = 0; n < 10_000; n++) check("pipelined GET", replies.get(n).get(), String.valueOf(n));
  }

  static void scan(RedisClient redis, Task task) {
    Set<String> met = new HashSet<>();
    String cursor = ScanParams.SCAN_POINTER_START;
    do {
      ScanResult<String> page = redis.scan(cursor, new ScanParams().match("key:*").count(100));
      met.addAll(page.getResult());
      cursor = page.getCursor();
    } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
    check("keys that SCAN has met", met.size(), 10_000);
  }

  static void binary(RedisClient redis, Task task) {
    byte[] everyByte = new byte[256];
    for (int n = 0; n < 256; n++) everyByte[n] = (byte) n;
    redis.set(everyByte, everyByte);
    check("every byte", redis.get(everyByte), everyByte);
  }

  static void lengths(RedisClient redis, Task task) {
    byte[] block = pattern((16 << 20) + 512);
    byte[] key = "value".getBytes(StandardCharsets.UTF_8);
    for (int length : task.lengths) {
      byte[] value = Arrays.copyOfRange(block, length % 251, length % 251 + length);
      redis.set(key, value);
      check("STRLEN", redis.strlen(key), (long) length);
      check("length " + length, redis.get(key), value);
    }
  }

  /** A cached value is never older than a reply that its reader has had: one client counts, the other one reads. */
  static void cache(RedisClient redis, Task task) throws Exception {
    if (task.protocol != 3) return;
    try (RedisClient cached = connect(task, true)) {
      for (int n = 1; n <= 2_000; n++) {
        redis.set("cached", String.valueOf(n));
        redis.set("fence", String.valueOf(n));
        check("fence", cached.get("fence"), String.valueOf(n));
        check("cached", cached.get("cached"), String.valueOf(n));
      }
      check("the cache has been used", cached.getCache().getStats().getHitCount() + cached.getCache().getSize() > 0, true);
    }
  }
}
