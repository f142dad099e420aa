//! The checker's state of one key: the attempts that hold it now, and the tokens issued so far.

use std::collections::{BTreeSet, HashMap};

use tenure_backend::{FencingToken, Instant, Mode};

/// List with one entry per mode. A key uses few modes.
type ByMode<T> = Vec<(Mode, T)>;

fn entry_for<T: Default>(groups: &mut ByMode<T>, mode: Mode) -> &mut T {
    let at = groups.iter().position(|(held, _)| *held == mode);
    let at = at.unwrap_or_else(|| {
        groups.push((mode, T::default()));
        groups.len() - 1
    });
    &mut groups[at].1
}

/// Attempts that hold the key now. Each mode has a set sorted by grant time, because a key may have many readers.
#[derive(Debug, Default)]
pub(crate) struct CurrentHolders(ByMode<BTreeSet<(Instant, u64)>>);

impl CurrentHolders {
    pub(crate) fn insert(&mut self, mode: Mode, since: Instant, number: u64) {
        entry_for(&mut self.0, mode).insert((since, number));
    }

    pub(crate) fn remove(&mut self, mode: Mode, since: Instant, number: u64) {
        entry_for(&mut self.0, mode).remove(&(since, number));
    }

    /// Returns a current holder that conflicts with a new holder of `mode`, if there is one.
    pub(crate) fn conflicting(&self, mode: Mode) -> Option<u64> {
        let mut used = 0;
        for (held, group) in &self.0 {
            let Some(&(_, first)) = group.first() else {
                continue;
            };
            if !mode.admits([*held]) {
                return Some(first);
            }
            if let (Mode::Permits { take, of }, Mode::Permits { take: wanted, .. }) = (held, mode) {
                used += group.len() as u64 * u64::from(take.get());
                if used + u64::from(wanted.get()) > u64::from(of.get()) {
                    return Some(first);
                }
            }
        }
        None
    }

    /// Attempts other than `number` that hold the key now and were granted at or before `since`.
    pub(crate) fn since(&self, since: Instant, number: u64) -> Vec<(Mode, u64)> {
        let until = (since, u64::MAX);
        let holding = self.0.iter().flat_map(|(mode, group)| {
            let early = group.range(..=until);
            early.map(|&(_, other)| (*mode, other))
        });
        holding.filter(|&(_, other)| other != number).collect()
    }
}

/// Tokens issued for one key.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    /// For each grant of a mode, in the order of time: the greatest token issued in that mode up to then.
    greatest: ByMode<Vec<Issued>>,
    /// The first attempt to receive a token, by token and mode.
    first_holder: HashMap<FencingToken, ByMode<u64>>,
}

#[derive(Clone, Copy, Debug)]
struct Issued {
    at: Instant,
    token: FencingToken,
    number: u64,
}

impl Tokens {
    /// Returns an attempt with a conflicting mode that received `token` or a greater one before `invoked`.
    pub(crate) fn conflicting_grant(&self, mode: Mode, invoked: Instant, token: FencingToken) -> Option<u64> {
        let conflicting = self.greatest.iter().filter(|(held, _)| !mode.admits([*held]));
        let before = conflicting.filter_map(|(_, issued)| {
            let until = issued.partition_point(|issued| issued.at < invoked);
            until.checked_sub(1).map(|last| issued[last])
        });
        before
            .max_by_key(|issued| issued.token)
            .filter(|issued| issued.token >= token)
            .map(|issued| issued.number)
    }

    /// Records an issued token. Returns an earlier attempt with the same token and a conflicting mode, if there is one.
    pub(crate) fn record(
        &mut self,
        mode: Mode,
        at: Instant,
        token: FencingToken,
        number: u64,
    ) -> Option<u64> {
        let issued = entry_for(&mut self.greatest, mode);
        let mine = Issued { at, token, number };
        let greatest = issued
            .last()
            .filter(|last| last.token > token)
            .map_or(mine, |last| Issued { at, ..*last });
        issued.push(greatest);
        let users = self.first_holder.entry(token).or_default();
        let duplicate = users
            .iter()
            .find(|(held, _)| !mode.admits([*held]))
            .map(|&(_, by)| by);
        if users.iter().all(|(held, _)| *held != mode) {
            users.push((mode, number));
        }
        duplicate
    }
}
