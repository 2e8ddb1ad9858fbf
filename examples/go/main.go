// Two examples with go-redis:
//
//	go run . leaderboard   scores of players, ranks, and the neighbours of one
//	go run . jobs          a queue whose jobs survive a worker that crashes
//
// The server is that of DUNLIN_URL, or redis://127.0.0.1:6379.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

func main() {
	url := os.Getenv("DUNLIN_URL")
	if url == "" {
		url = "redis://127.0.0.1:6379"
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		fail(err)
	}
	// The library would log every attempt to connect; the error below says the same once.
	logging.Disable()
	store := redis.NewClient(options)
	defer store.Close()
	examples := map[string]func(context.Context, *redis.Client) error{"leaderboard": leaderboard, "jobs": jobs}
	if len(os.Args) != 2 || examples[os.Args[1]] == nil {
		fail(fmt.Errorf("usage: go run . leaderboard|jobs"))
	}
	if err := store.Ping(context.Background()).Err(); err != nil {
		fail(fmt.Errorf("no server: %w. Start one (make run), or name one in DUNLIN_URL", err))
	}
	if err := examples[os.Args[1]](context.Background(), store); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
