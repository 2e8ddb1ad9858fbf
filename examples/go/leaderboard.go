package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// A sorted set of players by score.
const board = "leaderboard"

// leaderboard plays a thousand games and shows the top, and one player among his neighbours.
func leaderboard(ctx context.Context, store *redis.Client) error {
	if err := store.Del(ctx, board).Err(); err != nil {
		return err
	}
	// Games in pipelines: the winner of game n is player n² mod 101.
	pipeline := store.Pipeline()
	for game := 1; game <= 1000; game++ {
		pipeline.ZIncrBy(ctx, board, 1, fmt.Sprintf("player%03d", game*game%101))
	}
	if _, err := pipeline.Exec(ctx); err != nil {
		return err
	}
	top, err := store.ZRevRangeWithScores(ctx, board, 0, 2).Result()
	if err != nil {
		return err
	}
	for place, player := range top {
		fmt.Printf("%d. %s with %.0f\n", place+1, player.Member, player.Score)
	}
	return neighbours(ctx, store, "player025")
}

// neighbours shows a player between the one before and the one behind.
func neighbours(ctx context.Context, store *redis.Client, player string) error {
	rank, err := store.ZRevRank(ctx, board, player).Result()
	if err != nil {
		return err
	}
	around, err := store.ZRevRangeWithScores(ctx, board, max(rank-1, 0), rank+1).Result()
	if err != nil {
		return err
	}
	fmt.Printf("%s has rank %d, among", player, rank+1)
	for _, other := range around {
		fmt.Printf(" %s (%.0f)", other.Member, other.Score)
	}
	fmt.Println()
	return nil
}
