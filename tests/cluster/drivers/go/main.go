// go-redis as a driver; test_cluster_clients.py has the protocol.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	workers = 2
	keys    = 32
	pause   = 4 * time.Millisecond
	// A reply may take so long: the library's own three seconds are few for a machine that is busy, and what is late is sent again.
	timeout = 10 * time.Second
)

var ctx = context.Background()

type counter struct {
	key string
	// Of c and d: the last reply, and the attempts whose outcome is unknown.
	last, unknown [2]int64
}

type driver struct {
	client    redis.UniversalClient
	isCluster bool
	counters  []*counter
	running   sync.WaitGroup
	ends      chan struct{}

	mutex                                sync.Mutex
	done, errors, doubled, lost, longest int64
	texts                                []string
}

func check(what string, got, want any) {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		panic(fmt.Sprintf("%s: got %v, want %v", what, got, want))
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func (d *driver) check(prefix string) {
	client, a, b := d.client, "{"+prefix+"}a", "{"+prefix+"}b"
	key := func(n int) string { return fmt.Sprint(prefix, ":", n) }
	for n := range 200 {
		check("SET", must(client.Set(ctx, key(n), n, 0).Result()), "OK")
	}
	pipe := client.Pipeline()
	got := make([]*redis.StringCmd, 200)
	for n := range got {
		got[n] = pipe.Get(ctx, key(n))
	}
	must(pipe.Exec(ctx))
	for n := range got {
		check("GET", got[n].Val(), n)
	}
	must(client.MSet(ctx, a, 1, b, 2).Result())
	check("MGET", must(client.MGet(ctx, a, b).Result()), []any{"1", "2"})
	must(client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Incr(ctx, a)
		pipe.Incr(ctx, b)
		return nil
	}))
	check("EXEC", must(client.MGet(ctx, a, b).Result()), []any{"2", "3"})
	check("WATCH", client.Watch(ctx, func(tx *redis.Tx) error {
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, b, 7, 0)
			return nil
		})
		return err
	}, a, b), nil)
	script := redis.NewScript("return redis.call('incrby', KEYS[1], ARGV[1])")
	check("EVALSHA", must(script.Run(ctx, client, []string{a}, 40).Int()), 42)
	hear(client.Subscribe(ctx, prefix), func() { must(client.Publish(ctx, prefix, "hello").Result()) })
	if d.isCluster {
		if err := client.Do(ctx, "MGET", key(1), key(2)).Err(); err == nil || !strings.Contains(err.Error(), "CROSSSLOT") {
			panic(fmt.Sprint("MGET of two slots: ", err))
		}
		hear(client.SSubscribe(ctx, prefix), func() { must(client.SPublish(ctx, prefix, "hello").Result()) })
	}
}

func hear(listener *redis.PubSub, publish func()) {
	defer listener.Close()
	must(listener.ReceiveTimeout(ctx, 20*time.Second))
	publish()
	message, ok := must(listener.ReceiveTimeout(ctx, 20*time.Second)).(*redis.Message)
	check("message", ok && message.Payload == "hello", true)
}

func (d *driver) load(prefix string) {
	for worker := range workers {
		own := make([]*counter, keys)
		for at := range own {
			own[at] = &counter{key: fmt.Sprintf("{%s-%d-%d}", prefix, worker, at)}
		}
		d.counters = append(d.counters, own...)
		d.running.Add(1)
		go func() {
			defer d.running.Done()
			for step := 0; ; step++ {
				d.step(own[step%keys], step/keys%4)
				select {
				case <-d.ends:
					return
				case <-time.After(pause):
				}
			}
		}()
	}
}

func (d *driver) step(counter *counter, kind int) {
	began := time.Now()
	var got []int64
	var err error
	switch kind {
	case 2:
		var first, second *redis.IntCmd
		_, err = d.client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			first, second = pipe.Incr(ctx, counter.key+"c"), pipe.Incr(ctx, counter.key+"d")
			return nil
		})
		if err == nil {
			got = []int64{first.Val(), second.Val()}
		}
	case 3:
		var value int64
		value, err = d.client.Get(ctx, counter.key+"c").Int64()
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		got = []int64{value}
	default:
		var value int64
		value, err = d.client.Incr(ctx, counter.key+"c").Result()
		got = []int64{value}
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.longest = max(d.longest, time.Since(began).Milliseconds())
	if err != nil {
		d.errors++
		if len(d.texts) < 5 {
			d.texts = append(d.texts, err.Error())
		}
		if kind != 3 {
			counter.unknown[0]++
		}
		if kind == 2 {
			counter.unknown[1]++
		}
		return
	}
	d.done++
	for at, value := range got {
		next := counter.last[at] + 1
		if kind == 3 {
			next--
		}
		if value < next {
			d.lost++
		} else if counter.unknown[at] == 0 {
			d.doubled += value - next
		}
		if kind != 3 {
			counter.last[at] = value
		}
	}
}

func (d *driver) report() string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	line := fmt.Sprint(d.done, " ", d.errors, " ", d.doubled, " ", d.lost, " ", d.longest, " ", strings.Join(d.texts, " | "))
	d.done, d.errors, d.doubled, d.lost, d.longest, d.texts = 0, 0, 0, 0, 0, nil
	return line
}

func (d *driver) stop() string {
	close(d.ends)
	d.running.Wait()
	var line strings.Builder
	for _, counter := range d.counters {
		for at, name := range []string{"c", "d"} {
			fmt.Fprintf(&line, "%s%s=%d:%d ", counter.key, name, counter.last[at], counter.unknown[at])
		}
	}
	return line.String()
}

func (d *driver) answer(words []string) (answer string) {
	defer func() {
		if reason := recover(); reason != nil {
			answer = fmt.Sprint("failed ", reason)
		}
	}()
	switch words[0] {
	case "check":
		d.check(words[1])
	case "load":
		d.load(words[1])
	case "report":
		return "ok " + d.report()
	case "stop":
		return "ok " + d.stop()
	}
	return "ok"
}

func main() {
	addresses := strings.Split(os.Args[2], ",")
	d := &driver{isCluster: os.Args[1] == "cluster", ends: make(chan struct{})}
	if d.isCluster {
		// The library asks again where slots are after this time, and when it is redirected; errors of a connection do not make it ask.
		d.client = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addresses, ClusterStateReloadInterval: time.Second, ReadTimeout: timeout,
		})
	} else {
		d.client = redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: os.Args[3], SentinelAddrs: addresses, ReadTimeout: timeout,
		})
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(strings.Join(strings.Fields(d.answer(strings.Fields(lines.Text()))), " "))
	}
}
