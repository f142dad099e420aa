//! The contract's conformance suite on a real server, with and without injected faults. Tests of Redis's own keys,
//! channels and server faults are in the other files.

mod fixture;

use fixture::subject;

tenure_testkit::conformance!(subject);
tenure_testkit::conformance_under_chaos!(subject);
tenure_testkit::agrees_with_the_model!(subject, walks: 60);

/// The same tests with batched claims.
mod batched {
    use super::fixture::batching;

    tenure_testkit::conformance!(batching);
    tenure_testkit::agrees_with_the_model!(batching, walks: 60);
}
