import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;

/** Jedis and Lettuce as drivers; test_cluster_clients.py has the protocol. The first argument names the library. */
public final class Driver {
  /** A client of a library: what the load needs, and the library's own checks. */
  interface Client {
    long incr(String key) throws Exception;

    /** Null where the key is missing. */
    String get(String key) throws Exception;

    /** Increments both keys of one slot in one step. */
    long[] pair(String c, String d) throws Exception;

    void check(String prefix) throws Exception;
  }

  static final class Counter {
    final String key;
    /** Of c and d: the last reply, and the attempts whose outcome is unknown. */
    final long[] last = new long[2];
    final long[] unknown = new long[2];

    Counter(String key) {
      this.key = key;
    }
  }

  static final int WORKERS = 2;
  static final int KEYS = 32;
  static final int PAUSE_MS = 4;
  /** A reply may take so long: two seconds are few for a machine that is busy. */
  static final int TIMEOUT_MS = 10_000;
  static final String PAIR = "return {redis.call('incr', KEYS[1]), redis.call('incr', KEYS[2])}";
  static final String SCRIPT = "return redis.call('incrby', KEYS[1], ARGV[1])";

  final Client client;
  final List<Counter> counters = new ArrayList<>();
  final List<Thread> threads = new ArrayList<>();
  volatile boolean ends;
  long done;
  long errors;
  long doubled;
  long lost;
  long longest;
  final List<String> texts = new ArrayList<>();

  Driver(Client client) {
    this.client = client;
  }

  static void expect(String what, Object got, Object wanted) {
    if (!String.valueOf(got).equals(String.valueOf(wanted))) {
      throw new AssertionError(what + ": got " + got + ", want " + wanted);
    }
  }

  void load(String prefix) {
    for (int worker = 0; worker < WORKERS; worker++) {
      List<Counter> own = new ArrayList<>();
      for (int at = 0; at < KEYS; at++) {
        own.add(new Counter("{" + prefix + "-" + worker + "-" + at + "}"));
      }
      counters.addAll(own);
      Thread thread = new Thread(() -> work(own));
      thread.setDaemon(true);
      threads.add(thread);
    }
    threads.forEach(Thread::start);
  }

  void work(List<Counter> own) {
    for (int step = 0; !ends; step++) {
      step(own.get(step % KEYS), step / KEYS % 4);
      try {
        Thread.sleep(PAUSE_MS);
      } catch (InterruptedException error) {
        return;
      }
    }
  }

  void step(Counter counter, int kind) {
    long began = System.nanoTime();
    long[] got = null;
    String text = null;
    try {
      if (kind == 2) {
        got = client.pair(counter.key + "c", counter.key + "d");
      } else if (kind == 3) {
        String value = client.get(counter.key + "c");
        got = new long[] {value == null ? 0 : Long.parseLong(value)};
      } else {
        got = new long[] {client.incr(counter.key + "c")};
      }
    } catch (Exception error) {
      text = String.valueOf(error) + (error.getCause() == null ? "" : " <- " + error.getCause());
    }
    synchronized (this) {
      longest = Math.max(longest, (System.nanoTime() - began) / 1_000_000);
      if (got == null) {
        errors++;
        if (texts.size() < 5) {
          texts.add(text);
        }
        counter.unknown[0] += kind == 3 ? 0 : 1;
        counter.unknown[1] += kind == 2 ? 1 : 0;
        return;
      }
      done++;
      for (int at = 0; at < got.length; at++) {
        long next = counter.last[at] + (kind == 3 ? 0 : 1);
        if (got[at] < next) {
          lost++;
        } else if (counter.unknown[at] == 0) {
          doubled += got[at] - next;
        }
        if (kind != 3) {
          counter.last[at] = got[at];
        }
      }
    }
  }

  synchronized String report() {
    String line = String.join(" ", "" + done, "" + errors, "" + doubled, "" + lost, "" + longest, String.join(" | ", texts));
    done = errors = doubled = lost = longest = 0;
    texts.clear();
    return line;
  }

  String stop() throws InterruptedException {
    ends = true;
    for (Thread thread : threads) {
      thread.join();
    }
    return counters.stream()
        .map(counter -> String.format("%1$sc=%2$d:%3$d %1$sd=%4$d:%5$d", counter.key, counter.last[0], counter.unknown[0],
            counter.last[1], counter.unknown[1]))
        .collect(Collectors.joining(" "));
  }

  String answer(String[] words) throws Exception {
    switch (words[0]) {
      case "check":
        client.check(words[1]);
        return "ok";
      case "load":
        load(words[1]);
        return "ok";
      case "report":
        return "ok " + report();
      default:
        return "ok " + stop();
    }
  }

  public static void main(String[] arguments) throws Exception {
    boolean isCluster = arguments[1].equals("cluster");
    List<String> addresses = Arrays.asList(arguments[2].split(","));
    String name = isCluster ? null : arguments[3];
    Driver driver = new Driver(arguments[0].equals("jedis") ? JedisClients.connect(addresses, name) : LettuceClients.connect(addresses, name));
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String answer;
      try {
        answer = driver.answer(line.trim().split(" "));
      } catch (Exception | AssertionError error) {
        answer = "failed " + error + " " + Arrays.toString(error.getStackTrace());
      }
      System.out.println(answer.replaceAll("\\s+", " "));
    }
    System.exit(0);
  }
}
