//! Runs the contract's conformance suite on a real cluster of three masters, and random calls whose replies are
//! compared with a model.

mod fixture;

use fixture::cluster_subject;

tenure_testkit::conformance!(cluster_subject, groups: [mutual, claim]);
tenure_testkit::agrees_with_the_model!(cluster_subject, walks: 15);

/// The other groups, whose rules do not depend on slots. Each case starts a cluster, so only `cargo xtask test --long`
/// runs them.
mod long {
    use super::fixture::cluster_subject;

    tenure_testkit::conformance!(cluster_subject, groups: [lease, fifo, fence, watch, turn, successor, refuse]);
}

/// Random calls with claims that travel in batches.
mod batched {
    use super::fixture::batching_cluster;

    tenure_testkit::agrees_with_the_model!(batching_cluster, walks: 15);
}

/// Random calls in the layout `plain`.
mod plain {
    use super::fixture::plain_cluster;

    tenure_testkit::agrees_with_the_model!(plain_cluster, walks: 15);
}
