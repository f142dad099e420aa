//! Runs the contract's conformance suite on a real MariaDB server in each layout of lease rows, two of them also with
//! injected faults, and random calls whose replies are compared with a model.
#![cfg(feature = "mysql")]

mod mysql;

mod unique {
    use super::mysql::unique;

    tenure_testkit::conformance!(unique);
    tenure_testkit::conformance_under_chaos!(unique);
    tenure_testkit::agrees_with_the_model!(unique, walks: 20);
}

mod version {
    use super::mysql::version;

    tenure_testkit::conformance!(version);
    tenure_testkit::conformance_under_chaos!(version);
    tenure_testkit::agrees_with_the_model!(version, walks: 20);
}

mod shedlock {
    use super::mysql::shedlock;

    tenure_testkit::conformance!(shedlock);
}

/// The cases that restart the server, on one of their own.
mod restarted {
    use tenure_testkit::suite::{self, fence, lease};

    use super::mysql::alone;

    #[test]
    fn a_claim_survives_a_restart() {
        suite::run(alone, lease::a_claim_survives_a_restart_if_the_profile_says_so);
    }

    #[test]
    fn tokens_rise_over_a_restart() {
        suite::run(alone, fence::tokens_rise_over_a_restart);
    }
}
