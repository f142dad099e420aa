//! The handover policy of one key: how long a client may hand the key over among its own waiters.

use std::mem;
use std::time::Duration;

use tenure_backend::{Instant, TURN};

use crate::engine::poller::Pause;

/// If the store cannot report other waiters, the client lets them go first after this many of its claims.
const RUNS_PER_YIELD: u32 = 4;

/// How long a client may keep a key on a network store before it pauses. The pause serves clients that the store does
/// not count as waiting: those that only try, and those that listen for wake-ups at a replica.
const STREAK: Duration = Duration::from_secs(1);

/// How long the client pauses after it has kept the key for [`STREAK`].
const STREAK_PAUSE: Duration = Duration::from_millis(5);

/// Number of tokens that the first claim reserves for which a client may have to wait.
pub(crate) const FIRST_RESERVE: u32 = 2;

/// The most turns of each local waiter in a run while other clients wait. Turns after the first are given only within
/// [`SHORT_RUN`], and only up to [`MOST_EXTRA`] turns in the whole run.
const TURNS: u32 = 4;

/// The most turns in a run in which waiters get more than one turn each. If more waiters than this wait, the run is
/// long enough with one turn each.
const MOST_EXTRA: u32 = 32;

/// While other clients wait, a local waiter gets a second turn only within this time from the start of the run. A
/// nearby store takes about the same time to move the key to another client, and no client uses the key meanwhile.
/// Second turns thus keep the key in use for about half of the time, even if critical sections are short, and hardly
/// delay the other clients.
const SHORT_RUN: Duration = Duration::from_micros(250);

/// The handover policy of one key.
///
/// A *run* is the sequence of grants of one claim: the first by the store, the others in memory, each with the next
/// token that the claim reserved. A *streak* is a sequence of runs that this client hands to itself through the
/// store.
#[derive(Debug)]
pub(crate) struct HandoverPolicy {
    limits: PolicyLimits,
    /// Whether other clients wait, according to the store's last answer about that.
    others_wait: bool,
    /// Number of local hand-overs that the held claim may still make.
    run_left: u32,
    /// The part of `run_left` that may be used only until `short_run_until`.
    run_extra: u32,
    short_run_until: Instant,
    /// Number of tokens that the next claim reserves.
    reserve: u32,
    /// Number of claims so far, if the store cannot report other waiters: other clients go first after every
    /// fourth claim.
    runs: u32,
    streak_since: Option<Instant>,
    pause_until: Instant,
    yield_until: Instant,
    /// Number of other clients that ask the store before this client, after the store refused this client's
    /// successor.
    others_first: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicyLimits {
    /// Whether the store reports how many other clients wait.
    pub(crate) reports_waiters: bool,
    /// Whether other hosts may use the store.
    pub(crate) is_on_network: bool,
}

impl HandoverPolicy {
    pub(crate) fn new(limits: PolicyLimits) -> Self {
        HandoverPolicy {
            limits,
            others_wait: false,
            run_left: u32::MAX,
            run_extra: 0,
            short_run_until: Instant::ORIGIN,
            reserve: FIRST_RESERVE,
            runs: 0,
            streak_since: None,
            pause_until: Instant::ORIGIN,
            yield_until: Instant::ORIGIN,
            others_first: 0,
        }
    }

    /// Records a refused claim: another client holds the key, and may want it again. Has no effect if the store
    /// cannot report waiters.
    pub(crate) fn refused(&mut self) {
        self.others_wait |= self.limits.reports_waiters;
    }

    pub(crate) fn others_wait(&self) -> bool {
        self.others_wait
    }

    /// Sets how many hand-overs a new claim may make: up to [`TURNS`] per local waiter if other clients wait, else
    /// any number.
    pub(crate) fn run_began(&mut self, now: Instant, local_waiters: impl FnOnce() -> usize) {
        self.short_run_until = now + SHORT_RUN;
        (self.run_left, self.run_extra) = if self.others_wait {
            let waiters = u32::try_from(local_waiters()).unwrap_or(u32::MAX);
            let most = waiters.max(waiters.saturating_mul(TURNS).min(MOST_EXTRA));
            (most, most - waiters)
        } else {
            (u32::MAX, 0)
        };
    }

    pub(crate) fn may_hand_over(&self, now: Instant) -> bool {
        self.run_left > self.run_extra || self.run_left > 0 && now < self.short_run_until
    }

    pub(crate) fn handed_over(&mut self) {
        self.run_left -= 1;
    }

    /// Records the number of grants of an ended claim. The next claim reserves twice as many tokens.
    ///
    /// So a client seldom asks the store for a contended key, and leaves few tokens of a quiet key unused. If a store
    /// takes tokens from its clock, many unused tokens would make the tokens run ahead of that clock.
    pub(crate) fn run_ended(&mut self, grants: u32) {
        self.reserve = twice(grants);
    }

    pub(crate) fn reserve(&self) -> u32 {
        self.reserve
    }

    /// Whether a release asks the store to grant the key to the next local waiter. If not, other clients go first.
    pub(crate) fn names_successor(&mut self, now: Instant) -> bool {
        let since = *self.streak_since.get_or_insert(now);
        if self.limits.is_on_network && now - since >= STREAK {
            self.streak_since = None;
            self.pause_until = now + STREAK_PAUSE;
            return false;
        }
        if !self.limits.reports_waiters {
            self.runs += 1;
            if self.runs.is_multiple_of(RUNS_PER_YIELD) {
                self.yield_until = now + TURN;
                return false;
            }
        }
        true
    }

