//! What the answers of all sentinels say together: which is the newest, which sentinels there are, and which of them
//! promote a replica.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Duration;

use tenure_endpoint::Host;
use tokio::time::Instant;

use crate::connection::sentinel::answer::Answer;

/// The time for which the client does without a server after a sentinel has reported that it promotes a replica. The
/// client asks that sentinel every second. If the sentinel stays silent for this time, it has probably died: then its
/// failover has too, and the other sentinels keep the old master.
const PROMOTION: Duration = Duration::from_secs(3);

pub(super) struct State {
    /// The sentinels of the URL.
    configured: Vec<Host>,
    /// The last answer of each sentinel that the client accepted.
    heard: HashMap<Host, Heard>,
    /// The sentinel that gave the last accepted answer whose epoch was the newest. It is asked first.
    source: Option<Host>,
    /// The master that the last accepted answer names.
    master: Option<Host>,
    replicas: u64,
    /// The sentinels that are promoting a replica, each with the time until which the client waits for its next answer.
    promotions: HashMap<Host, Instant>,
}

struct Heard {
    /// The configuration epoch in the answer.
    epoch: u64,
    /// The other sentinels that the answer names.
    others: Vec<Host>,
}

impl State {
    pub(super) fn new(configured: Vec<Host>) -> Self {
        State {
            configured,
            heard: HashMap::new(),
            source: None,
            master: None,
            replicas: 0,
            promotions: HashMap::new(),
        }
    }

    /// All sentinels that the client knows, in the order in which it asks them: the `source`, those of the URL, those
    /// that these name, and so on.
    ///
    /// No single answer names all: a sentinel does not name itself, and the URL's host may lead to another sentinel
    /// each time.
    pub(super) fn known(&self) -> Vec<Host> {
        let mut known = Vec::new();
        let add = |known: &mut Vec<Host>, sentinel: &Host| {
            if !known.contains(sentinel) {
                known.push(sentinel.clone());
            }
        };
        for sentinel in self.source.iter().chain(&self.configured) {
            add(&mut known, sentinel);
        }
        let mut next = 0;
        while let Some(sentinel) = known.get(next) {
            for other in self.heard.get(sentinel).iter().flat_map(|heard| &heard.others) {
                add(&mut known, other);
            }
            next += 1;
        }
        known
    }

    /// Number of the master's replicas, including those that are down.
    pub(super) fn replicas(&self) -> u64 {
        self.replicas
    }

    /// Returns whether an accepted answer had a newer epoch.
    pub(super) fn is_behind(&self, answer: &Answer) -> bool {
        answer.epoch < self.epoch()
    }

    /// Returns whether an answer may change what the client does while it has a master.
    ///
    /// An answer that names another master needs a newer epoch than all before. The newest so far suffices if the
    /// answer is that of the `source`, or of a sentinel that is promoting a replica. Otherwise sentinels that
    /// disagree for good would send the client to and fro.
    ///
    /// An answer that names the client's master is credible in any epoch: after the sentinels have been set up again,
    /// the epochs start at 0.
    pub(super) fn is_credible(&self, answer: &Answer) -> bool {
        let agrees = self.master.as_ref().is_none_or(|master| *master == answer.master);
        let is_source = self.source.as_ref() == Some(&answer.sentinel);
        match answer.epoch.cmp(&self.epoch()) {
            Ordering::Greater => true,
            Ordering::Equal => agrees || is_source || answer.is_promoting,
            Ordering::Less => agrees,
        }
    }

    /// Records an answer. Returns the time until which the client waits for a promotion, also if another sentinel
    /// carries it out: the one that answered knows nothing of that.
    pub(super) fn learn(&mut self, answer: &Answer) -> Option<Instant> {
        if self.master.as_ref() != Some(&answer.master) {
            self.promotions.clear();
        }
        if !self.is_behind(answer) {
            (self.source, self.replicas) = (Some(answer.sentinel.clone()), answer.replicas);
        }
        self.master = Some(answer.master.clone());
        let (epoch, others) = (answer.epoch, answer.others.clone());
        self.heard
            .insert(answer.sentinel.clone(), Heard { epoch, others });
        self.record_promotion(answer)
    }

