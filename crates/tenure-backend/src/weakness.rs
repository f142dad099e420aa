//! What weakens the locks of a store by its nature, in words for `doctor`.

use crate::{Fencing, Finding, Hazard, Profile, Reach};

impl Profile {
    /// What weakens locks in every such store, however it is set up; `tenure doctor` tells it before all else.
    ///
    /// A [note](crate::Severity::Note) is what must happen before two can hold, and who is not excluded at all; a
    /// [warning](crate::Severity::Warning) is a protection that other stores give. Loss of the data is not among them: no store
    /// is safe from it.
    ///
    /// # Examples
    /// ```
    /// use tenure_backend::{Profile, Severity};
    ///
    /// /// Whether a program that needs every protection can begin.
    /// fn is_strong(profile: &Profile) -> bool {
    ///     profile.findings().iter().all(|finding| finding.severity < Severity::Warning)
    /// }
    /// ```
    pub fn findings(&self) -> Vec<Finding> {
        [
            self.reaches(),
            self.two_can_hold(),
            self.tokens(),
            self.late_requests(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn reaches(&self) -> Option<Finding> {
        let alone = self.reach == Reach::Process;
        alone.then(|| {
            let what = format!("{} keeps its locks in the memory of one process", self.store);
            Finding::note(
                what,
                "every other process can take the same lock at the same time",
            )
        })
    }

    fn two_can_hold(&self) -> Option<Finding> {
        let events: Vec<&str> = self.hazards.iter().filter_map(event).collect();
        let (last, others) = events.split_last()?;
        let when = match others {
            [] => format!("when {last}"),
            others => format!("when {} or when {last}", others.join(", when ")),
        };
        let token = match self.fencing {
            Fencing::None => "nothing tells the newer from the older",
            _ => "the fencing token tells the newer from the older",
        };
        let what = format!(
            "{} may give a lock to another before its holder's time is over: {when}",
            self.store
        );
        let consequence = format!("two then hold it until the older one learns of it, and {token}");
        Some(Finding::note(what, consequence))
    }

    fn tokens(&self) -> Option<Finding> {
        let (what, consequence) = match self.fencing {
            Fencing::None => (
                "gives no fencing tokens",
                "what a holder writes that was paused beyond its deadline cannot be refused",
            ),
            Fencing::Process if self.reach != Reach::Process => (
                "gives fencing tokens that rise only within one process",
                "those of two processes cannot be compared, so what an older holder writes cannot be refused",
            ),
            Fencing::Process | Fencing::UntilDataLossAndBackwardClock | Fencing::Durable => return None,
        };
        Some(self.lacks(what, consequence))
    }

    fn late_requests(&self) -> Option<Finding> {
        (!self.remembers_ended).then(|| {
            self.lacks(
                "does not remember claims that have ended",
                "a request that a slow network delivers after the unlock takes the lock again, and nobody has it until \
                 that lease ends",
            )
        })
    }

    fn lacks(&self, what: &str, consequence: &str) -> Finding {
        let what = format!("{} in its layout {} {what}", self.store, self.layout);
        Finding::warning(what, consequence)
    }
}

/// What happens then, as it follows "when". None of what can happen to every store.
fn event(hazard: &Hazard) -> Option<&'static str> {
    match hazard {
        Hazard::DataLoss => None,
        Hazard::Restart => Some("its server restarts without the latest writes"),
        Hazard::ClockSet => Some("its server's clock is set forward"),
        Hazard::Failover => Some("a replica takes over that lacks the latest writes"),
        Hazard::SessionDeath => Some("a session dies before its holder notices"),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;
    use crate::{Inspection, LeaseClock, Limits, Liveness, Order, WakeUp};

    /// What has no weakness but what every store has.
    fn shelf() -> Profile {
        Profile {
            store: "shelf",
            layout: "rows",
            reach: Reach::Machine,
            mutex: Order::Unfair,
            read_write: Order::None,
            semaphore: Order::None,
            liveness: Liveness::Lease(LeaseClock::Shared),
            hazards: &[Hazard::DataLoss],
            fencing: Fencing::UntilDataLossAndBackwardClock,
            wake_up: WakeUp::Poll,
            remembers_ended: true,
            reports_waiters: false,
            inspection: Inspection {
                lists: false,
                queue: false,
                labels: false,
                remaining: false,
            },
            first_renewal: None,
            limits: Limits {
                min_lease: Duration::from_millis(1),
                max_lease: Duration::from_secs(1),
                max_grants: NonZeroU32::MIN,
                max_batch: NonZeroU32::MIN,
                margin: None,
                expiry_slack: Duration::ZERO,
            },
        }
    }

    /// The only finding of such a store, as a line.
    fn finding(profile: &Profile) -> String {
        let found = profile.findings();
        let [finding] = found.as_slice() else {
            panic!("{found:?}")
        };
        format!("{}: {}; {}", finding.severity, finding.what, finding.consequence)
    }

    #[test]
    fn what_every_store_lacks_is_no_finding() {
        assert_eq!(shelf().findings(), []);
        let fencing = Fencing::Durable;
        assert_eq!(Profile { fencing, ..shelf() }.findings(), []);
    }

    #[test]
    fn each_hazard_is_told_and_what_protects_from_it() {
        let begin = "note: shelf may give a lock to another before its holder's time is over: when";
        let end = "; two then hold it until the older one learns of it, and the fencing token tells the newer from the older";
        for (hazard, words) in [
            (Hazard::Restart, "restarts without the latest writes"),
            (Hazard::ClockSet, "its server's clock is set forward"),
            (Hazard::Failover, "that lacks the latest writes"),
            (Hazard::SessionDeath, "dies before its holder notices"),
        ] {
            let hazards: &'static [Hazard] = vec![Hazard::DataLoss, hazard].leak();
            let line = finding(&Profile { hazards, ..shelf() });
            let told = line.starts_with(begin) && line.ends_with(&format!("{words}{end}"));
            assert!(told, "{hazard:?}: {line}");
        }
        let hazards = &[Hazard::Restart, Hazard::ClockSet, Hazard::Failover];
        let line = finding(&Profile { hazards, ..shelf() });
        let list = "writes, when its server's clock is set forward or when a replica";
        assert!(line.contains(list), "{line}");
    }

    #[test]
    fn a_protection_that_is_missing_is_a_warning() {
        let with = |fencing| Profile { fencing, ..shelf() };
        let forgets = Profile {
            remembers_ended: false,
            ..shelf()
        };
        for (profile, words) in [
            (
                with(Fencing::None),
                "shelf in its layout rows gives no fencing tokens; ",
            ),
            (with(Fencing::Process), "only within one process; "),
            (forgets, "a slow network delivers after the unlock"),
        ] {
            let line = finding(&profile);
            assert!(line.starts_with("warning: ") && line.contains(words), "{line}");
        }
        let unprotected = Profile {
            hazards: &[Hazard::Failover],
            ..with(Fencing::None)
        };
        let found = unprotected.findings();
        let [two_hold, _] = &found[..] else {
            panic!("{found:?}")
        };
        let end = "nothing tells the newer from the older";
        assert!(two_hold.consequence.ends_with(end), "{found:?}");
    }

    #[test]
    fn a_store_within_one_process_says_whom_it_does_not_exclude() {
        let line = finding(&Profile {
            reach: Reach::Process,
            fencing: Fencing::Process,
            ..shelf()
        });
        let begin = "note: shelf keeps its locks in the memory of one process; every other process";
        assert!(line.starts_with(begin), "{line}");
    }
}