    /// Handles the answer to a release that named a successor.
    pub(crate) fn successor_answered(&mut self, now: Instant, others: Option<u32>, was_refused: bool) {
        if let Some(others) = others {
            self.others_wait = others > 0;
        }
        if was_refused {
            self.streak_since = None;
            self.yield_until = now + TURN;
            // On one machine no client gets a head start: the client that the store wakes asks soon enough without one.
            self.others_first = others.filter(|_| self.limits.is_on_network).unwrap_or(0);
        }
    }

    /// The pause before the client asks the store.
    pub(crate) fn pause(&mut self, now: Instant) -> Pause {
        match self.pause_until - now {
            Duration::ZERO => Pause::UntilWakeUp {
                time: self.yield_until - now,
                others: mem::take(&mut self.others_first),
            },
            pause => Pause::Fixed(pause),
        }
    }
}

fn twice(grants: u32) -> u32 {
    grants.saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const COUNTED: PolicyLimits = PolicyLimits {
        reports_waiters: true,
        is_on_network: true,
    };
    const UNCOUNTED: PolicyLimits = PolicyLimits {
        reports_waiters: false,
        is_on_network: false,
    };

    fn woken_or_after(time: Duration) -> Pause {
        Pause::UntilWakeUp { time, others: 0 }
    }

    fn at(time: Duration) -> Instant {
        Instant::ORIGIN + Duration::from_secs(1_000) + time
    }

    #[test]
    fn a_run_is_unlimited_unless_others_wait() {
        let cases = [
            ("a fresh key", false, None, u32::MAX),
            ("a refused claim", true, None, 3 * TURNS),
            ("others reported", false, Some(2), 3 * TURNS),
            ("no others reported any more", true, Some(0), u32::MAX),
        ];
        for (name, refused, others, turns) in cases {
            let mut policy = HandoverPolicy::new(COUNTED);
            if refused {
                policy.refused();
            }
            policy.successor_answered(at(MS), others, false);
            policy.run_began(at(MS), || 3);
            assert_eq!(policy.run_left, turns, "{name}");
        }
    }

    #[test]
    fn a_refusal_says_nothing_where_waiters_are_not_reported() {
        let mut policy = HandoverPolicy::new(UNCOUNTED);
        policy.refused();
        assert!(!policy.others_wait());
    }

    #[test]
    fn a_run_with_others_waiting_ends_after_one_turn_each() {
        let mut policy = HandoverPolicy::new(COUNTED);
        policy.refused();
        policy.run_began(at(MS), || 2);
        let late = at(MS) + SHORT_RUN;
        for _ in 0..2 {
            assert!(policy.may_hand_over(late));
            policy.handed_over();
        }
        assert!(!policy.may_hand_over(late));
    }

    #[test]
    fn many_waiters_have_one_turn_each_in_a_run() {
        for (waiters, turns) in [(7, 28), (20, 32), (63, 63)] {
            let mut policy = HandoverPolicy::new(COUNTED);
            policy.refused();
            policy.run_began(at(MS), || waiters);
            assert_eq!(policy.run_left, turns, "{waiters}");
        }
    }

    #[test]
    fn a_short_run_with_others_waiting_ends_after_four_turns_each() {
        let mut policy = HandoverPolicy::new(COUNTED);
        policy.refused();
        policy.run_began(at(MS), || 2);
        for _ in 0..2 * TURNS {
            assert!(policy.may_hand_over(at(MS)));
            policy.handed_over();
        }
        assert!(!policy.may_hand_over(at(MS)));
    }

    #[test]
    fn the_next_run_reserves_twice_the_grants_of_the_last() {
        let mut policy = HandoverPolicy::new(COUNTED);
        for (grants, reserve) in [(1, 2), (2, 4), (100, 200), (u32::MAX, u32::MAX)] {
            policy.run_ended(grants);
            assert_eq!(policy.reserve(), reserve);
        }
    }

    #[test]
    fn a_streak_of_a_second_ends_with_a_fixed_pause() {
        let mut policy = HandoverPolicy::new(COUNTED);
        for ms in [0, 500, 999] {
            assert!(policy.names_successor(at(ms * MS)), "{ms} ms");
        }
        assert!(!policy.names_successor(at(STREAK)));
        assert_eq!(policy.pause(at(STREAK)), Pause::Fixed(STREAK_PAUSE));
        assert_eq!(
            policy.pause(at(STREAK + STREAK_PAUSE)),
            woken_or_after(Duration::ZERO)
        );
        assert!(policy.names_successor(at(STREAK + 6 * MS)), "a new streak");
    }

    #[test]
    fn every_fourth_run_yields_where_waiters_are_not_reported() {
        let mut policy = HandoverPolicy::new(UNCOUNTED);
        let named: Vec<bool> = (0..8).map(|_| policy.names_successor(at(MS))).collect();
        assert_eq!(named, [true, true, true, false, true, true, true, false]);
        assert_eq!(policy.pause(at(MS)), woken_or_after(TURN));
        assert_eq!(policy.pause(at(MS + TURN)), woken_or_after(Duration::ZERO));
    }

    #[test]
    fn a_refused_successor_on_a_network_lets_others_go_first() {
        for (limits, expected) in [(COUNTED, [7, 0]), (UNCOUNTED, [0, 0])] {
            let mut policy = HandoverPolicy::new(limits);
            policy.successor_answered(at(MS), Some(7), true);
            for others in expected {
                let time = Duration::ZERO;
                assert_eq!(policy.pause(at(MS + TURN)), Pause::UntilWakeUp { time, others });
            }
        }
    }

    #[test]
    fn a_refused_successor_yields_and_ends_the_streak() {
        let mut policy = HandoverPolicy::new(COUNTED);
        assert!(policy.names_successor(at(MS)));
        policy.successor_answered(at(2 * MS), None, true);
        assert_eq!(policy.pause(at(2 * MS)), woken_or_after(TURN));
        assert!(policy.names_successor(at(STREAK + MS)), "the streak began again");
    }
}
