<?php
// phpredis and Predis as drivers; test_cluster_clients.py has the protocol. The first argument names the library.
// One worker: PHP has no threads. It looks for orders between two steps.

const KEYS = 32;
const PAUSE_US = 4000;
const SCRIPT = "return redis.call('incrby', KEYS[1], ARGV[1])";
const PAIR = "return {redis.call('incr', KEYS[1]), redis.call('incr', KEYS[2])}";

// Predis of Debian is older than PHP 8.2.
error_reporting(E_ALL & ~E_DEPRECATED);
set_error_handler(function ($kind, $text) {
    if (error_reporting() & $kind) {
        throw new ErrorException($text);
    }
});

[, $library, $mode, $list] = $argv;
$addresses = explode(',', $list);
$name = $argv[4] ?? null;

function expect($what, $got, $wanted)
{
    if ($got != $wanted) {
        throw new Exception("$what: got " . json_encode($got) . ', want ' . json_encode($wanted));
    }
}

/** RedisCluster of the extension. */
class PhpRedisCluster
{
    private $client;

    public function __construct($addresses)
    {
        $this->client = new RedisCluster(null, $addresses);
    }

    public function incr($key)
    {
        return $this->client->incr($key);
    }

    public function get($key)
    {
        return $this->client->get($key);
    }

    public function pair($c, $d)
    {
        // A transaction of this library does not follow a redirection; a script does the same.
        return $this->client->eval(PAIR, [$c, $d], 2);
    }

    public function check($prefix)
    {
        [$client, $a, $b] = [$this->client, "{{$prefix}}a", "{{$prefix}}b"];
        for ($at = 0; $at < 200; $at++) {
            expect('SET', $client->set("$prefix:$at", $at), true);
        }
        for ($at = 0; $at < 200; $at++) {
            expect('GET', $client->get("$prefix:$at"), $at);
        }
        expect('MSET', $client->mset([$a => 1, $b => 2]), true);
        expect('MGET', $client->mget([$a, $b]), [1, 2]);
        $client->multi();
        $client->incr($a);
        $client->incr($b);
        expect('EXEC', $client->exec(), [2, 3]);
        expect('EVAL', $client->eval(SCRIPT, [$a, 40], 1), 42);
        // The library splits it by slots.
        expect('MGET of slots', $client->mget(["$prefix:1", "$prefix:2"]), [1, 2]);
        $found = 0;
        foreach ($client->_masters() as $node) {
            $found += count($client->keys("$prefix:*") ?: []);
            break;
        }
        expect('KEYS', $found, 200);
    }
}

/** Redis of the extension, at the address that its class RedisSentinel finds. */
class PhpRedisSentinel
{
    private $addresses;
    private $name;
    private $client;

    public function __construct($addresses, $name)
    {
        [$this->addresses, $this->name, $this->client] = [$addresses, $name, null];
    }

    private function client()
    {
        foreach ($this->client ? [] : $this->addresses as $address) {
            [$host, $port] = explode(':', $address);
            try {
                $found = (new RedisSentinel($host, (int) $port, 10))->getMasterAddrByName($this->name);
            } catch (RedisException $error) {
                continue;
            }
            if ($found) {
                $client = new Redis();
                $client->connect($found[0], (int) $found[1], 10);
                return $this->client = $client;
            }
        }
        return $this->client ?? throw new Exception('no Sentinel answers');
    }

    /** Runs a command; the connection is made anew after an error, as the library leaves to its users. */
    private function call($command)
    {
        $client = $this->client();
        try {
            $client->clearLastError();
            $value = $command($client);
            if ($client->getLastError()) {
                throw new Exception($client->getLastError());
            }
            return $value;
        } catch (Throwable $error) {
            $this->client = null;
            throw $error;
        }
    }

    public function incr($key)
    {
        return $this->call(fn ($client) => $client->incr($key));
    }

    public function get($key)
    {
        return $this->call(fn ($client) => $client->get($key));
    }

    public function pair($c, $d)
    {
        return $this->call(fn ($client) => $client->multi()->incr($c)->incr($d)->exec());
    }

    public function check($prefix)
    {
        expect('MSET', $this->call(fn ($client) => $client->mset(["{$prefix}a" => 1, "{$prefix}b" => 2])), true);
        expect('EXEC', $this->pair("{$prefix}a", "{$prefix}b"), [2, 3]);
    }
}

/** Predis, with its cluster of redis-server, or its replication by Sentinel. */
class Predis
{
    private $nodes;
    private $options;
    private $client;

    public function __construct($addresses, $name)
    {
        require_once 'Predis/Autoloader.php';
        Predis\Autoloader::register();
        $this->nodes = array_map(fn ($address) => "tcp://$address?timeout=10", $addresses);
        $this->options = $name ? ['replication' => 'sentinel', 'service' => $name] : ['cluster' => 'redis'];
        $this->client = new Predis\Client($this->nodes, $this->options);
    }

    /** Runs a command. The library drops Sentinels that fail until it has none: it is made for clients that live for a request. */
    private function call($command)
    {
        try {
            return $command($this->client);
        } catch (Predis\ClientException $error) {
            $this->client = new Predis\Client($this->nodes, $this->options);
            throw $error;
        }
    }

