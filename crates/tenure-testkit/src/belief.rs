//! Who is believed to hold one key at the sweep's present, and which tokens it has given out.

use std::collections::{BTreeSet, HashMap};

use tenure_backend::{FencingToken, Instant, Mode};

/// What there is of each mode: a key has few.
type ByMode<T> = Vec<(Mode, T)>;

fn of_mode<T: Default>(groups: &mut ByMode<T>, mode: Mode) -> &mut T {
    let at = groups.iter().position(|(held, _)| *held == mode);
    let at = at.unwrap_or_else(|| {
        groups.push((mode, T::default()));
        groups.len() - 1
    });
    &mut groups[at].1
}

/// The attempts that are believed at present, by the time of their grant and by their number: a key may have many readers.
#[derive(Debug, Default)]
pub(crate) struct Believers(ByMode<BTreeSet<(Instant, u64)>>);

impl Believers {
    pub(crate) fn insert(&mut self, mode: Mode, since: Instant, number: u64) {
        of_mode(&mut self.0, mode).insert((since, number));
    }

    pub(crate) fn remove(&mut self, mode: Mode, since: Instant, number: u64) {
        of_mode(&mut self.0, mode).remove(&(since, number));
    }

    /// One of those who do not admit another of that mode, if there is one.
    pub(crate) fn refuses(&self, mode: Mode) -> Option<u64> {
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

    /// Those other than `number` who have been believed ever since that moment.
    pub(crate) fn throughout(&self, since: Instant, number: u64) -> Vec<(Mode, u64)> {
        let until = (since, u64::MAX);
        let believed = self.0.iter().flat_map(|(mode, group)| {
            let early = group.range(..=until);
            early.map(|&(_, other)| (*mode, other))
        });
        believed.filter(|&(_, other)| other != number).collect()
    }
}

/// The tokens of one key: for each mode the greatest so far, by the time of its grant.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    greatest: ByMode<Vec<Drawn>>,
    /// Who had each token first, in each mode.
    first_use: HashMap<FencingToken, ByMode<u64>>,
}

#[derive(Clone, Copy, Debug)]
struct Drawn {
    at: Instant,
    token: FencingToken,
    number: u64,
}

impl Tokens {
    /// Who was granted that token or a greater one before `invoked`, in a mode that conflicts.
    pub(crate) fn not_below(&self, mode: Mode, invoked: Instant, token: FencingToken) -> Option<u64> {
        let conflicting = self.greatest.iter().filter(|(held, _)| !mode.admits([*held]));
        let before = conflicting.filter_map(|(_, drawn)| {
            let until = drawn.partition_point(|drawn| drawn.at < invoked);
            until.checked_sub(1).map(|last| drawn[last])
        });
        before
            .max_by_key(|drawn| drawn.token)
            .filter(|drawn| drawn.token >= token)
            .map(|drawn| drawn.number)
    }

    /// Records a token; who had it already, unless the two may hold together.
    pub(crate) fn draw(&mut self, mode: Mode, at: Instant, token: FencingToken, number: u64) -> Option<u64> {
        let drawn = of_mode(&mut self.greatest, mode);
        let mine = Drawn { at, token, number };
        let greatest = drawn
            .last()
            .filter(|last| last.token > token)
            .map_or(mine, |last| Drawn { at, ..*last });
        drawn.push(greatest);
        let users = self.first_use.entry(token).or_default();
        let twin = users
            .iter()
            .find(|(held, _)| !mode.admits([*held]))
            .map(|&(_, by)| by);
        if users.iter().all(|(held, _)| *held != mode) {
            users.push((mode, number));
        }
        twin
    }
}
