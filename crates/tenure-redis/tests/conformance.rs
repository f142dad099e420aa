//! The contract's suite on a real server, in fair weather and foul.
//! What is Redis's own (keys, channels, faults of the server) is in the tests beside this one.

mod stage;

use stage::subject;

tenure_testkit::conformance!(subject);
tenure_testkit::conformance_under_chaos!(subject);
tenure_testkit::agrees_with_the_model!(subject, walks: 60);

/// The same, while claims travel together.
mod together {
    use super::stage::gathering;

    tenure_testkit::conformance!(gathering);
    tenure_testkit::agrees_with_the_model!(gathering, walks: 60);
}
