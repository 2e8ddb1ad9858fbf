// goredis does real work with go-redis against the server that the task on standard input names.
// It exits with 0 when every reply was as it should be, else with 1 and the scenario that failed.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

type task struct {
	Network        string
	Address        string
	Protocol       int
	Lengths        []int
	Ca, Cert, Key  string
	EveryLengthMax int
}

// check stops the scenario with what was got and what was wanted.
func check(what string, got, want any) {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		panic(fmt.Sprintf("%s: got %.200v, want %.200v", what, got, want))
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// pattern gives bytes in which no part looks like its neighbour.
func pattern(size int) []byte {
	block := make([]byte, size)
	state := uint32(1)
	for at := range block {
		state = state*1664525 + 1013904223
		block[at] = byte(state >> 24)
	}
	return block
}

func stringStory(ctx context.Context, c *redis.Client, _ task) {
	check("SET", must(c.Set(ctx, "greeting", "hello", 0).Result()), "OK")
	check("APPEND", must(c.Append(ctx, "greeting", " world").Result()), 11)
	check("GET", must(c.Get(ctx, "greeting").Result()), "hello world")
	check("GETRANGE", must(c.GetRange(ctx, "greeting", -5, -1).Result()), "world")
	check("SETNX", must(c.SetNX(ctx, "greeting", "no", 0).Result()), false)
	check("INCRBY", must(c.IncrBy(ctx, "counter", 41).Result()), 41)
	check("INCR", must(c.Incr(ctx, "counter").Result()), 42)
	check("INCRBYFLOAT", must(c.IncrByFloat(ctx, "float", 0.5).Result()), 0.5)
	check("MSET", must(c.MSet(ctx, "a", 1, "b", 2).Result()), "OK")
	check("MGET", must(c.MGet(ctx, "a", "nothing", "b").Result()), []any{"1", nil, "2"})
	if err := c.Get(ctx, "nothing").Err(); !errors.Is(err, redis.Nil) {
		panic(fmt.Sprint("GET of nothing: ", err))
	}
	if err := c.Incr(ctx, "greeting").Err(); err == nil || !strings.Contains(err.Error(), "not an integer") {
		panic(fmt.Sprint("INCR of text: ", err))
	}
}

func expiryStory(ctx context.Context, c *redis.Client, _ task) {
	must(c.Set(ctx, "long", "v", 1000*time.Second).Result())
	ttl := must(c.TTL(ctx, "long").Result())
	check("TTL", ttl > 990*time.Second && ttl <= 1000*time.Second, true)
	check("PERSIST", must(c.Persist(ctx, "long").Result()), true)
	check("EXPIREAT", must(c.ExpireAt(ctx, "long", time.Unix(33_000_000_000, 0)).Result()), true)
	must(c.Set(ctx, "short", "v", 20*time.Millisecond).Result())
	for deadline := time.Now().Add(time.Minute); must(c.Exists(ctx, "short").Result()) == 1; {
		check("the key outlives its time", time.Now().After(deadline), false)
	}
}

func bitmapStory(ctx context.Context, c *redis.Client, _ task) {
	for bit := int64(0); bit < 100; bit += 3 {
		check("SETBIT", must(c.SetBit(ctx, "bits", bit, 1).Result()), 0)
	}
	check("BITCOUNT", must(c.BitCount(ctx, "bits", nil).Result()), 34)
	check("BITPOS", must(c.BitPos(ctx, "bits", 0).Result()), 1)
	check("BITFIELD", must(c.BitField(ctx, "packed", "SET", "u8", "#1", 255, "GET", "u16", 0).Result()), []int64{0, 255})
}

func pipelineStory(ctx context.Context, c *redis.Client, _ task) {
	pipe := c.Pipeline()
	for n := range 10_000 {
		pipe.Set(ctx, fmt.Sprint("key:", n), n, 0)
		pipe.Get(ctx, fmt.Sprint("key:", n))
	}
	replies := must(pipe.Exec(ctx))
	for n := range 10_000 {
		check("pipelined GET", replies[2*n+1].(*redis.StringCmd).Val(), n)
	}
}

func scanStory(ctx context.Context, c *redis.Client, _ task) {
	met := map[string]bool{}
	for keys := c.Scan(ctx, 0, "key:*", 100).Iterator(); keys.Next(ctx); {
		met[keys.Val()] = true
	}
	check("SCAN", len(met), 10_000)
}

func binaryStory(ctx context.Context, c *redis.Client, _ task) {
	everyByte := make([]byte, 256)
	for n := range everyByte {
		everyByte[n] = byte(n)
	}
	must(c.Set(ctx, string(everyByte), everyByte, 0).Result())
	check("binary GET", bytes.Equal(must(c.Get(ctx, string(everyByte)).Bytes()), everyByte), true)
}

func lengthStory(ctx context.Context, c *redis.Client, t task) {
	block := pattern(16<<20 + 512)
	value := func(length int) []byte { return block[length%251:][:length] }
	for _, length := range t.Lengths {
		must(c.Set(ctx, "value", value(length), 0).Result())
		check("STRLEN", must(c.StrLen(ctx, "value").Result()), length)
		got := must(c.Get(ctx, "value").Bytes())
		check(fmt.Sprint("length ", length), bytes.Equal(got, value(length)), true)
	}
	for first := 0; t.EveryLengthMax > 0 && first <= t.EveryLengthMax; first += 200 {
		last := min(first+200, t.EveryLengthMax+1)
		pipe := c.Pipeline()
		gets := map[int]*redis.StringCmd{}
		for length := first; length < last; length++ {
			pipe.Set(ctx, fmt.Sprint("slot:", length-first), value(length), 0)
		}
		for length := first; length < last; length++ {
			gets[length] = pipe.Get(ctx, fmt.Sprint("slot:", length-first))
		}
		must(pipe.Exec(ctx))
		for length, get := range gets {
			check(fmt.Sprint("length ", length), bytes.Equal(must(get.Bytes()), value(length)), true)
		}
	}
}

// encrypted trusts the task's authority, and shows its certificate.
func encrypted(t task) *tls.Config {
	roots := x509.NewCertPool()
	check("authority", roots.AppendCertsFromPEM(must(os.ReadFile(t.Ca))), true)
	own := must(tls.LoadX509KeyPair(t.Cert, t.Key))
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}, ServerName: "localhost"}
}

func main() {
	var t task
	if err := json.NewDecoder(os.Stdin).Decode(&t); err != nil {
		panic(err)
	}
	ctx := context.Background()
	options := redis.Options{
		Network: t.Network, Addr: t.Address, Protocol: t.Protocol, MaxRetries: -1,
		DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
	}
	if t.Network == "tls" {
		options.Network, options.TLSConfig = "tcp", encrypted(t)
	}
	c := redis.NewClient(&options)
	defer c.Close()
	must(c.FlushAll(ctx).Result())
	scenarios := []struct {
		name string
		run  func(context.Context, *redis.Client, task)
	}{
		{"strings", stringStory}, {"expiry", expiryStory}, {"bitmaps", bitmapStory}, {"pipelines", pipelineStory},
		{"scan", scanStory}, {"binary", binaryStory}, {"lengths", lengthStory},
	}
	for _, scenario := range scenarios {
		func() {
			defer func() {
				if failure := recover(); failure != nil {
					fmt.Println("failed", scenario.name, failure)
					os.Exit(1)
				}
			}()
			scenario.run(ctx, c, t)
		}()
		fmt.Println("ok", scenario.name)
	}
}
