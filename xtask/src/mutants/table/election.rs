//! Mutants of elections, in async and on threads.
//! Not here: the lock beneath.

use super::list::{PLAIN, election, threads};
use crate::mutants::mutant::{Edit, Mutant};

const CHANGES: &str = "crates/tenure/src/changes.rs";
const DRIVE: &str = "crates/tenure/src/drive.rs";
const ELECTION: &str = "crates/tenure/src/election.rs";
const THREADS_CLIENT: &str = "crates/tenure/src/blocking/client.rs";
const THREADS_ELECTION: &str = "crates/tenure/src/blocking/election.rs";
const THREADS_GUARD: &str = "crates/tenure/src/blocking/guard.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "candidates-out-of-order",
        promise: "Candidates are elected in the order in which they began to campaign",
        edits: &[Edit {
            file: ELECTION,
            find: "if in_order { seat.fair() } else { seat }",
            replace: "if in_order { seat } else { seat.fair() }",
        }],
        tests: election(&["one_leads_and_the_others_follow_in_their_order"]),
        ..PLAIN
    },
    Mutant {
        name: "lost-lead-is-not-campaigned-for-again",
        promise: "A candidate that loses the lead campaigns again",
        edits: &[Edit {
            file: ELECTION,
            find: "Err(lost) => tracing::warn!(%lost, \"the lead was lost: campaigning again\"),",
            replace: "Err(lost) => return Err(lost.into()),",
        }],
        tests: election(&["a_lost_lead_ends_the_work_and_the_candidate_campaigns_again"]),
        ..PLAIN
    },
    Mutant {
        name: "work-is-not-told-its-token",
        promise: "Work is told the token of its term",
        edits: &[Edit {
            file: ELECTION,
            find: "work(leader.token())",
            replace: "work(None)",
        }],
        tests: election(&["a_lost_lead_ends_the_work_and_the_candidate_campaigns_again"]),
        ..PLAIN
    },
    Mutant {
        name: "deposed-leader-believes-that-it-leads",
        promise: "A leader that is deposed leads no more",
        edits: &[Edit {
            file: ELECTION,
            find: "self.0.is_held()",
            replace: "self.0.is_held() || self.0.token().is_some()",
        }],
        tests: election(&["a_leader_is_told_why_it_leads_no_more"]),
        ..PLAIN
    },
    Mutant {
        name: "work-is-done-before-its-leader-resigns",
        promise: "Work that ends resigns before its output is returned",
        edits: &[Edit {
            file: ELECTION,
            find: "                    if let Err(error) = leader.resign().await {
                        tracing::warn!(%error, \"a leader's work was done and its resignation is not confirmed\");
                    }
",
            replace: "                    drop(leader);
",
        }],
        tests: election(&["work_that_ends_resigns_before_its_output_is_returned"]),
        ..PLAIN
    },
    Mutant {
        name: "dropped-campaign-leaves-its-candidate",
        promise: "A campaign that is dropped leaves no candidate",
        edits: &[Edit {
            file: DRIVE,
            find: "    } else {
        line.withdraw(claim);
    }
",
            replace: "    } else {
        drop(claim);
    }
",
        }],
        tests: election(&["a_campaign_that_is_dropped_leaves_no_candidate"]),
        ..PLAIN
    },
    Mutant {
        name: "observers-see-other-keys",
        promise: "Observers of an election see nothing of other keys",
        edits: &[Edit {
            file: CHANGES,
            find: "Scope::Key(key) => Query::Key(key.clone()),",
            replace: "Scope::Key(key) => Query::Prefix {
            prefix: key.as_str().into(),
            after,
            limit: PAGE,
        },",
        }],
        tests: election(&["observers_see_who_leads_and_nothing_of_other_keys"]),
        ..PLAIN
    },
    Mutant {
        name: "dead-leader-is-waited-for-beyond-its-lease",
        promise: "A dead leader is replaced when the lease that it asked for has ended",
        edits: &[Edit {
            file: ELECTION,
            find: "seat: self.seat.lease(lease),",
            replace: "seat: self.seat.lease(lease * 10),",
        }],
        tests: election(&["a_dead_leader_is_replaced_when_its_lease_has_ended"]),
        ..PLAIN
    },
    Mutant {
        name: "election-without-a-name",
        promise: "A name that is no key is refused",
        edits: &[Edit {
            file: ELECTION,
            find: "key: LockKey::new(name)",
            replace: "key: LockKey::new(format!(\"{name}/\"))",
        }],
        tests: election(&["a_name_that_is_no_key_is_refused_at_first_use"]),
        ..PLAIN
    },
    // On threads.
    Mutant {
        name: "lease-does-not-reach-the-election",
        promise: "A candidate has the lease that it asked for",
        edits: &[Edit {
            file: THREADS_ELECTION,
            find: "self.map(|inner| inner.lease(lease))",
            replace: "self.map(|inner| inner.lease(lease * 2))",
        }],
        tests: threads(&["one_leads_and_the_next_is_elected_when_it_resigns"]),
        ..PLAIN
    },
    Mutant {
        name: "work-is-done-though-its-lead-was-lost",
        promise: "Work that lost its lead is not done",
        edits: &[Edit {
            file: THREADS_ELECTION,
            find: "match leader.while_leader(&mut work) {",
            replace: "match Ok::<_, Lost>(work(&leader)) {",
        }],
        tests: threads(&["a_lost_lead_is_told_to_the_work_and_the_candidate_campaigns_again"]),
        ..PLAIN
    },
    Mutant {
        name: "work-begins-though-the-lead-is-lost",
        promise: "Work does not begin once the lead is lost",
        edits: &[Edit {
            file: THREADS_GUARD,
            find: "        self.check()?;
        let output = work(self);",
            replace: "        let output = work(self);",
        }],
        tests: threads(&["work_does_not_begin_once_the_lead_is_lost"]),
        ..PLAIN
    },
    Mutant {
        name: "closing-is-told-as-a-time-out",
        promise: "A campaign whose client is closed is told so",
        edits: &[Edit {
            file: DRIVE,
            find: "waiter.answer(Err(line.engine.watchdog.closed()))",
            replace: "waiter.answer(Err(crate::error::Error::Timeout))",
        }],
        tests: threads(&["closing_the_client_ends_a_campaign"]),
        ..PLAIN
    },
    Mutant {
        name: "first-holder-is-told-as-another",
        promise: "A key that nobody held before is told as held",
        edits: &[Edit {
            file: CHANGES,
            find: "(false, true) => Some(Change::Held(status)),",
            replace: "(false, true) => Some(Change::Holders(status)),",
        }],
        tests: threads(&["observers_see_who_leads"]),
        ..PLAIN
    },
    Mutant {
        name: "election-of-another-name",
        promise: "An election on threads is the one of that name",
        edits: &[Edit {
            file: THREADS_CLIENT,
            find: "self.inner.election(name)",
            replace: "self.inner.election(format!(\"{}/\", name.as_ref()))",
        }],
        tests: threads(&["a_name_that_is_no_key_is_refused_at_first_use"]),
        ..PLAIN
    },
];
