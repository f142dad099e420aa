// A worker of tenure-bench: its goroutines lock and unlock mutexes of etcd's client until the round ends, as the tasks of
// tasks.rs do.
//
// Arguments after `bench`: the server's address, whether the goroutines share one key, their number, the number of the first
// one, the time (µs) for which each holds a lock, and the file with the last holder, or "-". Prints "ready"; then runs a round
// for each line of its input, the length of the round in µs, and prints its counters in JSON.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// Time limit of a wait after the end of its round. The goroutine then gives up, and the length so far counts.
const patience = time.Second

// No goroutine has held the key yet.
const noWorker = -1

type worker struct {
	number  int64
	mutex   *concurrency.Mutex
	last    lastHolder
	section time.Duration
	counts  counts
}

// The counters of a goroutine in one round.
type counts struct {
	grants    int64
	handovers int64
	waits     map[int64]int64
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func bench(args []string) {
	address := must(url.Parse(args[0]))
	oneKey := must(strconv.ParseBool(args[1]))
	first := must(strconv.Atoi(args[3]))
	section := time.Duration(must(strconv.Atoi(args[4]))) * time.Microsecond
	etcd := must(clientv3.New(clientv3.Config{Endpoints: []string{address.Host}}))
	workers := make([]*worker, must(strconv.Atoi(args[2])))
	shared := openLastHolder(args[5])
	var session *concurrency.Session
	for i := range workers {
		number := first + i
		key, last := "one", shared
		if !oneKey {
			key, last = fmt.Sprintf("own:%d", number), openLastHolder("-")
		}
		// Mutexes of one session do not exclude each other.
		if session == nil || oneKey {
			session = must(concurrency.NewSession(etcd))
		}
		workers[i] = &worker{number: int64(number), mutex: concurrency.NewMutex(session, key), last: last, section: section}
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(round(workers, time.Duration(must(strconv.Atoi(lines.Text())))*time.Microsecond))
	}
}

func round(workers []*worker, length time.Duration) string {
	until := time.Now().Add(length)
	var tasks sync.WaitGroup
	for _, one := range workers {
		tasks.Add(1)
		go func(one *worker) {
			defer tasks.Done()
			one.work(until)
		}(one)
	}
	tasks.Wait()
	grants, handovers, merged := []int64{}, int64(0), map[int64]int64{}
	for _, one := range workers {
		grants = append(grants, one.counts.grants)
		handovers += one.counts.handovers
		for wait, count := range one.counts.waits {
			merged[wait] += count
		}
	}
	waits := [][2]int64{}
	for wait, count := range merged {
		waits = append(waits, [2]int64{wait, count})
	}
	time := map[string]int64{"secs": int64(length / time.Second), "nanos": int64(length % time.Second)}
	counters := map[string]any{"time": time, "grants": grants, "handovers": handovers, "waits": waits}
	return string(must(json.Marshal(counters)))
}

func (worker *worker) work(until time.Time) {
	worker.counts = counts{waits: map[int64]int64{}}
	ctx, cancel := context.WithDeadline(context.Background(), until.Add(patience))
	defer cancel()
	for asked := time.Now(); asked.Before(until); asked = time.Now() {
		if err := worker.mutex.Lock(ctx); err != nil {
			if ctx.Err() == nil {
				panic(err)
			}
			worker.counts.waited(time.Since(asked))
			return
		}
		granted := time.Now()
		handedOver := worker.last.acquired(worker.number)
		for time.Since(granted) < worker.section {
		}
		worker.last.releases(worker.number)
		if err := worker.mutex.Unlock(context.Background()); err != nil {
			panic(err)
		}
		worker.counts.waited(granted.Sub(asked))
		if granted.Before(until) {
			worker.counts.grants++
			if handedOver {
				worker.counts.handovers++
			}
		}
	}
}

// Counts a wait, with three significant digits.
func (counts *counts) waited(wait time.Duration) {
	shift := 0
	if length := bits.Len64(uint64(wait)); length > 11 {
		shift = length - 11
	}
	counts.waits[int64(wait)>>shift<<shift]++
}

// The last holder of a key. A file is shared by several processes, as last_holder.rs describes it.
type lastHolder struct {
	file   *os.File
	memory *atomic.Int64
}

func openLastHolder(path string) lastHolder {
	if path != "-" {
		return lastHolder{file: must(os.OpenFile(path, os.O_RDWR, 0))}
	}
	memory := &atomic.Int64{}
	memory.Store(noWorker)
	return lastHolder{memory: memory}
}

func (last lastHolder) read() int64 {
	if last.file == nil {
		return last.memory.Load()
	}
	bytes := make([]byte, 8)
	must(last.file.ReadAt(bytes, 0))
	return int64(binary.LittleEndian.Uint64(bytes))
}

// Returns whether another worker had the key before.
func (last lastHolder) acquired(worker int64) bool {
	before := last.read()
	if last.file == nil {
		last.memory.Store(worker)
	} else {
		must(last.file.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(worker)), 0))
	}
	return before != noWorker && before != worker
}

func (last lastHolder) releases(worker int64) {
	if now := last.read(); now != worker {
		panic(fmt.Sprintf("worker %d took the key while worker %d held it", now, worker))
	}
}