    public function incr($key)
    {
        return $this->call(fn ($client) => $client->incr($key));
    }

    public function get($key)
    {
        // A script, which the library does not send to replicas: they may be a moment behind.
        return $this->call(fn ($client) => $client->eval("return redis.call('get', KEYS[1])", 1, $key));
    }

    public function pair($c, $d)
    {
        // The library has no transactions on several nodes; a script does the same.
        return $this->call(fn ($client) => $client->eval(PAIR, 2, $c, $d));
    }

    public function check($prefix)
    {
        [$client, $a, $b] = [$this->client, "{{$prefix}}a", "{{$prefix}}b"];
        for ($at = 0; $at < 200; $at++) {
            expect('SET', (string) $client->set("$prefix:$at", $at), 'OK');
        }
        $got = $client->pipeline(function ($pipe) use ($prefix) {
            for ($at = 0; $at < 200; $at++) {
                $pipe->get("$prefix:$at");
            }
        });
        expect('GET', $got, range(0, 199));
        $client->mset([$a => 1, $b => 2]);
        expect('MGET', $client->mget([$a, $b]), [1, 2]);
        expect('EVAL', $this->pair($a, $b), [2, 3]);
    }
}

function connect($library, $addresses, $name)
{
    if ($library === 'predis') {
        return new Predis($addresses, $name);
    }
    return $name ? new PhpRedisSentinel($addresses, $name) : new PhpRedisCluster($addresses);
}

class Load
{
    public $runs = false;
    private $client;
    private $counters = [];
    private $steps = 0;
    private $done;
    private $errors;
    private $doubled;
    private $lost;
    private $longest;
    private $texts;

    public function __construct($client)
    {
        $this->client = $client;
        $this->forget();
    }

    private function forget()
    {
        [$this->done, $this->errors, $this->doubled, $this->lost, $this->longest, $this->texts] = [0, 0, 0, 0, 0, []];
    }

    public function start($prefix)
    {
        for ($at = 0; $at < KEYS; $at++) {
            $this->counters[] = ['key' => "{{$prefix}-$at}", 'last' => [0, 0], 'unknown' => [0, 0]];
        }
        $this->runs = true;
    }

    public function step()
    {
        $counter = &$this->counters[$this->steps % KEYS];
        $kind = intdiv($this->steps++, KEYS) % 4;
        [$c, $d, $began] = [$counter['key'] . 'c', $counter['key'] . 'd', hrtime(true)];
        try {
            $got = $kind === 2 ? $this->client->pair($c, $d) : [$kind === 3 ? (int) $this->client->get($c) : $this->client->incr($c)];
            foreach ((array) $got as $value) {
                if (!is_int($value)) {
                    throw new Exception('got ' . json_encode($got));
                }
            }
        } catch (Throwable $error) {
            $got = null;
        }
        $this->longest = max($this->longest, intdiv(hrtime(true) - $began, 1000000));
        if ($got === null) {
            $this->errors++;
            if (count($this->texts) < 5) {
                $this->texts[] = get_class($error) . ' ' . $error->getMessage();
            }
            $counter['unknown'][0] += $kind === 3 ? 0 : 1;
            $counter['unknown'][1] += $kind === 2 ? 1 : 0;
            return;
        }
        $this->done++;
        foreach ($got as $at => $value) {
            $next = $counter['last'][$at] + ($kind === 3 ? 0 : 1);
            if ($value < $next) {
                $this->lost++;
            } elseif (!$counter['unknown'][$at]) {
                $this->doubled += $value - $next;
            }
            if ($kind !== 3) {
                $counter['last'][$at] = $value;
            }
        }
    }

    public function report()
    {
        $line = "$this->done $this->errors $this->doubled $this->lost $this->longest " . implode(' | ', $this->texts);
        $this->forget();
        return $line;
    }

    public function stop()
    {
        $this->runs = false;
        return implode(' ', array_map(fn ($one) => "{$one['key']}c={$one['last'][0]}:{$one['unknown'][0]} "
            . "{$one['key']}d={$one['last'][1]}:{$one['unknown'][1]}", $this->counters));
    }
}

$client = connect($library, $addresses, $name);
$load = new Load($client);
while (true) {
    if ($load->runs) {
        [$read, $write, $except] = [[STDIN], [], []];
        if (!stream_select($read, $write, $except, 0, PAUSE_US)) {
            $load->step();
            continue;
        }
    }
    $line = fgets(STDIN);
    if ($line === false) {
        break;
    }
    $words = explode(' ', trim($line));
    try {
        $answer = 'ok ' . match ($words[0]) {
            'check' => $client->check($words[1]),
            'load' => $load->start($words[1]),
            'report' => $load->report(),
            'stop' => $load->stop(),
        };
    } catch (Throwable $error) {
        $answer = 'failed ' . get_class($error) . ' ' . $error->getMessage();
    }
    echo preg_replace('/\s+/', ' ', $answer), "\n";
    flush();
}
