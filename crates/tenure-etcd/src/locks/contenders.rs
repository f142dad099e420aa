//! Who of a lock's contenders holds it: decided from their keys alone, in the order in which these were created.

use std::sync::Arc;

use tenure_backend::{HolderId, Kind, Mode};
use tenure_contenders::Value;

use super::names::{candidate_record, is_contender};
use crate::client::KeyValue;

/// A contender of a lock: a holder or a waiter.
#[derive(Clone, Debug)]
pub(super) struct Contender {
    pub(super) key: Vec<u8>,
    /// The revision at which the key was created, by which the contenders are ordered.
    pub(super) created: i64,
    pub(super) lease: i64,
    /// What the key says; `None` for a foreign contender.
    pub(super) value: Option<Value>,
    /// What a foreign contender has written, as the candidates of Go's elections do.
    foreign_text: Option<Arc<str>>,
}

/// The state of a contender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It holds the lock.
    Granted,
    /// It waits at least until the contender with this key has left. `None` for a lock with permits, where each contender
    /// that leaves may let it in.
    Waits { behind: Option<Vec<u8>> },
    /// The lock has another kind.
    OtherKind(Kind),
}

impl Contender {
    /// The mode of a foreign contender is exclusive: Go's mutexes and elections are.
    pub(super) fn mode(&self) -> Mode {
        self.value.as_ref().map_or(Mode::Exclusive, |value| value.mode)
    }

    /// The label. That of a foreign contender is its value, unless it is empty, as Go's mutexes have it.
    pub(super) fn label(&self) -> Option<Arc<str>> {
        match &self.value {
            Some(value) => value.label(),
            None => self.foreign_text.clone(),
        }
    }

    pub(super) fn is_evicted(&self) -> bool {
        self.value.as_ref().is_some_and(|value| value.is_evicted)
    }
}

impl tenure_contenders::Contender for Contender {
    /// That of a foreign contender is the last part of its key, in Go's layout its lease.
    fn id(&self) -> HolderId {
        match &self.value {
            Some(value) => HolderId::Claim(value.id),
            None => {
                let last = self.key.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                HolderId::Foreign(String::from_utf8_lossy(last).into())
            }
        }
    }

    fn created(&self) -> i64 {
        self.created
    }

    fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }

    fn waits(all: &[Self], at: usize) -> bool {
        standing(all[at].mode(), &all[..at]) != Standing::Granted
    }
}

/// Reads what a contender's key and its value say; `None` if a foreign program wrote them.
///
/// A candidate's value is its label alone, which programs that observe the election read; the rest stands in its key. A mark of
/// its eviction is believed only of the claim that the key names.
pub(super) fn value_of(key: &[u8], value: &[u8]) -> Option<Value> {
    let Some(candidate) = candidate_record(key).and_then(Value::read) else {
        return Value::read(value);
    };
    let mark = Value::read(value).filter(|mark| mark.is_evicted && mark.id == candidate.id);
    let label = || String::from_utf8_lossy(value).into();
    Some(mark.unwrap_or_else(|| candidate.with_label(Some(label()))))
}

/// Reads the contenders of the lock with this folder, the oldest first.
pub(super) fn contenders(folder: &str, keys: Vec<KeyValue>) -> Vec<Contender> {
    let mut contenders: Vec<Contender> = keys
        .into_iter()
        .filter(|kv| is_contender(&kv.key, folder))
        .map(|kv| Contender {
            created: kv.create_revision,
            lease: kv.lease,
            value: value_of(&kv.key, &kv.value),
            foreign_text: (!kv.value.is_empty()).then(|| String::from_utf8_lossy(&kv.value).into()),
            key: kv.key,
        })
        .collect();
    contenders.sort_by_key(|contender| contender.created);
    contenders
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
        behind: behind.map(|one| one.key.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use tenure_backend::{ClaimId, ClientId};
    use tenure_contenders::Contender as _;

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
        let read = |value: &str| value_of(key.as_bytes(), value.as_bytes()).expect("a candidate");
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
