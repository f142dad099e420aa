//! Runs the contract's conformance suite in the layouts `plain` and `spring`, `plain` also with injected faults, and
//! random calls whose replies are compared with a model.

mod fixture;

mod plain {
    use super::fixture::plain;

    tenure_testkit::conformance!(plain);
    tenure_testkit::conformance_under_chaos!(plain);
    tenure_testkit::agrees_with_the_model!(plain, walks: 60);
}

mod spring {
    use super::fixture::spring;

    // Not under chaos: both layouts call the same scripts, so the faults that `plain` meets suffice.
    tenure_testkit::conformance!(spring);
    tenure_testkit::agrees_with_the_model!(spring, walks: 20);
}
