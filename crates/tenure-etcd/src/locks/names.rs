//! The keys in etcd: of a lock's contenders, as Go's client names them, and of leases, and of notes.

use tenure_backend::{ClientId, LockKey};
use tenure_contenders::unescape;

/// First byte of all keys that are no lock. No lock's key begins with it, because lock names have no control characters,
/// and neither has the prefix in a URL.
const OWN: char = '\u{1}';

/// Ends the lease's ID in the key of a candidate.
const CANDIDATE: char = ':';

/// The keys of the locks below one prefix.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The prefix with its final slash; empty without a prefix.
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        let prefix = match prefix {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        Names { prefix }
    }

    /// The key of a contender: the lease's ID in the lock's folder, as Go's client writes it. That of a candidate goes on with
    /// what claim it is.
    pub(super) fn contender(&self, lock: &LockKey, lease: i64, candidate: Option<&str>) -> String {
        let mut key = self.folder(lock) + &hex(lease);
        if let Some(record) = candidate {
            key.push(CANDIDATE);
            key += record;
        }
        key
    }

    /// The beginning of the keys of a lock's contenders.
    ///
    /// Keys of the lock `a/b` begin with the folder of the lock `a`, too: [`is_contender`] tells them apart.
    pub(super) fn folder(&self, key: &LockKey) -> String {
        format!("{}{}/", self.prefix, escape(key.as_str()))
    }

    /// The beginning of all keys of locks whose names begin with `prefix`. It may match further locks.
    pub(super) fn listing(&self, prefix: &str) -> String {
        let is_plain = |c: char| c != '/' && escape(c.encode_utf8(&mut [0; 4])).len() == c.len_utf8();
        let plain = prefix.find(|c| !is_plain(c)).unwrap_or(prefix.len());
        format!("{}{}", self.prefix, &prefix[..plain])
    }

    /// The lock that a key with this lease contends for; `None` if the key is no contender in Go's layout.
    pub(super) fn lock_of(&self, key: &[u8], lease: i64) -> Option<LockKey> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&*self.prefix)?;
        let (name, id) = rest.rsplit_once('/')?;
        let id = id.split(CANDIDATE).next()?;
        let name = (id == hex(lease)).then(|| unescape(name, escape))??;
        LockKey::new(name).ok()
    }
}

/// Returns whether a key in a lock's folder belongs to a contender of this lock, not of a lock such as `a/b` in the
/// folder of `a`.
pub(super) fn is_contender(key: &[u8], folder: &str) -> bool {
    key.strip_prefix(folder.as_bytes())
        .is_some_and(|rest| !rest.is_empty() && !rest.contains(&b'/'))
}

/// What a candidate's key says of its claim; `None` for other keys.
pub(super) fn candidate_record(key: &[u8]) -> Option<&[u8]> {
    let last = key.rsplit(|byte| *byte == b'/').next()?;
    let at = last.iter().position(|byte| *byte == CANDIDATE as u8)?;
    last.get(at + 1..)
}

/// A lease's ID, as Go's client writes it in keys.
pub(super) fn hex(lease: i64) -> String {
    format!("{lease:x}")
}

/// A key that is never written, for examinations.
pub(super) fn examined() -> String {
    format!("{OWN}tenure/examined")
}

/// The beginning of the keys of a client's leases and notes.
pub(super) fn client_folder(client: ClientId) -> String {
    format!("{OWN}tenure/{client}/")
}

/// The key of a lease, which is on that lease. Its deletion reports the end of the lease to its client, and its value is the
/// lease's epoch.
pub(super) fn lease_key(client: ClientId, lease: i64) -> String {
    format!("{}{}", client_folder(client), hex(lease))
}

/// The note that tells a client of the eviction of its claim with this number.
pub(super) fn note(client: ClientId, lease: i64, claim: u64) -> String {
    format!("{}/{claim}", lease_key(client, lease))
}

/// The number of the claim that a note in the client's folder is about, or `None` for that of a lease.
pub(super) fn noted_claim(key: &[u8]) -> Option<u64> {
    let (before, number) = std::str::from_utf8(key).ok()?.rsplit_once('/')?;
    let is_note = before.matches('/').count() == 2;
    number.parse().ok().filter(|_| is_note)
}

/// Escapes what would be invisible in a key, and slashes that would make an empty part of it.
fn escape(name: &str) -> String {
    tenure_contenders::escape(name, |_| false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> LockKey {
        LockKey::new(name).expect("a name")
    }

    #[test]
    fn a_name_is_read_from_its_contenders_key() {
        let names = Names::new("locks");
        for (name, folder) in [
            ("order:42", "locks/order:42/"),
            ("a/b", "locks/a/b/"),
            ("50%", "locks/50%25/"),
            ("/", "locks/%2F/"),
            ("//x//y/", "locks/%2F/x/%2Fy%2F/"),
            ("ключ 🔒", "locks/ключ 🔒/"),
            ("\u{202e}x", "locks/%E2%80%AEx/"),
        ] {
            let name = key(name);
            assert_eq!(names.folder(&name), folder);
            let contender = format!("{folder}{}", hex(0x1a2b));
            assert_eq!(names.lock_of(contender.as_bytes(), 0x1a2b), Some(name));
            assert_eq!(names.lock_of(contender.as_bytes(), 7), None, "another lease");
        }
        assert_eq!(Names::new("").folder(&key("a")), "a/");
    }

    #[test]
    fn foreign_keys_are_no_locks() {
        let names = Names::new("locks");
        for foreign in ["other/a/1", "locks/a%2fb/1", "locks/a%/1", "locks//1", "locks/1"] {
            assert_eq!(names.lock_of(foreign.as_bytes(), 1), None, "{foreign}");
        }
    }

    #[test]
    fn only_direct_children_contend() {
        assert!(is_contender(b"a/1f", "a/"));
        for other in ["a/b/1f", "a/", "ab/1f"] {
            assert!(!is_contender(other.as_bytes(), "a/"), "{other}");
        }
    }

    #[test]
    fn a_listing_covers_all_names_with_its_prefix() {
        let names = Names::new("p");
        for (prefix, name) in [
            ("a/", "a/b"),
            ("a", "a%"),
            ("50%", "50%x"),
            ("", "/"),
            ("x/", "x/"),
        ] {
            assert!(name.starts_with(prefix));
            assert!(
                names.folder(&key(name)).starts_with(&names.listing(prefix)),
                "{prefix}"
            );
        }
        assert_eq!(names.listing("a%b"), "p/a");
    }

    #[test]
    fn notes_and_lease_keys_are_told_apart() {
        let client = ClientId::from_random([7; 16]);
        assert_eq!(noted_claim(note(client, 0x10, 33).as_bytes()), Some(33));
        assert_eq!(noted_claim(lease_key(client, 0x10).as_bytes()), None);
    }
}
