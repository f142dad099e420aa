// Lock clients, driven line by line by Tenure's tests. interop/src/peer.rs describes the requests. The URL of the request
// `open` chooses the client.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A client of one project on one server.
type client interface {
	// A lock for one owner.
	lock(kind, key string) (lock, error)
	close() error
}

// A lock, used by one owner.
type lock interface {
	acquire() error
	try() (bool, error)
	release() error
	// Increments a number by reading and then writing it, so that two holders at a time lose an increment.
	raise(counter string) error
}

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

// A connected client and its owners.
type peer struct {
	client client
	owners map[string]*owner
}

// A goroutine that does one thing at a time, with one lock for each key.
type owner struct {
	client client
	locks  map[string]lock
	work   chan func()
}

func connect(address, leaseMs string) (client, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	ms, err := strconv.Atoi(leaseMs)
	if err != nil {
		return nil, err
	}
	lease := time.Duration(ms) * time.Millisecond
	if parsed.Scheme == "etcd" {
		return connectEtcd(parsed, lease)
	}
	return connectRedis(address, lease)
}

func (peer *peer) owner(name string) *owner {
	if peer.owners[name] == nil {
		created := &owner{peer.client, map[string]lock{}, make(chan func(), 1024)}
		go func() {
			for work := range created.work {
				work()
			}
		}()
		peer.owners[name] = created
	}
	return peer.owners[name]
}

func (owner *owner) serve(verb, kind, key string, rest []string) (any, error) {
	lock := owner.locks[key]
	if lock == nil {
		created, err := owner.client.lock(kind, key)
		if err != nil {
			return nil, err
		}
		lock, owner.locks[key] = created, created
	}
	switch verb {
	case "acquire":
		return nil, lock.acquire()
	case "try":
		return lock.try()
	case "release":
		return nil, lock.release()
	case "extend":
		return lock.(interface{ extend() (bool, error) }).extend()
	case "observe":
		return lock.(interface{ observe() (string, error) }).observe()
	case "proclaim":
		return nil, lock.(interface{ proclaim(string) error }).proclaim(rest[0])
	case "count":
		return count(lock, rest[0], rest[1])
	}
	return nil, fmt.Errorf("no such verb: %s", verb)
}

// Returns the longest wait in ms.
func count(lock lock, counter, turns string) (any, error) {
	number, err := strconv.Atoi(turns)
	if err != nil {
		return nil, err
	}
	var longest time.Duration
	for turn := 0; turn < number; turn++ {
		asked := time.Now()
		if err := lock.acquire(); err != nil {
			return nil, err
		}
		if waited := time.Since(asked); waited > longest {
			longest = waited
		}
		if err := lock.raise(counter); err != nil {
			return nil, err
		}
		if err := lock.release(); err != nil {
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
	if len(os.Args) > 1 && os.Args[1] == "bench" {
		bench(os.Args[2:])
		return
	}
	peers := map[string]*peer{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), " ")
		id, err := strconv.Atoi(words[0])
		if err != nil {
			panic(err)
		}
		verb, name, rest := words[1], words[2], words[3:]
		switch verb {
		case "open":
			connected, err := connect(rest[0], rest[1])
			peers[name] = &peer{connected, map[string]*owner{}}
			reply(id, "", err)
		case "close":
			reply(id, nil, peers[name].client.close())
			delete(peers, name)
		default:
			owner := peers[name].owner(rest[0])
			kind, key, arguments := rest[1], rest[2], rest[3:]
			owner.work <- func() {
				value, err := owner.serve(verb, kind, key, arguments)
				reply(id, value, err)
			}
		}
	}
}
