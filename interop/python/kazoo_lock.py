"""Kazoo's Lock, ReadLock and WriteLock, and a single ephemeral node as textbooks lock with it. The number that the owners increment is in a file."""

import threading
from urllib.parse import urlsplit

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout, NodeExistsError


class Client:
    """A session of kazoo, which lasts as long as a lease."""

    def __init__(self, url, lease):
        url = urlsplit(url)
        self.folder = url.path
        self.kazoo = KazooClient(hosts=url.netloc, timeout=lease)
        self.kazoo.start()

    def lock(self, owner, kind, key):
        path = f"{self.folder}/{key}"
        if kind == "node":
            return Node(self.kazoo, path)
        recipe = {"lock": self.kazoo.Lock, "read": self.kazoo.ReadLock, "write": self.kazoo.WriteLock}[kind]
        return Lock(recipe(path, owner))

    def read(self, counter):
        with open(counter, encoding="ascii") as file:
            return int(file.read())

    def write(self, counter, value):
        with open(counter, "w", encoding="ascii") as file:
            file.write(str(value))

    def close(self):
        self.kazoo.stop()
        self.kazoo.close()


class Lock:
    """A lock of kazoo, whose time limit raises an error."""

    def __init__(self, lock):
        self.lock = lock

    def acquire(self, blocking=True, blocking_timeout=None):
        try:
            return self.lock.acquire(blocking=blocking, timeout=blocking_timeout)
        except LockTimeout:
            return False

    def release(self):
        self.lock.release()

    def owned(self):
        return self.lock.is_acquired


class Node:
    """The node is there while its key is held."""

    def __init__(self, kazoo, path):
        self.kazoo = kazoo
        self.path = path

    def acquire(self, blocking=True):
        while True:
            changed = threading.Event()
            try:
                self.kazoo.create(self.path, ephemeral=True, makepath=True)
                return True
            except NodeExistsError:
                if not blocking:
                    return False
            if self.kazoo.exists(self.path, watch=lambda _: changed.set()):
                changed.wait()

    def release(self):
        self.kazoo.delete(self.path)
