//! Who of a lock's contenders holds it: decided from their keys alone, in the order in which these were created.

use std::sync::Arc;

use tenure_backend::{HolderId, Mode};
use tenure_contenders::{Contender as _, Value};

use super::names::{candidate_record, is_contender};
use crate::client::KeyValue;

/// A contender of a lock: a holder or a waiter.
#[derive(Clone, Debug)]
pub(super) struct Contender {
    /// Its key. The contenders are ordered by the revisions at which their keys were created.
    pub(super) kv: KeyValue,
    /// What the key says; `None` for a foreign contender.
    pub(super) value: Option<Value>,
}

/// The state of a contender, with the key of the one before it.
pub(super) type Standing = tenure_contenders::Standing<Vec<u8>>;

impl tenure_contenders::Contender for Contender {
    /// That of a foreign contender is the last part of its key, in Go's layout its lease.
    fn id(&self) -> HolderId {
        match &self.value {
            Some(value) => HolderId::Claim(value.id),
            None => {
                let last = self.kv.key.rsplit(|byte| *byte == b'/').next();
                HolderId::Foreign(String::from_utf8_lossy(last.unwrap_or_default()).into())
            }
        }
    }

    fn created(&self) -> i64 {
        self.kv.create_revision
    }

    fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }

    /// The mode of a foreign contender is exclusive: Go's mutexes and elections are.
    fn mode(&self) -> Mode {
        self.value.as_ref().map_or(Mode::Exclusive, |value| value.mode)
    }

    fn waits(all: &[Self], at: usize) -> bool {
        standing(all[at].mode(), &all[..at]) != Standing::Granted
    }

    /// That of a foreign contender is what it has written, as the candidates of Go's elections do. Go's mutexes write nothing.
    fn label(&self) -> Option<Arc<str>> {
        match &self.value {
            Some(value) => value.label(),
            None if self.kv.value.is_empty() => None,
            None => Some(String::from_utf8_lossy(&self.kv.value).into()),
        }
    }
}

/// Reads what a contender's key and its value say; `None` if a foreign program wrote them.
///
/// A candidate's value is its label alone, which programs that observe the election read; the rest stands in its key. A mark of
/// its eviction is believed only of the claim that the key names.
pub(super) fn value_of(kv: &KeyValue) -> Option<Value> {
    let Some(candidate) = candidate_record(&kv.key).and_then(Value::read) else {
        return Value::read(&kv.value);
    };
    let mark = Value::read(&kv.value).filter(|mark| mark.is_evicted && mark.id == candidate.id);
    let label = || String::from_utf8_lossy(&kv.value).into();
    Some(mark.unwrap_or_else(|| candidate.with_label(Some(label()))))
}

/// Reads the contenders of the lock with this folder, the oldest first.
pub(super) fn contenders(folder: &str, mut keys: Vec<KeyValue>) -> Vec<Contender> {
    keys.retain(|kv| is_contender(&kv.key, folder));
    keys.sort_by_key(|kv| kv.create_revision);
    let read = |kv: KeyValue| Contender {
        value: value_of(&kv),
        kv,
    };
    keys.into_iter().map(read).collect()
}

