// asynq-jobs queues tasks with asynq and audits what three servers make of them: priorities, delays, retries, failures,
// uniqueness, groups, and work of a server that goes away. It exits with 0 when every task was done exactly as promised,
// else with 1 and what was not.
//
//	asynq-jobs PORT
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
	servers    = 3
	plain      = 300
	patience   = 100 * time.Second
	delay      = time.Second
	retryDelay = 50 * time.Millisecond
)

// The arguments of a task.
type payload struct {
	Name     string
	Value    int
	Failures int
}

// The record of the tasks' work.
type journal struct {
	sync.Mutex
	attempts map[string]int
	began    map[string]time.Time
	order    []int
	groups   []int
}

func check(what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		panic(fmt.Sprintf("%s: got %.500v, want %.500v", what, got, want))
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func until(what string, holds func() bool) {
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			panic(what + ": it has never come true")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (j *journal) run(ctx context.Context, task *asynq.Task) error {
	if task.Type() == "grouped" {
		j.Lock()
		defer j.Unlock()
		for _, word := range strings.Fields(string(task.Payload())) {
			j.groups = append(j.groups, must(strconv.Atoi(word)))
		}
		return nil
	}
	var told payload
	if err := json.Unmarshal(task.Payload(), &told); err != nil {
		return fmt.Errorf("%v: %w", err, asynq.SkipRetry)
	}
	j.Lock()
	j.attempts[told.Name]++
	attempt := j.attempts[told.Name]
	j.began[told.Name] = time.Now()
	if task.Type() == "ordered" {
		j.order = append(j.order, told.Value)
	}
	j.Unlock()
	switch {
	case told.Failures < 0:
		return fmt.Errorf("final: %w", asynq.SkipRetry)
	case attempt <= told.Failures:
		return fmt.Errorf("attempt %d", attempt)
	}
	_, err := task.ResultWriter().Write([]byte(strconv.Itoa(told.Value * 2)))
	return err
}

func (j *journal) server(connection asynq.RedisClientOpt, concurrency int, queues map[string]int, strict bool) *asynq.Server {
	server := asynq.NewServer(connection, asynq.Config{
		Concurrency:              concurrency,
		Queues:                   queues,
		StrictPriority:           strict,
		LogLevel:                 asynq.FatalLevel,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return retryDelay },
		TaskCheckInterval:        50 * time.Millisecond,
		DelayedTaskCheckInterval: 50 * time.Millisecond,
		GroupGracePeriod:         time.Second,
		GroupMaxSize:             10,
		GroupAggregator: asynq.GroupAggregatorFunc(func(_ string, tasks []*asynq.Task) *asynq.Task {
			var words []string
			for _, task := range tasks {
				words = append(words, string(task.Payload()))
			}
			return asynq.NewTask("grouped", []byte(strings.Join(words, " ")))
		}),
	})
	if err := server.Start(asynq.HandlerFunc(j.run)); err != nil {
		panic(err)
	}
	return server
}

func main() {
	connection := asynq.RedisClientOpt{Addr: "127.0.0.1:" + os.Args[1]}
	ctx := context.Background()
	client, inspector := asynq.NewClient(connection), asynq.NewInspector(connection)
	j := &journal{attempts: map[string]int{}, began: map[string]time.Time{}}
	wanted := map[string]int{}
	enqueue := func(kind string, told payload, attempts int, options ...asynq.Option) *asynq.TaskInfo {
		wanted[told.Name] = attempts
		return must(client.Enqueue(asynq.NewTask(kind, must(json.Marshal(told))), options...))
	}

	// Strict priorities: tasks that wait when the server comes are done queue after queue, in order.
	for value := range 30 {
		queue := []string{"ordered:low", "ordered:high"}[value%2]
		enqueue("ordered", payload{Name: fmt.Sprint("ordered-", value), Value: value}, 1, asynq.Queue(queue))
	}
	ordered := j.server(connection, 1, map[string]int{"ordered:high": 9, "ordered:low": 1}, true)
	until("the ordered ones", func() bool { j.Lock(); defer j.Unlock(); return len(j.order) == 30 })
	ordered.Shutdown()
	check("order", sort.SliceIsSorted(j.order, func(a, b int) bool {
		a, b = j.order[a], j.order[b]
		return a%2 > b%2 || a%2 == b%2 && a < b
	}), true)

	var running []*asynq.Server
	for range servers {
		running = append(running, j.server(connection, 8, map[string]int{"critical": 5, "default": 1}, false))
	}
	asked := time.Now()
	var done []*asynq.TaskInfo
	for value := range plain {
		queue := []string{"default", "critical"}[value%2]
		done = append(done, enqueue("plain", payload{Name: fmt.Sprint("plain-", value), Value: value}, 1,
			asynq.Queue(queue), asynq.Retention(time.Hour)))
	}
	for at := range 20 {
		enqueue("late", payload{Name: fmt.Sprint("late-", at)}, 1, asynq.ProcessIn(delay))
		enqueue("flaky", payload{Name: fmt.Sprint("flaky-", at), Failures: at % 3}, at%3+1, asynq.MaxRetry(3))
		enqueue("hopeless", payload{Name: fmt.Sprint("hopeless-", at), Failures: 99}, 3, asynq.MaxRetry(2))
		enqueue("final", payload{Name: fmt.Sprint("final-", at), Failures: -1}, 1)
	}
	// A task that is there already is refused, by its lock and by its name. The first waits until the second has come.
	unique := func() (*asynq.TaskInfo, error) {
		told := must(json.Marshal(payload{Name: "unique"}))
		return client.Enqueue(asynq.NewTask("unique", told), asynq.Unique(time.Hour), asynq.ProcessIn(time.Hour))
	}
	waiting := []string{must(unique()).ID}
	wanted["unique"] = 1
	if _, err := unique(); !errors.Is(err, asynq.ErrDuplicateTask) {
		panic(fmt.Sprint("a second unique task: ", err))
	}
	named := asynq.NewTask("named", must(json.Marshal(payload{Name: "named"})))
	waiting = append(waiting, must(client.Enqueue(named, asynq.TaskID("name"), asynq.ProcessIn(time.Hour))).ID)
	wanted["named"] = 1
	if _, err := client.Enqueue(named, asynq.TaskID("name")); !errors.Is(err, asynq.ErrTaskIDConflict) {
		panic(fmt.Sprint("a second task of that name: ", err))
	}
	for _, id := range waiting {
		if err := inspector.RunTask("default", id); err != nil {
			panic(err)
		}
	}
	// One that is taken back is not done.
	taken := must(client.Enqueue(asynq.NewTask("plain", must(json.Marshal(payload{Name: "taken"}))), asynq.ProcessIn(time.Hour)))
	if err := inspector.DeleteTask("default", taken.ID); err != nil {
		panic(err)
	}
	for value := range 50 {
		must(client.Enqueue(asynq.NewTask("part", []byte(strconv.Itoa(value))), asynq.Group("group")))
	}

	until("all attempts", func() bool { j.Lock(); defer j.Unlock(); return reflect.DeepEqual(j.attempts, wanted) })
	until("all groups", func() bool { j.Lock(); defer j.Unlock(); return len(j.groups) == 50 })
	until("everything is settled", func() bool {
		for _, queue := range []string{"default", "critical"} {
			info := must(inspector.GetQueueInfo(queue))
			if info.Active+info.Pending+info.Scheduled+info.Retry+info.Aggregating > 0 {
				return false
			}
		}
		return true
	})
	for _, server := range running {
		server.Shutdown()
	}
	check("attempts", j.attempts, wanted)
	sort.Ints(j.groups)
	for at, value := range j.groups {
		check("group", value, at)
	}
	for name, began := range j.began {
		// asynq counts in whole seconds.
		if strings.HasPrefix(name, "late-") && began.Unix() < asked.Add(delay).Unix() {
			panic(name + " was early")
		}
	}
	for value, info := range done {
		result := must(inspector.GetTaskInfo(info.Queue, info.ID))
		check("state", result.State, asynq.TaskStateCompleted)
		check("result", string(result.Result), strconv.Itoa(value*2))
	}
	archived := must(inspector.ListArchivedTasks("default", asynq.PageSize(100)))
	check("archived", len(archived), 40)
	// Tasks that have failed for good can be done again.
	check("run again", must(inspector.RunAllArchivedTasks("default")), 40)
	check("deleted", must(inspector.DeleteAllPendingTasks("default")), 40)
	info := must(inspector.GetQueueInfo("default"))
	check("left", info.Size-info.Completed, 0)
	// At midnight another day begins.
	processed := 0
	for _, day := range must(inspector.History("default", 2)) {
		processed += day.Processed
	}
	check("counted", processed >= plain/2, true)
	check("locks", must(redis.NewClient(&redis.Options{Addr: connection.Addr}).Keys(ctx, "asynq:*:unique:*").Result()), []string{})
}
