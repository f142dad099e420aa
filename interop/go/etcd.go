// Mutexes and elections of the package `concurrency` in etcd's client, and `etcdctl lock`. The number that they increment
// is in a file.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

type etcdClient struct {
	*clientv3.Client
	prefix string
	ttl    int
}

func connectEtcd(address *url.URL, lease time.Duration) (client, error) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{address.Host}})
	if err != nil {
		return nil, err
	}
	prefix := strings.TrimPrefix(address.Path, "/") + "/"
	return &etcdClient{etcd, prefix, int(lease.Seconds())}, nil
}

// Each lock has a session of its own: locks of one session do not exclude each other.
func (client *etcdClient) lock(kind, key string) (lock, error) {
	name := client.prefix + key
	if kind == "etcdctl" || kind == "etcdctl-command" {
		return &waiter{client, name, &etcdctl{client: client, name: name, hasCommand: kind != "etcdctl"}}, nil
	}
	session, err := concurrency.NewSession(client.Client, concurrency.WithTTL(client.ttl))
	if err != nil {
		return nil, err
	}
	switch kind {
	case "mutex":
		return &mutex{concurrency.NewMutex(session, name)}, nil
	case "election":
		return &waiter{client, name, &candidate{concurrency.NewElection(session, name)}}, nil
	}
	return nil, fmt.Errorf("no such kind: %s", kind)
}

func (client *etcdClient) close() error {
	return client.Close()
}

type mutex struct {
	*concurrency.Mutex
}

func (mutex *mutex) acquire() error {
	return mutex.Lock(context.Background())
}

func (mutex *mutex) try() (bool, error) {
	err := mutex.TryLock(context.Background())
	if errors.Is(err, concurrency.ErrLocked) {
		return false, nil
	}
	return err == nil, err
}

func (mutex *mutex) release() error {
	return mutex.Unlock(context.Background())
}

func (mutex *mutex) raise(counter string) error {
	return raiseIn(counter)
}

type candidate struct {
	*concurrency.Election
}

func (candidate *candidate) wait(ctx context.Context) error {
	return candidate.Campaign(ctx, "candidate")
}

func (candidate *candidate) release() error {
	return candidate.Resign(context.Background())
}

// Returns the value of the leader.
func (candidate *candidate) observe() (string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	leader, ok := <-candidate.Observe(ctx)
	if !ok {
		return "", errors.New("the observation has ended")
	}
	return string(leader.Kvs[0].Value), nil
}

func (candidate *candidate) raise(counter string) error {
	return raiseIn(counter)
}

// A lock of a client that cannot try, only wait.
type waiter struct {
	*etcdClient
	name string
	contender
}

type contender interface {
	// Leaves the queue if the context ends before the contender holds the lock.
	wait(ctx context.Context) error
	release() error
	raise(counter string) error
}

func (waiter *waiter) acquire() error {
	return waiter.wait(context.Background())
}

func (waiter *waiter) observe() (string, error) {
	return waiter.contender.(*candidate).observe()
}

func (waiter *waiter) proclaim(value string) error {
	return waiter.contender.(*candidate).Proclaim(context.Background(), value)
}

// Joins the queue, and leaves it if another contender is the first.
func (waiter *waiter) try() (bool, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	folder := waiter.name + "/"
	before, err := waiter.Get(ctx, folder)
	if err != nil {
		return false, err
	}
	next := clientv3.WithRev(before.Header.Revision + 1)
	joined := waiter.Watch(ctx, folder, clientv3.WithPrefix(), clientv3.WithFilterDelete(), next)
	waited := make(chan error, 1)
	go func() { waited <- waiter.wait(ctx) }()
	select {
	case err := <-waited:
		return err == nil, err
	case reply := <-joined:
		own := string(reply.Events[0].Kv.Key)
		first, err := waiter.Get(ctx, folder, clientv3.WithFirstCreate()...)
		if err != nil {
			return false, err
		}
		if string(first.Kvs[0].Key) == own {
			err := <-waited
			return err == nil, err
		}
		cancel()
		<-waited
		// A contender whose request is answered only now leaves its key behind.
		_, err = waiter.Delete(context.Background(), own)
		return false, err
	}
}

func raiseIn(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strconv.Itoa(before+1)), 0o600)
}
