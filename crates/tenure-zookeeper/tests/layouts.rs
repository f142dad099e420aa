//! Runs the contract's conformance suite on the layouts besides Curator's.

mod case;

/// Kazoo's names.
mod kazoo {
    use super::case::{Case, shared};

    async fn subject() -> Case {
        Case {
            options: "tick_time=500ms&layout=kazoo",
            ..shared().await
        }
    }

    tenure_testkit::conformance!(
        subject,
        groups: [mutual, claim, lease, fifo, watch, successor, refuse]
    );
}

/// One ephemeral node for each lock.
mod ephemeral {
    use tenure_testkit::suite;
    use tenure_testkit::suite::run;

    use super::case::{Case, shared};

    async fn subject() -> Case {
        Case {
            options: "tick_time=500ms&layout=ephemeral",
            ..shared().await
        }
    }

    tenure_testkit::conformance!(
        subject,
        groups: [claim, lease, fifo, watch, turn, successor, refuse]
    );

    #[test]
    fn two_exclusive_claims_are_never_granted_together() {
        run(
            subject,
            suite::mutual::two_exclusive_claims_are_never_granted_together,
        );
    }

    #[test]
    fn competing_clients_never_hold_at_the_same_time() {
        run(
            subject,
            suite::mutual::competing_clients_never_hold_at_the_same_time,
        );
    }

    #[test]
    fn tokens_rise_over_release_and_eviction() {
        run(subject, suite::fence::tokens_rise_over_release);
        run(subject, suite::fence::tokens_rise_over_eviction);
    }
}
