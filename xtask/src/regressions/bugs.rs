//! The bugs, R1 to R32, in our own words.
//! Not here: who guards against them; the tests say so themselves.

/// A bug that a lock library has shipped.
#[derive(Debug)]
pub(crate) struct Bug {
    /// What went wrong.
    pub(crate) what: &'static str,
    /// Where it happened.
    pub(crate) whose: &'static str,
    /// The stores to which it can happen and which are not there yet.
    pub(crate) awaits: &'static [&'static str],
    /// Whether it can happen without them: a test must guard against it.
    pub(crate) applies: bool,
}

/// R1 is the first.
pub(crate) const BUGS: &[Bug] = &[
    here(
        "The store granted the lock in the very moment in which the wait timed out, and nobody gave it back",
        "DistributedLock #147",
    ),
    here(
        "A future was dropped at some await point of acquire, renew or release, and its claim stayed",
        "most libraries",
    ),
    Bug {
        what: "A guard was dropped and its connection went back to the pool, with the lock still on it",
        whose: "distributed-lock 0.2, lakekeeper #1789",
        awaits: &["PostgreSQL", "MySQL"],
        applies: true,
    },
    here(
        "A renewal that was under way when the lock was released brought it back",
        "RedLock.net #64, DynamoDB client #116, Redisson #7272",
    ),
    here(
        "One renewal that failed for a moment gave the lock up",
        "redislock #88, Redisson #775",
    ),
    here(
        "A renewal that failed released a lock that was still good",
        "redsync #150, rslock",
    ),
    here("Extending an expired lock made it anew", "RedLock.net"),
    later(
        "With an even number of nodes the vote was split, and nobody ever won",
        "node-redlock",
        &["quorum"],
    ),
    later(
        "A node that hung, died or came back empty was taken for a healthy one",
        "redsync #149",
        &["quorum"],
    ),
    later(
        "A minority that answered late, or did the work and timed out, was never cleaned up",
        "redlock-universal",
        &["quorum"],
    ),
    here(
        "The share of a reader that had crashed stayed for as long as other readers came, and writers starved",
        "DistributedLock, Redisson #1458",
    ),
    here(
        "The fencing token began at 1 again after a release, an expiry or a restart",
        "dlock, DistributedLock on MongoDB",
    ),
    here("What had been told as lost was told as held again", "distkit"),
    here(
        "The loss was told minutes after the lease had ended",
        "Consul #18271, #9788",
    ),
    here(
        "A push message was lost, and its waiter slept on beside a free lock",
        "Redisson #763, #3891, #5116",
    ),
    here(
        "The store failed the first of the local queue, and the others waited for ever",
        "Spring #2660, Symfony #45505",
    ),
    here("Two names met on one local mutex", "Spring #11146"),
    later(
        "The connection was lost while the node was made: an orphan stayed; and the sequence number ran over",
        "kazoo #732",
        &["ZooKeeper"],
    ),
    Bug {
        what: "The lease died while its owner queued, and the lock was returned all the same",
        whose: "etcd #9921, #11456",
        awaits: &["etcd"],
        applies: true,
    },
    later(
        "A connection pool that switches sessions between transactions orphaned session locks",
        "DistributedLock #168",
        &["PostgreSQL"],
    ),
    later(
        "`GET_LOCK(-1)` answers NULL, names fold their case, and long ones are refused",
        "MariaDB",
        &["MySQL"],
    ),
    here(
        "The wall clock was set, the process paused beyond its lease, or the machine suspended: two held at once",
        "Kleppmann, Jepsen",
    ),
    here(
        "Two processes of one host had one owner name, and a late unlock of the one freed the other's lock",
        "ShedLock",
    ),
    here(
        "The command outlived its lock: after a lost session, a killed tool, or in its grandchildren",
        "etcdctl lock, Consul lock #9788, #1290",
    ),
    here(
        "An acquire was sent again after its answer was late, and counted twice",
        "Redisson #7367",
    ),
    here(
        "In a fair queue a dead head made its followers spin, a live waiter was sent to the tail, a cancelled one stayed",
        "Redisson #6150, #3004, #5019",
    ),
    here(
        "A nested unlock of the read lock shortened the write lock's lease, or stopped its watchdog",
        "Redisson",
    ),
    here(
        "A holder was never told that it had lost its lock",
        "Redisson #4698",
    ),
    here(
        "The permits of a crashed holder were lost, and thousands of expired ones blocked their own removal",
        "Redisson #4462",
    ),
    Bug {
        what: "Names with braces could be locked and not unlocked",
        whose: "Redisson on a cluster",
        awaits: &["Redis Cluster"],
        applies: true,
    },
    here(
        "A multi-lock stopped releasing at the first error; two in opposite order ran after each other for ever",
        "Redisson #4456, #4050",
    ),
    here(
        "Each name that was ever locked left a token or a key behind",
        "Redisson #6510",
    ),
];

/// A bug that every store can have.
const fn here(what: &'static str, whose: &'static str) -> Bug {
    Bug {
        what,
        whose,
        awaits: &[],
        applies: true,
    }
}

/// A bug that only stores can have which are not there yet.
const fn later(what: &'static str, whose: &'static str, awaits: &'static [&'static str]) -> Bug {
    Bug {
        what,
        whose,
        awaits,
        applies: false,
    }
}
