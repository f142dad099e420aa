"""Lock clients, driven line by line by Tenure's tests. interop/src/peer.rs describes the requests. The argument names the
module with the client.
"""

import importlib
import json
import os
import queue
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

output = threading.Lock()


def answer(number, **fields):
    with output:
        print(json.dumps({"id": number, **fields}), flush=True)


class Owner:
    """A thread that does one thing at a time, with one lock object for each key."""

    def __init__(self, client, name):
        self.client = client
        self.name = name
        self.locks = {}
        self.work = queue.SimpleQueue()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            number, verb, kind, key, rest = self.work.get()
            try:
                answer(number, value=self.serve(verb, kind, key, rest))
            except Exception as error:
                answer(number, error=type(error).__name__, message=str(error))

    def serve(self, verb, kind, key, rest):
        if key not in self.locks:
            self.locks[key] = self.client.lock(self.name, kind, key)
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
        elif verb == "token":
            return lock.token
        elif verb == "raise":
            self.raise_(*rest)
        elif verb == "count":
            return self.count(lock, *rest)
        else:
            raise ValueError(f"no such verb: {verb}")

    def raise_(self, counter):
        self.client.write(counter, self.client.read(counter) + 1)

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
                self.raise_(counter)
            finally:
                lock.release()
        return int(longest * 1000)


class Peer:
    """A connected client and its owners."""

    def __init__(self, client):
        self.client = client
        self.owners = {}

    def owner(self, name):
        if name not in self.owners:
            self.owners[name] = Owner(self.client, name)
        return self.owners[name]


def main():
    client = importlib.import_module(sys.argv[1])
    peers = {}
    for line in sys.stdin:
        number, verb, peer, *rest = line.split()
        number = int(number)
        if verb == "open":
            peers[peer] = Peer(client.Client(rest[0], int(rest[1]) / 1000))
            answer(number, value="")
        elif verb == "close":
            peers.pop(peer).client.close()
            answer(number, value=None)
        else:
            owner, kind, key, *rest = rest
            peers[peer].owner(owner).work.put((number, verb, kind, key, rest))
    # Ends the process although threads still wait for locks.
    os._exit(0)


main()
