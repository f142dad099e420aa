//! Random events against one queue: its invariants hold after each event, and at the end every caller is served.

use proptest::prelude::*;

use super::Fixture;
use crate::engine::queue::policy::PolicyLimits;

/// An event, in the words of `script.rs`. The number, if any, selects one of the callers to which it can happen.
type Step = (String, Option<usize>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let arrives = prop_oneof![
        4 => Just("a locks with linger"),
        3 => Just("a locks"),
        1 => Just("a locks with label"),
        2 => Just("a tries"),
        1 => Just("a queues"),
        2 => Just("a locks to write with linger"),
        3 => Just("a locks to read"),
        2 => Just("a locks for a permit"),
    ];
    let happens_to_caller = prop_oneof![
        16 => Just("answered"),
        2 => Just("fails"),
        4 => Just("adopted"),
        16 => Just("polls"),
        4 => Just("leaves"),
        16 => Just("unlocks"),
        4 => Just("served"),
        3 => Just("downgrades"),
        4 => Just("downgraded"),
    ];
    let happens = prop_oneof![
        10 => Just("other client"),
        30 => Just("poller looks"),
        10 => Just("poller granted"),
        27 => Just("poller answered"),
        3 => Just("poller fails"),
        27 => Just("successor answered"),
        3 => Just("successor lost"),
        6 => Just("evicted"),
        14 => Just("evicted quietly"),
        10 => Just("linger over"),
    ];
    let step = prop_oneof![
        4 => arrives.prop_map(|event| (event.to_owned(), None)),
        15 => (happens_to_caller, 0..8_usize).prop_map(|(verb, which)| (verb.to_owned(), Some(which))),
        14 => happens.prop_map(|event| (event.to_owned(), None)),
        2 => (0..150_u32).prop_map(|ms| (format!("{ms} ms"), None)),
        2 => (0..12_u32).prop_map(|ms| (format!("{ms} ms"), None)),
    ];
    prop::collection::vec(step, 1..120)
}

fn fixture_after(steps: Vec<Step>, policy: PolicyLimits, has_one_order: bool) -> Fixture {
    let mut fixture = Fixture::new(policy);
    fixture.has_one_order = has_one_order;
    for (event, which) in steps {
        let Some(which) = which else {
            fixture.happen(&event);
            continue;
        };
        let able = fixture.able(&event);
        if !able.is_empty() {
            fixture.happen(&format!("{} {event}", able[which % able.len()]));
        }
    }
    fixture
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Q1 to Q4 hold during random events. At the end, when every caller is served, so do Q3 (again), Q5 and Q7.
    #[test]
    fn random_events_keep_the_invariants(
        steps in steps(),
        reports_waiters: bool,
        is_on_network: bool,
        has_one_order: bool,
    ) {
        fixture_after(steps, PolicyLimits { reports_waiters, is_on_network }, has_one_order).finish();
    }

    /// Q3: closing the queue returns every claim that is held or lingers, and ends every caller.
    #[test]
    fn closing_returns_every_claim(steps in steps(), has_one_order: bool) {
        let policy = PolicyLimits { reports_waiters: true, is_on_network: true };
        let mut fixture = fixture_after(steps, policy, has_one_order);
        fixture.happen("closed");
        fixture.finish();
    }
}
