"""redis-py's Lock."""

import redis


class Client:
    """A client of redis-py."""

    def __init__(self, url, lease):
        self.redis = redis.Redis.from_url(url)
        self.lease = lease

    def lock(self, _owner, _kind, key):
        return self.redis.lock(key, timeout=self.lease, thread_local=False)

    def read(self, counter):
        return int(self.redis.get(counter) or 0)

    def write(self, counter, value):
        self.redis.set(counter, value)

    def close(self):
        self.redis.close()
