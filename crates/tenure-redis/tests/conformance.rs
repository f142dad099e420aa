//! The contract's suite on a real server, in fair weather and foul.
//! What is Redis's own (keys, channels, faults of the server) is in the tests beside this one.

mod fixture;

use fixture::subject;

tenure_testkit::conformance!(subject);
tenure_testkit::conformance_under_chaos!(subject);
tenure_testkit::agrees_with_the_model!(subject, walks: 60);

/// The same, while claims travel together.
mod batched {
    use super::fixture::batching;

    tenure_testkit::conformance!(batching);
    tenure_testkit::agrees_with_the_model!(batching, walks: 60);
}
