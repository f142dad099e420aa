//! Runs the contract's conformance suite on a real Redis server, with and without injected faults, and random calls
//! whose replies are compared with a model.

mod fixture;

use fixture::subject;

tenure_testkit::conformance!(subject);
tenure_testkit::conformance_under_chaos!(subject);
tenure_testkit::agrees_with_the_model!(subject, walks: 60);

/// The suite and the random calls, with claims that travel in batches.
mod batched {
    use super::fixture::batching;

    tenure_testkit::conformance!(batching);
    tenure_testkit::agrees_with_the_model!(batching, walks: 60);
}
