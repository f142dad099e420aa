//! Runs the contract's conformance suite on a real PostgreSQL server in each layout of lease rows, two of them also with
//! injected faults, and random calls whose replies are compared with a model.
#![cfg(feature = "postgres")]

mod postgres_fixture;

mod unique {
    use super::postgres_fixture::unique;

    tenure_testkit::conformance!(unique);
    tenure_testkit::conformance_under_chaos!(unique);
    tenure_testkit::agrees_with_the_model!(unique, walks: 20);
}

mod version {
    use super::postgres_fixture::version;

    tenure_testkit::conformance!(version);
    tenure_testkit::conformance_under_chaos!(version);
    tenure_testkit::agrees_with_the_model!(version, walks: 20);
}

mod shedlock {
    use super::postgres_fixture::shedlock;

    tenure_testkit::conformance!(shedlock);
}
