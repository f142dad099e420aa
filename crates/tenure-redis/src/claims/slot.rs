//! Slots of Redis Cluster: each key belongs to one of 16,384 slots, and each slot to one node.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use tenure_backend::{BackendError, ClaimRef, ClientId, LockKey};

use crate::claims::names::queue;
use crate::error::invalid;

/// Number of slots in a cluster.
pub(crate) const SLOTS: usize = 16_384;

/// For each slot, its tag: the smallest number whose decimal digits, taken as a key, belong to that slot.
static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let (mut tags, mut number) = (BTreeMap::new(), 0);
    while tags.len() < SLOTS {
        tags.entry(slot(number.to_string().as_bytes())).or_insert(number);
        number += 1;
    }
    tags.into_values().collect()
});

/// The slot of a key: that of its hash tag, if it has one.
pub(crate) fn slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS as u16
}

/// Returns the slot of a lock. Fails if the lock's further keys would be in other slots.
pub(crate) fn slot_of(key: &LockKey) -> Result<u16, BackendError> {
    let slot = slot(key.as_str().as_bytes());
    if has_one_slot(key) {
        return Ok(slot);
    }
    Err(invalid(
        "the braces of this key leave its lock without a slot of its own in a cluster: choose a key without braces, or with one \
         pair around some text, as in `{user}:mail`",
    ))
}

/// Identifies the record of a claim's client. In a cluster, a client has one record for each slot.
pub(crate) fn client_record_at(claim: &ClaimRef, in_cluster: bool) -> (ClientId, u16) {
    let slot = match in_cluster {
        true => slot(claim.key.as_str().as_bytes()),
        false => 0,
    };
    (claim.id.client(), slot)
}

/// Returns whether all keys of a lock are in the slot of its name.
pub(crate) fn has_one_slot(key: &LockKey) -> bool {
    slot(key.as_str().as_bytes()) == slot(queue(key).as_bytes())
}

/// The end of the name of a key that exists once for each slot, such as the token counter: a hash tag of that slot.
pub(crate) fn scope(slot: u16) -> String {
    format!(":{{{}}}", TAGS[usize::from(slot)])
}

/// Error for a call that was not sent, because its keys are in several slots of a cluster.
pub(crate) fn several_slots() -> BackendError {
    invalid("the keys of one call are in several slots of the cluster: this is a bug of ours")
}

/// The text between the first `{` and the next `}`; `None` if a brace is missing or the text is empty.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let rest = &key[open + 1..];
    let close = rest.iter().position(|byte| *byte == b'}')?;
    Some(&rest[..close]).filter(|tag| !tag.is_empty())
}

/// CRC-16/XMODEM, with which Redis Cluster assigns keys to slots.
fn crc16(bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = {
        let (mut table, mut at) = ([0; 256], 0);
        while at < 256 {
            let (mut crc, mut bit) = ((at as u16) << 8, 0);
            while bit < 8 {
                crc = (crc << 1) ^ ((crc >> 15) * 0x1021);
                bit += 1;
            }
            table[at] = crc;
            at += 1;
        }
        table
    };
    bytes.iter().fold(0, |crc, byte| {
        crc << 8 ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slots are those that `CLUSTER KEYSLOT` returns.
    #[test]
    fn the_slot_of_a_key_is_that_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, expected) in [
            ("foo", 12182),
            ("{foo}bar", 12182),
            ("x{foo}{bar}", 12182),
            ("", 0),
        ] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
        assert_eq!(slot(b"{}foo"), crc16(b"{}foo") % 16384, "an empty tag is none");
        assert_eq!(slot(b"{foo"), crc16(b"{foo") % 16384, "nor an open one");
    }

    #[test]
    fn every_slot_has_a_short_tag_of_its_own() {
        assert_eq!(TAGS.len(), SLOTS);
        for of in 0..SLOTS as u16 {
            let key = format!("tenure_tokens{}", scope(of));
            assert_eq!(slot(key.as_bytes()), of);
            assert!(key.len() < 23, "{key}");
        }
    }

    /// R30: braces can send a lock's further keys to another slot. In a cluster, Redisson locks such a name but cannot
    /// unlock it.
    #[test]
    fn a_name_with_stray_braces_is_refused() {
        for (name, fits) in [
            ("k", true),
            ("{k}", true),
            ("{a}b", true),
            ("{a{b}c}", true),
            ("a{b", false),
            ("a}b", false),
            ("a{}b", false),
        ] {
            let key = LockKey::new(name).expect("a key");
            assert_eq!(slot_of(&key).is_ok(), fits, "{name}");
        }
    }
}
