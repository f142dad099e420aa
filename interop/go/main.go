// redsync, driven line by line by Tenure's tests. interop/src/peer.rs describes the requests.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var output sync.Mutex

func answer(id int, fields map[string]any) {
	fields["id"] = id
	line, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// A client of redsync on one server.
type peer struct {
	redis  *redis.Client
	sync   *redsync.Redsync
	lease  time.Duration
	owners map[string]*owner
}

// A goroutine that does one thing at a time, with one mutex for each key.
type owner struct {
	peer    *peer
	mutexes map[string]*redsync.Mutex
	work    chan func()
}

func connect(url, leaseMs string) (*peer, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	ms, err := strconv.Atoi(leaseMs)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	return &peer{
		redis:  client,
		sync:   redsync.New(goredis.NewPool(client)),
		lease:  time.Duration(ms) * time.Millisecond,
		owners: map[string]*owner{},
	}, nil
}

func (peer *peer) owner(name string) *owner {
	if peer.owners[name] == nil {
		created := &owner{peer, map[string]*redsync.Mutex{}, make(chan func(), 1024)}
		go func() {
			for work := range created.work {
				work()
			}
		}()
		peer.owners[name] = created
	}
	return peer.owners[name]
}

func (owner *owner) acquire(key string, tries int) error {
	mutex := owner.peer.sync.NewMutex(key, redsync.WithExpiry(owner.peer.lease), redsync.WithTries(tries))
	if err := mutex.Lock(); err != nil {
		return err
	}
	owner.mutexes[key] = mutex
	return nil
}

func (owner *owner) serve(verb, key string, rest []string) (any, error) {
	switch verb {
	case "acquire":
		return nil, owner.acquire(key, math.MaxInt32)
	case "try":
		return owner.acquire(key, 1) == nil, nil
	case "count":
		return owner.count(key, rest[0], rest[1])
	}
	mutex := owner.mutexes[key]
	if verb == "state" {
		if mutex != nil && mutex.Until().After(time.Now()) {
			return 1, nil
		}
		return 0, nil
	}
	if mutex == nil {
		return nil, fmt.Errorf("%s was never acquired", key)
	}
	switch verb {
	case "release":
		released, err := mutex.Unlock()
		if err == nil && !released {
			err = fmt.Errorf("%s is not held", key)
		}
		return nil, err
	case "extend":
		return mutex.Extend()
	}
	return nil, fmt.Errorf("no such verb: %s", verb)
}

// Increments by reading and then writing, so that two holders at a time lose an increment. Returns the longest wait in
// ms.
func (owner *owner) count(key, counter, turns string) (any, error) {
	number, err := strconv.Atoi(turns)
	if err != nil {
		return nil, err
	}
	background := context.Background()
	var longest time.Duration
	for turn := 0; turn < number; turn++ {
		asked := time.Now()
		if _, err := owner.serve("acquire", key, nil); err != nil {
			return nil, err
		}
		if waited := time.Since(asked); waited > longest {
			longest = waited
		}
		before, err := owner.peer.redis.Get(background, counter).Int()
		if err != nil && err != redis.Nil {
			return nil, err
		}
		if err := owner.peer.redis.Set(background, counter, before+1, 0).Err(); err != nil {
			return nil, err
		}
		if _, err := owner.serve("release", key, nil); err != nil {
			return nil, err
		}
	}
	return longest.Milliseconds(), nil
}

func reply(id int, value any, err error) {
	if err != nil {
		answer(id, map[string]any{"error": fmt.Sprintf("%T", err), "message": err.Error()})
	} else {
		answer(id, map[string]any{"value": value})
	}
}

func main() {
	peers := map[string]*peer{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), " ")
		id, err := strconv.Atoi(words[0])
		if err != nil {
			panic(err)
		}
		verb, client, rest := words[1], words[2], words[3:]
		switch verb {
		case "open":
			connected, err := connect(rest[0], rest[1])
			peers[client] = connected
			reply(id, "", err)
		case "close":
			reply(id, nil, peers[client].redis.Close())
			delete(peers, client)
		default:
			owner := peers[client].owner(rest[0])
			key, arguments := rest[2], rest[3:]
			owner.work <- func() {
				value, err := owner.serve(verb, key, arguments)
				reply(id, value, err)
			}
		}
	}
}
