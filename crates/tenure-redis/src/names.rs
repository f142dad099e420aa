//! How things are called in Redis: owners as the scripts take them, channels, and what a listing looks for.
//! The other keys are made by the scripts, of the lock's name.

use std::fmt::Write;

use tenure_backend::{ClaimId, ClientId, LockKey};

/// How many bytes a client's uuid has.
pub(crate) const UUID: usize = 36;

/// The longest owner: a uuid, a colon and a number of 20 digits.
const LONGEST: usize = UUID + 21;

/// The name of a claim as a field of Redisson's hash: `uuid:number`, which is also how people see it.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    text: [u8; LONGEST],
    len: usize,
}

impl Owner {
    pub(crate) fn of(id: ClaimId) -> Self {
        let mut owner = Owner {
            text: [0; LONGEST],
            len: UUID,
        };
        owner.text[..UUID].copy_from_slice(&uuid(id.client()));
        // It has room for every number.
        let _ = write!(owner, ":{}", id.number());
        owner
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }

    /// The client's part.
    pub(crate) fn client(&self) -> &[u8] {
        &self.text[..UUID]
    }
}

impl Write for Owner {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        let Some(room) = self.text.get_mut(self.len..end) else {
            return Err(std::fmt::Error);
        };
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// As `ClientId` is displayed, but written without a formatter: every call has one.
fn uuid(client: ClientId) -> [u8; UUID] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; UUID];
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

/// Where it stands what is known of a client: its label, and what it holds.
pub(crate) fn claims_of(client: ClientId) -> [u8; 14 + UUID] {
    of_client(b"tenure_claims:", client)
}

/// What is there while a request of a client's may be in doubt.
pub(crate) fn doubts_of(client: ClientId) -> [u8; 14 + UUID] {
    of_client(b"tenure_doubts:", client)
}

fn of_client(kind: &[u8; 14], client: ClientId) -> [u8; 14 + UUID] {
    let mut key = [0; 14 + UUID];
    key[..14].copy_from_slice(kind);
    key[14..].copy_from_slice(&uuid(client));
    key
}

/// The channel on which Redisson says that a lock was released.
pub(crate) fn channel(key: &LockKey) -> String {
    beside("redisson_lock__channel:", key)
}

/// Where those stand who queue for a lock.
pub(crate) fn queue(key: &LockKey) -> String {
    beside(QUEUES, key)
}

/// What stands under a name of its own beside a lock, in the same slot.
fn beside(kind: &str, key: &LockKey) -> String {
    let name = key.as_str();
    if name.contains('{') {
        format!("{kind}{name}")
    } else {
        format!("{kind}{{{name}}}")
    }
}

/// The channel on which the head of a fair queue is called.
pub(crate) fn channel_of(key: &LockKey, owner: &Owner) -> String {
    let mut channel = channel(key);
    channel.push(':');
    channel.push_str(&String::from_utf8_lossy(owner.as_bytes()));
    channel
}

/// Whether a lock of that name would stand where others keep their queues and records.
pub(crate) fn is_reserved(name: &str) -> bool {
    const KEPT: [&str; 7] = [
        "tenure_tokens",
        "tenure_claim:",
        "tenure_claims:",
        "tenure_doubts:",
        "tenure_waiters:",
        "redisson_lock_queue:",
        "redisson_lock_timeout:",
    ];
    KEPT.iter().any(|kept| name.starts_with(kept))
}

/// How the names of queues begin.
pub(crate) const QUEUES: &str = "redisson_lock_queue:";

/// The lock's name in the name of its queue.
pub(crate) fn of_queue(queue: &str) -> Option<&str> {
    let tag = queue.strip_prefix(QUEUES)?;
    let bare = tag.strip_prefix('{').and_then(|tag| tag.strip_suffix('}'));
    // A name that has a brace of its own stands there as it is. (`k` and `{k}` share their queue: Redisson's rule.)
    match bare {
        Some(bare) if !bare.is_empty() && !bare.contains('{') => Some(bare),
        _ => Some(tag),
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
    fn a_queue_tells_its_lock() {
        for name in ["k", "{a}b", "a{b", "a}b", "{}", "}", "x{y}"] {
            let tag = if name.contains('{') {
                name.to_owned()
            } else {
                format!("{{{name}}}")
            };
            assert_eq!(
                of_queue(&format!("redisson_lock_queue:{tag}")),
                Some(name),
                "{name}"
            );
        }
        assert_eq!(of_queue("other"), None);
    }
}
