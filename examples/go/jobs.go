package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A job is in exactly one of these lists, or done: BLMOVE takes it from one to the other at once, so that a
// worker that crashes leaves it in its own list.
const (
	waiting  = "jobs:waiting"
	finished = "jobs:finished"
)

func taken(worker string) string { return "jobs:taken:" + worker }

var errCrash = errors.New("crashed")

// jobs runs a queue through two workers, one of which crashes with a job in its hands.
func jobs(ctx context.Context, store *redis.Client) error {
	if err := store.Del(ctx, waiting, finished, taken("anna"), taken("bert")).Err(); err != nil {
		return err
	}
	const count = 20
	for job := 1; job <= count; job++ {
		if err := store.RPush(ctx, waiting, fmt.Sprintf("job%02d", job)).Err(); err != nil {
			return err
		}
	}
	if err := work(ctx, store, "bert", 4); !errors.Is(err, errCrash) {
		return fmt.Errorf("bert should have crashed: %w", err)
	}
	left := store.LLen(ctx, taken("bert")).Val()
	// A supervisor of the workers gives back the jobs that a dead one has left.
	for {
		err := store.LMove(ctx, taken("bert"), waiting, "RIGHT", "LEFT").Err()
		if errors.Is(err, redis.Nil) {
			break
		}
		if err != nil {
			return err
		}
	}
	if err := work(ctx, store, "anna", -1); err != nil {
		return err
	}
	done, err := store.SCard(ctx, finished).Result()
	if err != nil {
		return err
	}
	rest := store.LLen(ctx, waiting).Val() + store.LLen(ctx, taken("anna")).Val()
	fmt.Printf("bert crashed with %d job in his hands; %d of %d jobs done, %d left\n", left, done, count, rest)
	return nil
}

// work takes jobs until none has come for a moment, or crashes behind that many.
func work(ctx context.Context, store *redis.Client, worker string, crashAfter int) error {
	for handled := 0; ; handled++ {
		job, err := store.BLMove(ctx, waiting, taken(worker), "LEFT", "RIGHT", 100*time.Millisecond).Result()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		if err != nil {
			return err
		}
		if handled == crashAfter {
			return errCrash
		}
		// Done and off the list in one transaction.
		_, err = store.TxPipelined(ctx, func(transaction redis.Pipeliner) error {
			transaction.SAdd(ctx, finished, job)
			transaction.LRem(ctx, taken(worker), 1, job)
			return nil
		})
		if err != nil {
			return err
		}
	}
}