    /// Forgets a sentinel that no other names.
    pub(super) fn forget(&mut self, sentinel: &Host) {
        self.heard.remove(sentinel);
        self.promotions.remove(sentinel);
    }

    /// Forgets the epochs, so that the next answer is not behind, whatever its epoch.
    pub(super) fn forget_epochs(&mut self) {
        self.heard.values_mut().for_each(|heard| heard.epoch = 0);
    }

    /// The newest configuration epoch.
    fn epoch(&self) -> u64 {
        self.heard.values().map(|heard| heard.epoch).max().unwrap_or(0)
    }

    fn record_promotion(&mut self, answer: &Answer) -> Option<Instant> {
        let now = Instant::now();
        if answer.is_promoting {
            let sentinel = answer.sentinel.clone();
            self.promotions.insert(sentinel, now + PROMOTION);
        } else {
            self.promotions.remove(&answer.sentinel);
        }
        self.promotions
            .values()
            .max()
            .filter(|until| now < **until)
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Host {
        Host::new(name, 1)
    }

    /// Three sentinels that the URL does not name: its host leads to another of them each time.
    fn state() -> State {
        let mut state = State::new(vec![host("url")]);
        for sentinel in ["a", "b", "c"] {
            state.learn(&answer(sentinel, "master", 5));
        }
        state
    }

    fn answer(sentinel: &str, master: &str, epoch: u64) -> Answer {
        let others = ["a", "b", "c"].into_iter().filter(|other| *other != sentinel);
        Answer {
            sentinel: host(sentinel),
            master: host(master),
            is_promoting: false,
            epoch,
            others: others.map(host).collect(),
            replicas: 2,
            quorum: 2,
        }
    }

    #[test]
    fn a_sentinel_is_known_while_another_names_it() {
        let mut state = state();
        // This answer comes from the sentinel `a`, which does not name itself.
        let from_a = Answer {
            others: vec![host("b"), host("c")],
            ..answer("url", "master", 5)
        };
        state.learn(&from_a);
        assert_eq!(state.known(), ["url", "b", "c", "a"].map(host));
        for (sentinel, other) in [("b", "c"), ("c", "b")] {
            let without_a = Answer {
                others: vec![host(other)],
                ..answer(sentinel, "master", 5)
            };
            state.learn(&without_a);
        }
        assert_eq!(state.known(), ["c", "url", "b"].map(host));
    }

    #[test]
    fn sentinels_set_up_again_are_credible_if_they_agree() {
        let mut state = state();
        assert!(!state.is_credible(&answer("a", "old", 4)));
        assert!(!state.is_credible(&answer("a", "new", 1)));
        for sentinel in ["a", "b", "c"] {
            let again = answer(sentinel, "master", 0);
            assert!(state.is_behind(&again) && state.is_credible(&again), "{sentinel}");
            state.learn(&again);
        }
        assert!(state.is_credible(&answer("a", "new", 1)));
    }

    #[test]
    fn a_sentinel_that_contradicts_the_source_is_ignored() {
        let mut state = state();
        assert!(!state.is_credible(&answer("a", "other", 5)));
        assert!(state.is_credible(&answer("c", "other", 5)), "the source");
        assert!(state.is_credible(&answer("a", "other", 6)), "it is ahead");
        let promoting = Answer {
            is_promoting: true,
            ..answer("a", "the master's other name", 5)
        };
        assert!(state.is_credible(&promoting));
        assert!(state.learn(&promoting).is_some());
        // The sentinel `b` knows nothing of the promotion, so its answer must not end the wait.
        assert!(!state.is_credible(&answer("b", "master", 5)));
    }

    #[test]
    fn a_promotion_ends_when_its_sentinel_says_so() {
        let mut state = state();
        let promoting = Answer {
            is_promoting: true,
            ..answer("a", "master", 5)
        };
        let until = state.learn(&promoting);
        assert!(until.is_some());
        assert_eq!(state.learn(&answer("b", "master", 5)), until);
        assert!(state.learn(&promoting) >= until, "it says so again");
        assert_eq!(state.learn(&answer("a", "master", 5)), None);
        state.learn(&promoting);
        assert_eq!(state.learn(&answer("a", "new", 6)), None);
    }
}
