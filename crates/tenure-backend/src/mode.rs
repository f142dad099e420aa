//! How a key is held. [`Mode::admits`] alone decides which claims may hold a key together.

use std::fmt;
use std::num::NonZeroU32;

/// How a claim holds its key: alone, as a reader or writer, or with permits.
///
/// # Examples
/// ```
/// use std::num::NonZeroU32;
/// use tenure_backend::Mode;
///
/// let permits = |take, of| Mode::Permits {
///     take: NonZeroU32::new(take).unwrap(),
///     of: NonZeroU32::new(of).unwrap(),
/// };
/// let modes = [Mode::Exclusive, Mode::Read, Mode::Write, permits(1, 2)];
/// let admitted_beside = |holder| modes.map(|mode| mode.admits([holder]));
/// assert_eq!(admitted_beside(Mode::Exclusive), [false, false, false, false]);
/// assert_eq!(admitted_beside(Mode::Read), [false, true, false, false]);
/// assert_eq!(admitted_beside(Mode::Write), [false, false, false, false]);
/// assert_eq!(admitted_beside(permits(1, 2)), [false, false, false, true]);
/// assert_eq!(admitted_beside(permits(2, 2)), [false, false, false, false]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone, as with a mutex.
    Exclusive,
    /// Together with other readers: the shared side of a read-write lock.
    Read,
    /// Alone: the exclusive side of a read-write lock.
    Write,
    /// With `take` of the `of` permits of a semaphore.
    Permits {
        /// Permits that this claim takes. A claim for more than `of` can never be granted.
        take: NonZeroU32,
        /// Permits that the semaphore has.
        of: NonZeroU32,
    },
}

impl Mode {
    /// Returns whether a claim of this mode may be granted while claims with the modes in `held` hold the key.
    ///
    /// This function is the definition of mutual exclusion (B1): no store grants claims together that this function
    /// refuses. It never admits modes of different kinds together.
    ///
    /// # Examples
    /// ```
    /// use tenure_backend::Mode;
    ///
    /// assert!(Mode::Read.admits([Mode::Read, Mode::Read]));
    /// assert!(!Mode::Write.admits([Mode::Read]));
    /// assert!(Mode::Exclusive.admits([]));
    /// ```
    pub fn admits(self, held: impl IntoIterator<Item = Mode>) -> bool {
        let mut held = held.into_iter();
        match self {
            Mode::Exclusive | Mode::Write => held.next().is_none(),
            Mode::Read => held.all(|other| other == Mode::Read),
            Mode::Permits { take, of } => {
                let mut used = u64::from(take.get());
                held.all(|other| match other {
                    Mode::Permits { take, of: size } if size == of => {
                        used += u64::from(take.get());
                        true
                    }
                    _ => false,
                }) && used <= u64::from(of.get())
            }
        }
    }

    /// The kind of lock that this mode belongs to.
    pub const fn kind(self) -> Kind {
        match self {
            Mode::Exclusive => Kind::Mutex,
            Mode::Read | Mode::Write => Kind::ReadWrite,
            Mode::Permits { of, .. } => Kind::Semaphore { of },
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Exclusive => f.write_str("exclusive"),
            Mode::Read => f.write_str("read"),
            Mode::Write => f.write_str("write"),
            Mode::Permits { take, of } => write!(f, "{take} of {of} permits"),
        }
    }
}

/// The kind of lock that a key is used as. A key has one kind at a time (B2).
///
/// # Examples
/// ```
/// use std::num::NonZeroU32;
/// use tenure_backend::{Kind, Mode};
///
/// assert_eq!(Mode::Read.kind(), Mode::Write.kind());
/// let semaphore = |of| Kind::Semaphore { of: NonZeroU32::new(of).unwrap() };
/// // A store answers `Mismatch` to a client that uses the key as a semaphore of another size.
/// assert_ne!(semaphore(3), semaphore(4));
/// assert_eq!(semaphore(3).to_string(), "a semaphore of 3");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A mutex.
    Mutex,
    /// A read-write lock.
    ReadWrite,
    /// A semaphore with `of` permits. Another size is another kind.
    Semaphore {
        /// Permits that the semaphore has.
        of: NonZeroU32,
    },
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Mutex => f.write_str("a mutex"),
            Kind::ReadWrite => f.write_str("a read-write lock"),
            Kind::Semaphore { of } => write!(f, "a semaphore of {of}"),
        }
    }
}

/// The order in which waiting claims of one key are granted.
///
/// # Examples
/// ```
/// use tenure_backend::Fairness;
///
/// /// Whether a client that stops waiting must withdraw its claim, because the claim is in the store's queue.
/// fn needs_withdrawal(fairness: Fairness) -> bool {
///     match fairness {
///         Fairness::Unfair => false,
///         Fairness::Fifo => true,
///     }
/// }
/// assert!(!needs_withdrawal(Fairness::default()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fairness {
    /// No order. A claim that is not granted leaves nothing in the store.
    #[default]
    Unfair,
    /// First come, first served. The claim waits in the store's queue, with its own lease. A queue with a live
    /// member holds back unfair claims (B11).
    Fifo,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(take: u32, of: u32) -> Mode {
        Mode::Permits {
            take: NonZeroU32::new(take).unwrap(),
            of: NonZeroU32::new(of).unwrap(),
        }
    }

    #[test]
    fn a_free_key_admits_all_modes_except_too_many_permits() {
        for mode in [
            Mode::Exclusive,
            Mode::Read,
            Mode::Write,
            permits(1, 1),
            permits(3, 3),
        ] {
            assert!(mode.admits([]), "{mode}");
        }
        assert!(!permits(4, 3).admits([]));
    }

    #[test]
    fn permits_add_up_and_semaphore_sizes_do_not_mix() {
        assert!(permits(1, 3).admits([permits(1, 3), permits(1, 3)]));
        assert!(!permits(2, 3).admits([permits(1, 3), permits(1, 3)]));
        assert!(!permits(1, 3).admits([permits(1, 4)]));
        assert!(!permits(u32::MAX, u32::MAX).admits([permits(u32::MAX, u32::MAX)]));
    }
}
