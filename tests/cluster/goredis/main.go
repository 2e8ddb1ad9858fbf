// goredis-cluster does real work with go-redis's cluster client, against the node whose address is its argument.
// It exits with 0 when every reply was as it should be, else with 1 and what was wrong. With a second argument, the name of a
// cluster of one shard, its Sentinel client follows the primary, once more for each line on standard input.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const keys = 2000

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

func main() {
	defer func() {
		if reason := recover(); reason != nil {
			fmt.Fprintln(os.Stderr, reason)
			os.Exit(1)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if len(os.Args) > 2 {
		follow(ctx, os.Args[1], os.Args[2])
		return
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{os.Args[1]}, RouteRandomly: true})
	defer client.Close()

	for n := range keys {
		check("SET", must(client.Set(ctx, fmt.Sprint("go:", n), n, 0).Result()), "OK")
	}
	pipe := client.Pipeline()
	got := make([]*redis.StringCmd, keys)
	for n := range keys {
		got[n] = pipe.Get(ctx, fmt.Sprint("go:", n))
	}
	must(pipe.Exec(ctx))
	for n := range keys {
		check("GET", got[n].Val(), n)
	}
	// A transaction on one slot, and one that is watched.
	must(client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "{go}a", 1, 0)
		pipe.Incr(ctx, "{go}a")
		return nil
	}))
	check("EXEC", must(client.Get(ctx, "{go}a").Result()), 2)
	err := client.Watch(ctx, func(tx *redis.Tx) error {
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "{go}b", 7, 0)
			return nil
		})
		return err
	}, "{go}a", "{go}b")
	check("WATCH", err, nil)
	check("MGET", must(client.MGet(ctx, "{go}a", "{go}b").Result()), []any{"2", "7"})
	script := redis.NewScript("return redis.call('incrby', KEYS[1], ARGV[1])")
	check("EVALSHA", must(script.Run(ctx, client, []string{"{go}a"}, 40).Int()), 42)
	if err := client.Do(ctx, "MGET", "go:1", "go:2").Err(); err == nil || !strings.Contains(err.Error(), "CROSSSLOT") {
		panic(fmt.Sprint("MGET of two slots: ", err))
	}
	// Sharded pub/sub.
	listener := client.SSubscribe(ctx, "go:channel")
	defer listener.Close()
	must(listener.Receive(ctx))
	check("SPUBLISH", must(client.SPublish(ctx, "go:channel", "hello").Result()), 1)
	check("message", must(listener.ReceiveMessage(ctx)).Payload, "hello")
	// All nodes together.
	var total int64
	counts := make(chan int64, 64)
	check("each", client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		counts <- must(node.DBSize(ctx).Result())
		return nil
	}), nil)
	close(counts)
	for count := range counts {
		total += count
	}
	if total < keys {
		panic(fmt.Sprint("DBSIZE of all: ", total))
	}
	check("shards", len(must(client.ClusterShards(ctx).Result())) >= 1, true)
	check("DEL", must(client.Del(ctx, "{go}a", "{go}b").Result()), 2)
}

func follow(ctx context.Context, address, name string) {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: name, SentinelAddrs: []string{address}})
	defer client.Close()
	write := func(value string) {
		for client.MSet(ctx, "go:one", value, "go:two", value).Err() != nil {
			if ctx.Err() != nil {
				panic("no write in time")
			}
			time.Sleep(10 * time.Millisecond)
		}
		got := must(client.MGet(ctx, "go:one", "go:two").Result())
		role := must(client.Do(ctx, "ROLE").Slice())[0]
		port := must(client.ConfigGet(ctx, "port").Result())["port"]
		fmt.Printf("%v,%v %v %v\n", got[0], got[1], role, port)
	}
	write("1")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		write(lines.Text())
	}
}
