"""Locks in plain SQL with psycopg or PyMySQL, as textbooks write them. The kind of a lock is its table's layout."""

import threading
import time
from urllib.parse import urlsplit

import psycopg
import pymysql

# A waiter tries again after this pause, in seconds.
PAUSE = 0.02

# MySQL's error for a deadlock. It undoes the statement, and every client must be prepared to issue it again: two that delete
# and insert the row of one key may meet it, also without Tenure.
DEADLOCK = 1213

NOW = {"postgresql": "now()", "mariadb": "NOW(6)"}
END = {
    "postgresql": "now() + %s * interval '1 second'",
    "mariadb": "NOW(6) + INTERVAL %s * 1000000 MICROSECOND",
}
INSERT_MISSING = {
    "postgresql": "INSERT INTO resource_lock (resource_key) VALUES (%s) ON CONFLICT (resource_key) DO NOTHING",
    "mariadb": "INSERT IGNORE INTO resource_lock (resource_key) VALUES (%s)",
}


class Client:
    """Connects each thread on its own."""

    def __init__(self, url, lease):
        self.url = url
        self.lease = lease
        self.database = urlsplit(url).scheme
        self.threads = threading.local()
        self.connections = []

    def connect(self):
        if self.database == "postgresql":
            return psycopg.connect(self.url, autocommit=True)
        url = urlsplit(self.url)
        login = {"host": url.hostname, "port": url.port, "user": url.username, "password": url.password}
        return pymysql.connect(**login, database=url.path[1:], autocommit=True)

    def run(self, statement, *values):
        """Runs a statement with these words for the database's time. Returns the cursor."""
        if not hasattr(self.threads, "connection"):
            self.threads.connection = self.connect()
            self.connections.append(self.threads.connection)
        statement = statement.format(now=NOW[self.database], end=END[self.database])
        cursor = self.threads.connection.cursor()
        while True:
            try:
                cursor.execute(statement, values)
                return cursor
            except pymysql.OperationalError as error:
                if error.args[0] != DEADLOCK:
                    raise

    def lock(self, owner, kind, key):
        return {"unique": Unique, "version": Version}[kind](self, owner, key)

    def read(self, counter):
        return self.run(f"SELECT value FROM {counter}").fetchone()[0]

    def write(self, counter, value):
        self.run(f"UPDATE {counter} SET value = %s", value)

    def close(self):
        for connection in self.connections:
            connection.close()


class Lock:
    """A lock of one owner, which names itself in the row."""

    def __init__(self, client, owner, key):
        self.client = client
        self.owner = owner
        self.key = key

    def acquire(self, blocking=True):
        while not self.is_taken():
            if not blocking:
                return False
            time.sleep(PAUSE)
        return True

    def change(self, statement, *values):
        """Returns whether the statement has changed a row."""
        return self.client.run(statement, *values).rowcount > 0


class Unique(Lock):
    """A row is there while its key is held: a duplicate key means that the lock is held."""

    def is_taken(self):
        self.change("DELETE FROM distributed_lock WHERE lock_key = %s AND expire_time < {now}", self.key)
        insert = "INSERT INTO distributed_lock (lock_key, lock_value, expire_time) VALUES (%s, %s, {end})"
        try:
            return self.change(insert, self.key, self.owner, self.client.lease)
        except (psycopg.IntegrityError, pymysql.IntegrityError):
            return False

    def release(self):
        self.change("DELETE FROM distributed_lock WHERE lock_key = %s AND lock_value = %s", self.key, self.owner)

    def reacquire(self):
        extend = "UPDATE distributed_lock SET expire_time = {end} WHERE lock_key = %s AND lock_value = %s"
        return self.change(extend, self.client.lease, self.key, self.owner)


class Version(Lock):
    """The row stays, and its version is the fencing token. The holder knows no lease, and no `expire_time`."""

    def is_taken(self):
        self.client.run(INSERT_MISSING[self.client.database], self.key)
        look = "SELECT version FROM resource_lock WHERE resource_key = %s AND NOT locked"
        seen = self.client.run(look, self.key).fetchone()
        if seen is None:
            return False
        self.token = seen[0] + 1
        take = """UPDATE resource_lock SET locked = true, lock_holder = %s, version = version + 1, update_time = {now}
            WHERE resource_key = %s AND version = %s AND NOT locked"""
        return self.change(take, self.owner, self.key, seen[0])

    def release(self):
        release = """UPDATE resource_lock SET locked = false, lock_holder = NULL, version = version + 1, update_time = {now}
            WHERE resource_key = %s AND lock_holder = %s AND locked"""
        self.change(release, self.key, self.owner)
