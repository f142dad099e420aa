//! Names that calls pass to Redis: owners (a claim in text form), keys and channels. The scripts derive all other keys
//! from the lock's name.

use std::io::Write;

use tenure_backend::{ClaimId, ClientId, LockKey};

/// Key of the token counter, one per database, or in a cluster one per slot; releases do not delete it.
///
/// A move from a single server to a cluster, or back, changes the counter. If the servers' clocks agree, tokens still
/// rise, because each draw raises the counter at least to the server's time.
pub(crate) const COUNTER: &str = "tenure_tokens";

/// Length of a client's UUID in text.
pub(crate) const UUID_LEN: usize = 36;

/// Length of the longest owner: a UUID, a colon and a number of 20 digits.
const MAX_OWNER: usize = UUID_LEN + 21;

/// A claim in text form, `uuid:number`: the field in Redisson's hash, and the ID that users see.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    text: [u8; MAX_OWNER],
    len: usize,
}

impl Owner {
    pub(crate) fn of(id: ClaimId) -> Self {
        let mut text = [0; MAX_OWNER];
        let (client, mut number) = text.split_at_mut(UUID_LEN);
        client.copy_from_slice(&uuid(id.client()));
        // Cannot fail: the buffer fits every number.
        let _ = write!(number, ":{}", id.number());
        let len = MAX_OWNER - number.len();
        Owner { text, len }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }

    /// The client's UUID.
    pub(crate) fn client(&self) -> &[u8] {
        &self.text[..UUID_LEN]
    }
}

/// Formats a client's UUID as `ClientId` displays it, but faster, because every call needs it.
pub(crate) fn uuid(client: ClientId) -> [u8; UUID_LEN] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; UUID_LEN];
    let mut at = 0;
    for (i, byte) in client.as_bytes().iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            at += 1;
        }
        text[at] = DIGITS[usize::from(byte >> 4)];
        text[at + 1] = DIGITS[usize::from(byte & 0xf)];
        at += 2;
    }
    text
}

/// Key of the client's record, which holds the client's label. Clients of other kinds, such as Java's, have no record.
pub(crate) fn client_key(client: ClientId) -> [u8; 14 + UUID_LEN] {
    key_of_client(b"tenure_client:", client)
}

/// Key that exists while a request of one of the client's ended claims may be in flight.
pub(crate) fn in_flight_key(client: ClientId) -> [u8; 17 + UUID_LEN] {
    key_of_client(b"tenure_in_flight:", client)
}

/// A key of `LEN` bytes: the kind, and the client's UUID.
fn key_of_client<const LEN: usize>(kind: &[u8], client: ClientId) -> [u8; LEN] {
    let mut key = [0; LEN];
    let (start, end) = key.split_at_mut(kind.len());
    start.copy_from_slice(kind);
    end.copy_from_slice(&uuid(client));
    key
}

/// The channel on which a client learns of its evictions. A message is the name of a lock.
pub(crate) fn client_channel(client: ClientId) -> String {
    format!("{CLIENT_CHANNEL}{client}")
}

/// Prefix of the channels of clients. In a cluster, their messages go to all nodes.
pub(crate) const CLIENT_CHANNEL: &str = "tenure:client:";

/// Prefix of the channel to which releases of a mutex are published, by Redisson too. Also the prefix of the channels
/// that each wake one fair waiter, of a lock of any kind.
pub(crate) const MUTEX_CHANNEL: &str = "redisson_lock__channel:";

/// Prefix of the channel to which Redisson publishes releases of a read-write lock.
pub(crate) const READ_WRITE_CHANNEL: &str = "redisson_rwlock:";

/// Prefix of the channel to which Redisson publishes releases of a semaphore.
pub(crate) const SEMAPHORE_CHANNEL: &str = "redisson_sc:";

/// Key of the list of a lock's fair waiters.
pub(crate) fn queue(key: &LockKey) -> String {
    tagged(QUEUE_PREFIX, key)
}