/// Returns the state of a contender of this mode behind those in `earlier`, the oldest first.
///
/// It counts each earlier contender as a holder. So no contender overtakes one that waits (B11), and what the first ones
/// do not admit waits.
pub(super) fn standing(mode: Mode, earlier: &[Contender]) -> Standing {
    let modes = || earlier.iter().map(Contender::mode);
    match modes().next() {
        Some(first) if first.kind() != mode.kind() => return Standing::OtherKind(first.kind()),
        _ if mode.admits(modes()) => return Standing::Granted,
        _ => {}
    }
    let behind = match mode {
        Mode::Exclusive | Mode::Write => earlier.last(),
        Mode::Read => earlier.iter().rfind(|one| one.mode() != Mode::Read),
        Mode::Permits { .. } => None,
    };
    Standing::Waits {
        behind: behind.map(|one| one.kv.key.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use tenure_backend::{ClaimId, ClientId, Kind};

    use super::*;

    fn permits(take: u32, of: u32) -> Mode {
        let number = |n| NonZeroU32::new(n).expect("not zero");
        Mode::Permits {
            take: number(take),
            of: number(of),
        }
    }

    fn value(mode: Mode) -> String {
        let id = ClaimId::new(ClientId::from_random([7; 16]), 1);
        let word = match mode {
            Mode::Exclusive => "mutex".to_owned(),
            Mode::Read => "read".to_owned(),
            Mode::Write => "write".to_owned(),
            Mode::Permits { take, of } => format!("{take}/{of}"),
        };
        format!("tenure1 {word} {id} 1 label")
    }

    /// Contenders of these modes, in this order; `None` is one of Go's.
    fn queue(modes: &[Option<Mode>]) -> Vec<Contender> {
        let keys = modes.iter().zip(1..).map(|(mode, at)| KeyValue {
            key: format!("k/{at}").into(),
            create_revision: at,
            value: mode.map(value).unwrap_or_default().into(),
            ..KeyValue::default()
        });
        contenders("k/", keys.collect())
    }

    fn behind(key: &str) -> Standing {
        Standing::Waits {
            behind: Some(key.into()),
        }
    }

    #[test]
    fn a_mutex_is_granted_to_the_first_contender() {
        let mutex = Mode::Exclusive;
        assert_eq!(standing(mutex, &[]), Standing::Granted);
        assert_eq!(standing(mutex, &queue(&[None])), behind("k/1"));
        assert_eq!(standing(mutex, &queue(&[None, Some(mutex)])), behind("k/2"));
    }

    #[test]
    fn readers_wait_for_the_last_writer_before_them() {
        let (read, write) = (Some(Mode::Read), Some(Mode::Write));
        assert_eq!(standing(Mode::Read, &queue(&[read, read])), Standing::Granted);
        assert_eq!(standing(Mode::Read, &queue(&[write, read])), behind("k/1"));
        assert_eq!(standing(Mode::Read, &queue(&[read, write, read])), behind("k/2"));
        assert_eq!(standing(Mode::Write, &queue(&[read, read])), behind("k/2"));
    }

    #[test]
    fn waiting_permits_count_as_taken() {
        let taken = queue(&[Some(permits(2, 3))]);
        assert_eq!(standing(permits(1, 3), &taken), Standing::Granted);
        assert_eq!(standing(permits(2, 3), &taken), Standing::Waits { behind: None });
        let with_waiter = queue(&[Some(permits(2, 3)), Some(permits(3, 3))]);
        assert_eq!(
            standing(permits(1, 3), &with_waiter),
            Standing::Waits { behind: None }
        );
    }

    #[test]
    fn the_first_contender_decides_the_kind() {
        let mutex = Kind::Mutex;
        assert_eq!(standing(Mode::Read, &queue(&[None])), Standing::OtherKind(mutex));
        // The second contender is about to find out that it has the wrong kind.
        let mixed = queue(&[Some(Mode::Exclusive), Some(Mode::Read)]);
        assert_eq!(standing(Mode::Exclusive, &mixed), behind("k/2"));
        let sizes = queue(&[Some(permits(1, 2))]);
        assert_eq!(
            standing(permits(1, 3), &sizes),
            Standing::OtherKind(permits(1, 2).kind())
        );
    }

    #[test]
    fn nested_locks_do_not_contend() {
        let keys = ["k/b/1", "k/2"].map(|key| KeyValue {
            key: key.into(),
            ..KeyValue::default()
        });
        let found = contenders("k/", keys.into());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].id(), HolderId::Foreign("2".into()));
    }

    #[test]
    fn a_candidates_value_is_its_label() {
        let id = "07070707-0707-4707-8707-070707070707:3";
        let key = format!("jobs/1a2b:tenure1 mutex {id} 1");
        let read = |value: &str| {
            let kv = KeyValue {
                key: key.clone().into(),
                value: value.into(),
                ..KeyValue::default()
            };
            value_of(&kv).expect("a candidate")
        };
        for label in [
            "",
            "10.0.0.5:8080",
            "tenure1 mutex web 1",
            &format!("tenure1 read {id} 1 x"),
        ] {
            let value = read(label);
            assert_eq!(
                (value.label().as_deref(), value.mode),
                (Some(label), Mode::Exclusive)
            );
            let mark = value.evicted(Some("alice".into()));
            assert_eq!(read(&mark.write()), mark);
        }
        let mut others = read("").evicted(None);
        others.id = ClaimId::new(ClientId::from_random([7; 16]), 4);
        assert!(
            !read(&others.write()).is_evicted,
            "a mark is believed only of the claim that the key names"
        );
    }
}
