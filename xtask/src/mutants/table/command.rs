//! Mutants of the command and its guardian.

use super::list::{PLAIN, test, unit};
use crate::mutants::mutant::{Edit, Mutant, Target, Tests};

const WARD: &str = "crates/tenure-cli/src/verbs/ward.rs";
const RUN: &str = "crates/tenure-cli/src/verbs/run.rs";
const DEADLINE: &str = "crates/tenure-cli/src/guardian/deadline.rs";
const KEEPER: &str = "crates/tenure-cli/src/guardian/keeper.rs";
const STUB: &str = "crates/tenure-cli/src/guardian/stub.rs";
const SUPERVISOR: &str = "crates/tenure-cli/src/guardian/supervisor.rs";
const SWEEP: &str = "crates/tenure-cli/src/guardian/sweep.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "guardian-armed-after-the-command-starts",
        promise: "The guardian is armed before the command starts",
        edits: &[
            Edit {
                file: WARD,
                find: "OnLost::Term | OnLost::Kill => self.move_deadline(),
        }",
                replace: "OnLost::Term | OnLost::Kill => self.supervisor.waive(),
        }",
            },
            // A moment later, so that what the command does first is seen to come first.
            Edit {
                file: WARD,
                find: "self.supervisor.start(Launch::new(argv, env)).await.map(|_| ())",
                replace: "let started = self.supervisor.start(Launch::new(argv, env)).await.map(|_| ());
        tokio::time::sleep(Duration::from_millis(100)).await;
        started",
            },
        ],
        tests: test(
            "tenure-cli",
            "command",
            &["the_guardian_is_armed_before_the_command_starts"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "guardian-starts-unarmed",
        promise: "Nothing starts without an armed deadline",
        edits: &[Edit {
            file: DEADLINE,
            find: "Armed::Never => false,",
            replace: "Armed::Never => true,",
        }],
        tests: guardian(&["nothing_starts_without_an_armed_deadline"]),
        ..PLAIN
    },
    Mutant {
        name: "guardian-without-subreaper",
        promise: "What leaves the command's group and its parents is killed all the same",
        edits: &[Edit {
            file: KEEPER,
            find: "rustix::process::set_child_subreaper(Some(getpid()))?;",
            replace: "",
        }],
        tests: guardian(&["escapees_die_at_the_deadline"]),
        ..PLAIN
    },
    Mutant {
        name: "guardian-kills-the-group-only",
        promise: "Every descendant is killed, wherever it went",
        edits: &[
            Edit {
                file: SWEEP,
                find: "kin::Kin::child(child).signal(Signal::KILL) == Err(Errno::PERM)",
                replace: "Some(child) == self.leader && self.leader.is_none()",
            },
            Edit {
                file: SWEEP,
                find: "let _ = kin.signal(Signal::KILL);",
                replace: "let _ = kin;",
            },
        ],
        tests: guardian(&["what_the_command_leaves_behind_is_killed"]),
        ..PLAIN
    },
    Mutant {
        name: "guardian-terms-the-group-only",
        promise: "Descendants that left the group hear TERM too",
        edits: &[Edit {
            file: SWEEP,
            find: "let _ = kin.signal(signal);",
            replace: "let _ = kin;",
        }],
        tests: guardian(&["descendants_that_left_the_group_hear_term_too"]),
        ..PLAIN
    },
    Mutant {
        name: "guardian-kills-instead-of-term",
        promise: "TERM comes first, and KILL a grace later",
        edits: &[Edit {
            file: DEADLINE,
            find: "told: grace.is_zero(),",
            replace: "told: true,",
        }],
        tests: guardian(&["a_loss_sends_term_and_then_kill"]),
        ..PLAIN
    },
    Mutant {
        name: "guardian-forgives-after-term",
        promise: "A renewal after TERM does not save the command",
        edits: &[Edit {
            file: DEADLINE,
            find: "self.armed = Armed::At(deadline);",
            replace: "self.armed = Armed::At(deadline);
        self.sentence = None;",
        }],
        tests: unit("tenure-cli", &["a_renewal_after_term_does_not_save_the_command"]),
        ..PLAIN
    },
    Mutant {
        name: "guardian-kills-at-the-end-of-belief",
        promise: "KILL is sent a thirtieth of the lease, and at least 100 ms, before belief ends",
        edits: &[Edit {
            file: DEADLINE,
            find: "(lease / 30).max(Duration::from_millis(100))",
            replace: "(lease / 30).min(Duration::ZERO)",
        }],
        tests: unit(
            "tenure-cli",
            &["kill_is_a_thirtieth_of_the_lease_before_belief_ends"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "guardian-outlives-tenure",
        promise: "If `tenure` is killed, everything that the command started dies at once",
        edits: &[Edit {
            file: KEEPER,
            find: "Err(_) => return Next::End(Some(Why::CallerDied)),",
            replace: "Err(_) => return Next::GoOn,",
        }],
        tests: guardian(&["everything_dies_when_tenure_is_killed_even_if_waived"]),
        ..PLAIN
    },
    Mutant {
        name: "tenure-does-not-act-for-a-dead-guardian",
        promise: "Everything dies when the guardian is killed",
        edits: &[Edit {
            file: SUPERVISOR,
            find: "rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;",
            replace: "",
        }],
        tests: guardian(&["everything_dies_when_the_guardian_is_killed"]),
        ..PLAIN
    },
    Mutant {
        name: "tenure-trusts-a-stopped-guardian",
        promise: "A stopped guardian does not save the command",
        edits: &[Edit {
            file: SUPERVISOR,
            find: "Some(due + STUCK_AFTER)",
            replace: "Some(due + STUCK_AFTER * 72_000)",
        }],
        tests: guardian(&["a_stopped_guardian_does_not_save_the_command"]),
        ..PLAIN
    },
    Mutant {
        name: "stub-without-parent-check",
        promise: "A stub whose parent is not the guardian never runs the command",
        edits: &[Edit {
            file: STUB,
            find: "getppid() == Some(guardian)",
            replace: "getppid() != Some(guardian) || getppid().is_some()",
        }],
        tests: guardian(&["a_stub_whose_parent_is_not_the_guardian_never_runs_the_command"]),
        ..PLAIN
    },
    Mutant {
        name: "stub-without-parent-death-signal",
        promise: "If `tenure` and the guardian are both killed, the command's leader dies",
        edits: &[Edit {
            file: STUB,
            find: "set_parent_process_death_signal(Some(rustix::process::Signal::KILL))",
            replace: "set_parent_process_death_signal(None)",
        }],
        tests: guardian(&["the_leader_dies_with_the_guardian_though_tenure_is_stopped"]),
        ..PLAIN
    },
    Mutant {
        name: "command-exits-0-on-loss",
        promise: "A command that was stopped because its lock was lost exits with 123",
        edits: &[Edit {
            file: RUN,
            find: "const STOPPED: u8 = 123;",
            replace: "const STOPPED: u8 = 0;",
        }],
        tests: test(
            "tenure-cli",
            "command",
            &["an_evicted_command_gets_term_then_kill_and_123"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "command-ignores-a-loss",
        promise: "A loss is acted on when it is known and not only at the deadline",
        edits: &[Edit {
            file: WARD,
            find: "self.supervisor.stop(Why::Lost, self.grace_on_loss());",
            replace: "",
        }],
        tests: test(
            "tenure-cli",
            "command",
            &["a_loss_is_acted_on_when_it_is_known_and_not_only_at_the_deadline"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "command-kill-sends-term",
        promise: "`--on-lost kill` sends no TERM",
        edits: &[Edit {
            file: WARD,
            find: "OnLost::Kill => Duration::ZERO,",
            replace: "OnLost::Kill => self.terms.grace,",
        }],
        tests: test("tenure-cli", "command", &["on_lost_kill_sends_no_term"]),
        ..PLAIN
    },
    Mutant {
        name: "command-renewals-do-not-move-the-deadline",
        promise: "Renewals move the guardian's deadline for as long as the command runs",
        edits: &[Edit {
            file: WARD,
            find: "loop {
            if self.terms.on_lost != OnLost::Ignore {
                self.move_deadline();
            }",
            replace: "loop {",
        }],
        tests: test(
            "tenure-cli",
            "command",
            &["renewals_move_the_deadline_for_as_long_as_the_command_runs"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "command-lock-ends-at-max-hold",
        promise: "At `--max-hold` the command is stopped while the lock is still held",
        edits: &[Edit {
            file: RUN,
            find: "Some(max_hold + run.grace(lease) + lease)",
            replace: "Some(max_hold)",
        }],
        tests: test(
            "tenure-cli",
            "command",
            &["max_hold_stops_the_command_while_the_lock_is_still_held"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "command-ignores-at-least",
        promise: "`--at-least` keeps the lock until then, even if the command ends early",
        edits: &[Edit {
            file: "crates/tenure-cli/src/verbs/command.rs",
            find: "ward.linger().await;",
            replace: "",
        }],
        tests: test(
            "tenure-cli",
            "command",
            &["the_lock_is_kept_for_at_least_as_long_as_asked"],
        ),
        ..PLAIN
    },
    Mutant {
        name: "command-leaves-its-place-in-the-queue",
        promise: "A signal while waiting withdraws the claim before the command exits",
        edits: &[Edit {
            file: RUN,
            find: "leave(&client).await;
    outcome",
            replace: "outcome",
        }],
        tests: test(
            "tenure-cli",
            "command",
            &["a_signal_while_waiting_withdraws_and_the_command_never_runs"],
        ),
        ..PLAIN
    },
];

/// Some of the guardian's tests, on real processes.
const fn guardian(names: &'static [&'static str]) -> Tests {
    Tests {
        package: "tenure-cli",
        target: Target::TestByOneName("guardian"),
        names,
    }
}
