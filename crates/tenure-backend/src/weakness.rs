//! Findings that follow from a store's profile alone, for `tenure doctor`.

use crate::{Fencing, Finding, Hazard, Profile, Reach};

impl Profile {
    /// Findings that hold for every store with this profile, whatever its setup.
    ///
    /// `tenure doctor` prints them before it examines the store itself.
    ///
    /// A [note](crate::Severity::Note) names events after which two clients can hold a lock at once, or clients that
    /// the locks do not exclude. A [warning](crate::Severity::Warning) names a protection that other stores give and
    /// this one lacks. Loss of the store's data is not mentioned, because no store withstands it.
    ///
    /// # Examples
    /// ```
    /// use tenure_backend::{Profile, Severity};
    ///
    /// /// Returns whether the store has every protection that other stores have.
    /// fn is_fully_protected(profile: &Profile) -> bool {
    ///     profile.findings().iter().all(|finding| finding.severity < Severity::Warning)
    /// }
    /// ```
    pub fn findings(&self) -> Vec<Finding> {
        [
            self.limited_reach(),
            self.double_holding(),
            self.missing_fencing(),
            self.forgotten_ends(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn limited_reach(&self) -> Option<Finding> {
        let in_process = self.reach == Reach::Process;
        in_process.then(|| {
            let what = format!("{} keeps its locks in the memory of one process", self.store);
            Finding::note(
                what,
                "every other process can take the same lock at the same time",
            )
        })
    }

    fn double_holding(&self) -> Option<Finding> {
        let events: Vec<&str> = self
            .hazards
            .iter()
            .filter_map(|hazard| self.event(hazard))
            .collect();
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

    fn missing_fencing(&self) -> Option<Finding> {
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

    /// A note, because the engine withdraws such a claim again, and the request has a deadline.
    fn forgotten_ends(&self) -> Option<Finding> {
        (!self.remembers_ended).then(|| {
            let (store, layout) = (self.store, self.layout);
            Finding::note(
                format!("{store} in its layout {layout} does not remember claims that have ended"),
                "a request that a slow network delivers after its caller has given up takes the lock, for no holder, \
                 until the client withdraws it again, or until the lease ends if the client is gone",
            )
        })
    }

    fn lacks(&self, what: &str, consequence: &str) -> Finding {
        let what = format!("{} in its layout {} {what}", self.store, self.layout);
        Finding::warning(what, consequence)
    }

    /// Describes a hazard as the rest of a sentence after "when". `None` for data loss, which every store suffers from.
    fn event(&self, hazard: &Hazard) -> Option<&'static str> {
        match hazard {
            Hazard::DataLoss => None,
            Hazard::Restart => Some("its server restarts without the latest writes"),
            Hazard::ClockSet => Some("its server's clock is set forward"),
            Hazard::Failover if self.replicas > 0 => {
                Some("a replica takes over that has not acknowledged the lock, or has lost it")
            }
            Hazard::Failover => Some("a replica takes over that lacks the latest writes"),
            Hazard::InterruptedMove => Some("a server fails while locks are being moved from it"),
            Hazard::SessionDeath => Some("a session dies before its holder notices"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{LeaseClock, Limits, Liveness};

    /// A profile without findings: its only hazard is the loss of data.
    fn shelf() -> Profile {
        let liveness = Liveness::Lease(LeaseClock::Shared);
        let limits = Limits::new(Duration::from_millis(1), Duration::from_secs(1));
        Profile {
            reach: Reach::Machine,
            fencing: Fencing::UntilDataLossAndBackwardClock,
            remembers_ended: true,
            ..Profile::new("shelf", "rows", liveness, &[Hazard::DataLoss], limits)
        }
    }

    fn finding(profile: &Profile) -> String {
        let found = profile.findings();
        let [finding] = found.as_slice() else {
            panic!("{found:?}")
        };
        format!("{}: {}; {}", finding.severity, finding.what, finding.consequence)
    }

    #[test]
    fn data_loss_is_no_finding() {
        assert_eq!(shelf().findings(), []);
        let fencing = Fencing::Durable;
        assert_eq!(Profile { fencing, ..shelf() }.findings(), []);
    }

    #[test]
    fn each_hazard_is_reported_with_its_protection() {
        let begin = "note: shelf may give a lock to another before its holder's time is over: when";
        let end = "; two then hold it until the older one learns of it, and the fencing token tells the newer from the older";
        for (hazard, words) in [
            (Hazard::Restart, "restarts without the latest writes"),
            (Hazard::ClockSet, "its server's clock is set forward"),
            (Hazard::Failover, "that lacks the latest writes"),
            (Hazard::InterruptedMove, "while locks are being moved from it"),
            (Hazard::SessionDeath, "dies before its holder notices"),
        ] {
            let hazards: &'static [Hazard] = vec![Hazard::DataLoss, hazard].leak();
            let line = finding(&Profile { hazards, ..shelf() });
            let is_complete = line.starts_with(begin) && line.ends_with(&format!("{words}{end}"));
            assert!(is_complete, "{hazard:?}: {line}");
        }
        let acknowledged = Profile {
            replicas: 1,
            hazards: &[Hazard::Failover],
            ..shelf()
        };
        let line = finding(&acknowledged);
        assert!(
            line.contains("has not acknowledged the lock, or has lost it"),
            "{line}"
        );
        let hazards = &[Hazard::Restart, Hazard::ClockSet, Hazard::Failover];
        let line = finding(&Profile { hazards, ..shelf() });
        let list = "writes, when its server's clock is set forward or when a replica";
        assert!(line.contains(list), "{line}");
    }

    #[test]
    fn forgetting_ended_claims_is_a_note() {
        let line = finding(&Profile {
            remembers_ended: false,
            ..shelf()
        });
        let begin = "note: shelf in its layout rows does not remember claims";
        assert!(line.starts_with(begin), "{line}");
    }

    #[test]
    fn a_missing_protection_is_a_warning() {
        let with = |fencing| Profile { fencing, ..shelf() };
        for (profile, words) in [
            (
                with(Fencing::None),
                "shelf in its layout rows gives no fencing tokens; ",
            ),
            (with(Fencing::Process), "only within one process; "),
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
    fn a_store_within_one_process_reports_its_reach() {
        let line = finding(&Profile {
            reach: Reach::Process,
            fencing: Fencing::Process,
            ..shelf()
        });
        let begin = "note: shelf keeps its locks in the memory of one process; every other process";
        assert!(line.starts_with(begin), "{line}");
    }
}
