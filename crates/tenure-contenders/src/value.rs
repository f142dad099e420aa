//! What the record of a contender says: what claim it is, and whether the claim was evicted.

use std::num::NonZeroU32;
use std::sync::Arc;

use tenure_backend::{Claim, ClaimId, Mode};

const CLAIM: &str = "tenure1";
const EVICTED: &str = "tenure1-evicted";

/// What the record of a contender says.
///
/// `tenure1 MODE CLIENT:NUMBER GRANTS LABEL` is a claim. `tenure1-evicted MODE CLIENT:NUMBER GRANTS EVICTOR` marks a claim that is
/// being evicted. The label, or the evictor, may be missing. GRANTS is followed by `@CREATED` if an earlier record of the claim
/// was granted. Other data belong to a foreign program.
///
/// # Examples
/// ```
/// use tenure_contenders::Value;
///
/// let value = Value::read(b"tenure1 write 07070707-0707-4707-8707-070707070707:3 1 ada@web-1").expect("a claim");
/// assert_eq!(value.label().as_deref(), Some("ada@web-1"));
/// let mark = value.evicted(Some("bob".into())).write();
/// assert_eq!(mark, "tenure1-evicted write 07070707-0707-4707-8707-070707070707:3 1 bob");
/// assert_eq!(Value::read(b"leader-1"), None);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The mode of the claim.
    pub mode: Mode,
    /// Which claim it is.
    pub id: ClaimId,
    /// Number of tokens that the claim reserves.
    pub grants: u32,
    /// The creation that the tokens come from, if it is not that of this record.
    pub granted_at: Option<i64>,
    /// The label, or the evictor's name.
    text: Option<Arc<str>>,
    /// Whether the claim is being evicted.
    pub is_evicted: bool,
}

impl Value {
    /// What the record of a new claim says.
    #[must_use]
    pub fn of(claim: &Claim, grants: NonZeroU32) -> Self {
        Value {
            mode: claim.mode,
            id: claim.at.id,
            grants: grants.get(),
            granted_at: None,
            text: Some(claim.label.clone()),
            is_evicted: false,
        }
    }

    /// The value of a claim of which only its ID is known.
    #[must_use]
    pub fn unknown(id: ClaimId, mode: Mode) -> Self {
        Value {
            mode,
            id,
            grants: 1,
            granted_at: None,
            text: None,
            is_evicted: false,
        }
    }

    /// The value that marks the claim as evicted.
    #[must_use]
    pub fn evicted(self, by: Option<Arc<str>>) -> Self {
        Value {
            text: by,
            is_evicted: true,
            ..self
        }
    }

    /// The value of a claim that is not evicted, with another label, or none.
    #[must_use]
    pub fn with_label(self, label: Option<Arc<str>>) -> Self {
        Value { text: label, ..self }
    }

    /// The claim's label.
    #[must_use]
    pub fn label(&self) -> Option<Arc<str>> {
        self.text.clone().filter(|_| !self.is_evicted)
    }

    /// The evictor of the claim, if it is known.
    #[must_use]
    pub fn evictor(&self) -> Option<Arc<str>> {
        self.text.clone().filter(|_| self.is_evicted)
    }

    /// The record's text.
    #[must_use]
    pub fn write(&self) -> String {
        let word = if self.is_evicted { EVICTED } else { CLAIM };
        let mode = match self.mode {
            Mode::Exclusive => "mutex".to_owned(),
            Mode::Read => "read".to_owned(),
            Mode::Write => "write".to_owned(),
            Mode::Permits { take, of } => format!("{take}/{of}"),
        };
        let text = self
            .text
            .as_ref()
            .map(|text| format!(" {text}"))
            .unwrap_or_default();
        let at = self.granted_at.map(|at| format!("@{at}")).unwrap_or_default();
        format!("{word} {mode} {} {}{at}{text}", self.id, self.grants)
    }

    /// Reads a value; `None` if a foreign program wrote it.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(value).ok()?.splitn(5, ' ');
        let is_evicted = match words.next()? {
            CLAIM => false,
            EVICTED => true,
            _ => return None,
        };
        let mode = match words.next()? {
            "mutex" => Mode::Exclusive,
            "read" => Mode::Read,
            "write" => Mode::Write,
            permits => {
                let (take, of) = permits.split_once('/')?;
                let (take, of) = (take.parse().ok()?, of.parse().ok()?);
                Mode::Permits { take, of }
            }
        };
        let id = words.next()?.parse().ok()?;
        let grants = words.next()?;
        let (grants, granted_at) = match grants.split_once('@') {
            Some((grants, at)) => (grants, Some(at.parse().ok()?)),
            None => (grants, None),
        };
        Some(Value {
            mode,
            id,
            grants: grants.parse().ok()?,
            granted_at,
            text: words.next().map(Arc::from),
            is_evicted,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_backend::{ClaimRef, ClientId, LockKey};

    use super::*;

    fn claim(mode: Mode, label: &str) -> Claim {
        let id = ClaimId::new(ClientId::from_random([7; 16]), 3);
        let key = LockKey::new("k").expect("a key");
        Claim {
            mode,
            label: label.into(),
            ..Claim::of(ClaimRef { key, id }, Duration::from_secs(1))
        }
    }

    #[test]
    fn a_value_is_read_as_it_was_written() {
        let number = |n| NonZeroU32::new(n).expect("not zero");
        let permits = Mode::Permits {
            take: number(2),
            of: number(7),
        };
        for mode in [Mode::Exclusive, Mode::Read, Mode::Write, permits] {
            for label in ["", "ada@web-1:4711", "two  words "] {
                let mut value = Value::of(&claim(mode, label), number(64));
                assert_eq!(Value::read(value.write().as_bytes()), Some(value.clone()));
                value.granted_at = Some(i64::MAX);
                assert_eq!(Value::read(value.write().as_bytes()), Some(value.clone()));
                assert_eq!(value.label().as_deref(), Some(label));
                for by in [None, Some("alice and bob")] {
                    let mark = value.clone().evicted(by.map(Arc::from));
                    assert_eq!(Value::read(mark.write().as_bytes()), Some(mark.clone()));
                    assert_eq!((mark.evictor().as_deref(), mark.label()), (by, None));
                }
            }
        }
    }

    #[test]
    fn other_values_are_foreign() {
        let id = "07070707-0707-4707-8707-070707070707:3";
        for foreign in [
            String::new(),
            "leader-1".to_owned(),
            format!("tenure2 mutex {id} 1"),
            format!("tenure1 3/0 {id} 1"),
            "tenure1 mutex web-1 1".to_owned(),
        ] {
            assert_eq!(Value::read(foreign.as_bytes()), None, "{foreign:?}");
        }
    }
}
