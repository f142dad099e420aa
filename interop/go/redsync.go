// Mutexes of redsync.
package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type redisClient struct {
	redis *redis.Client
	sync  *redsync.Redsync
	lease time.Duration
}

type redisLock struct {
	*redisClient
	key   string
	mutex *redsync.Mutex
}

func connectRedis(address string, lease time.Duration) (client, error) {
	options, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	return &redisClient{client, redsync.New(goredis.NewPool(client)), lease}, nil
}

func (client *redisClient) lock(_, key string) (lock, error) {
	return &redisLock{client, key, nil}, nil
}

func (client *redisClient) close() error {
	return client.redis.Close()
}

func (client *redisClient) raise(counter string) error {
	background := context.Background()
	before, err := client.redis.Get(background, counter).Int()
	if err != nil && err != redis.Nil {
		return err
	}
	return client.redis.Set(background, counter, before+1, 0).Err()
}

func (lock *redisLock) wait(tries int) error {
	mutex := lock.sync.NewMutex(lock.key, redsync.WithExpiry(lock.lease), redsync.WithTries(tries))
	if err := mutex.Lock(); err != nil {
		return err
	}
	lock.mutex = mutex
	return nil
}

func (lock *redisLock) acquire() error {
	return lock.wait(math.MaxInt32)
}

func (lock *redisLock) try() (bool, error) {
	return lock.wait(1) == nil, nil
}

func (lock *redisLock) release() error {
	released, err := lock.mutex.Unlock()
	if err == nil && !released {
		err = fmt.Errorf("%s is not held", lock.key)
	}
	return err
}

func (lock *redisLock) extend() (bool, error) {
	return lock.mutex.Extend()
}