/// The name of a further key or channel of a lock. Its hash tag is the lock's name, or the tag in that name, so that a
/// cluster keeps it in the lock's slot.
pub(crate) fn tagged(kind: &str, key: &LockKey) -> String {
    let name = key.as_str();
    if name.contains('{') {
        format!("{kind}{name}")
    } else {
        format!("{kind}{{{name}}}")
    }
}

/// The channel that wakes a single fair waiter: usually the one at the head of the queue.
pub(crate) fn owner_channel(key: &LockKey, owner: &Owner) -> String {
    let owner = String::from_utf8_lossy(owner.as_bytes());
    format!("{}:{owner}", tagged(MUTEX_CHANNEL, key))
}

/// Returns whether a lock of this name could collide with a key that holds data of other locks.
pub(crate) fn is_reserved(name: &str) -> bool {
    const RESERVED: [&str; 10] = [
        "tenure_tokens",
        "tenure_slot:",
        "tenure_claim:",
        "tenure_client:",
        "tenure_in_flight:",
        "tenure_waiters:",
        "tenure_holders:",
        "redisson_lock_token:",
        "redisson_lock_queue:",
        "redisson_lock_timeout:",
    ];
    RESERVED.iter().any(|reserved| name.starts_with(reserved)) || name.contains(":rwlock_timeout:")
}

/// Returns whether a key of a script call is one that many locks share, so that in a cluster each slot has its own.
/// True also for the empty name that a call passes in place of the token counter if each lock has its own counter.
pub(crate) fn is_once_per_slot(key: &[u8]) -> bool {
    let prefixes = [&b"tenure_client:"[..], b"tenure_in_flight:"];
    key.is_empty() || key == COUNTER.as_bytes() || prefixes.iter().any(|prefix| key.starts_with(prefix))
}

/// Prefix of the keys of fair queues.
pub(crate) const QUEUE_PREFIX: &str = "redisson_lock_queue:";

/// Suffix of the key of a semaphore's taken permits.
pub(crate) const PERMITS_SUFFIX: &str = ":timeout";

/// Extracts a lock's name from its queue's key; `None` for any other key.
pub(crate) fn lock_of_queue(queue: &str) -> Option<&str> {
    queue.strip_prefix(QUEUE_PREFIX).map(lock_of_tag)
}

/// Extracts a semaphore's name from the key of its taken permits; `None` for any other key.
pub(crate) fn semaphore_of_permits(permits: &str) -> Option<&str> {
    permits.strip_suffix(PERMITS_SUFFIX).map(lock_of_tag)
}

fn lock_of_tag(tag: &str) -> &str {
    let bare = tag.strip_prefix('{').and_then(|tag| tag.strip_suffix('}'));
    // `tagged` puts braces around a name without `{`: the tag `{k}` is that of the lock `k`, but `a{b` that of the
    // lock `a{b`. (A lock `{k}` has the same tag as `k`: by Redisson's rule the two share a queue.)
    match bare {
        Some(bare) if !bare.is_empty() && !bare.contains('{') => bare,
        _ => tag,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_written_as_the_claim_is_displayed() {
        for (client, number) in [(0xab, 0), (7, 42), (0xff, u64::MAX)] {
            let id = ClaimId::new(ClientId::from_random([client; 16]), number);
            let owner = Owner::of(id);
            assert_eq!(owner.as_bytes(), id.to_string().as_bytes());
            assert_eq!(owner.client(), id.client().to_string().as_bytes());
        }
    }

    #[test]
    fn the_lock_is_found_from_the_key_of_its_queue() {
        for name in ["k", "{a}b", "a{b", "a}b", "{}", "}", "x{y}"] {
            let tag = if name.contains('{') {
                name.to_owned()
            } else {
                format!("{{{name}}}")
            };
            assert_eq!(
                lock_of_queue(&format!("redisson_lock_queue:{tag}")),
                Some(name),
                "{name}"
            );
        }
        assert_eq!(lock_of_queue("other"), None);
    }
}
