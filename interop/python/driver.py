"""redis-py's Lock, driven line by line by Tenure's tests. interop/src/peer.rs describes the requests."""

import json
import os
import queue
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

import redis  # noqa: E402

output = threading.Lock()


def answer(number, **fields):
    with output:
        print(json.dumps({"id": number, **fields}), flush=True)


class Owner:
    """A thread that does one thing at a time, with one lock object for each key."""

    def __init__(self, peer):
        self.peer = peer
        self.locks = {}
        self.work = queue.SimpleQueue()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            number, verb, key, rest = self.work.get()
            try:
                answer(number, value=self.serve(verb, key, rest))
            except Exception as error:
                answer(number, error=type(error).__name__, message=str(error))

    def serve(self, verb, key, rest):
        if key not in self.locks:
            self.locks[key] = self.peer.redis.lock(key, timeout=self.peer.lease, thread_local=False)
        lock = self.locks[key]
        if verb == "acquire":
            lock.acquire()
        elif verb == "try":
            return lock.acquire(blocking=False)
        elif verb == "acquire-within":
            return lock.acquire(blocking_timeout=int(rest[0]) / 1000)
        elif verb == "release":
            lock.release()
        elif verb == "extend":
            return lock.reacquire()
        elif verb == "state":
            return int(lock.owned())
        elif verb == "count":
            return self.count(lock, *rest)
        else:
            raise ValueError(f"no such verb: {verb}")

    def count(self, lock, counter, turns):
        """Increments by reading and then writing, so that two holders at a time lose an increment.

        Returns the longest wait in ms.
        """
        longest = 0
        for _ in range(int(turns)):
            asked = time.monotonic()
            lock.acquire()
            longest = max(longest, time.monotonic() - asked)
            try:
                self.peer.redis.set(counter, int(self.peer.redis.get(counter) or 0) + 1)
            finally:
                lock.release()
        return int(longest * 1000)


class Peer:
    """A client of redis-py and its owners."""

    def __init__(self, url, lease):
        self.redis = redis.Redis.from_url(url)
        self.lease = int(lease) / 1000
        self.owners = {}

    def owner(self, name):
        if name not in self.owners:
            self.owners[name] = Owner(self)
        return self.owners[name]


def main():
    peers = {}
    for line in sys.stdin:
        number, verb, client, *rest = line.split()
        number = int(number)
        if verb == "open":
            peers[client] = Peer(*rest)
            answer(number, value="")
        elif verb == "close":
            peers.pop(client)
            answer(number, value=None)
        else:
            owner, _, key, *rest = rest
            peers[client].owner(owner).work.put((number, verb, key, rest))
    # Ends the process although threads still wait for locks.
    os._exit(0)


main()
