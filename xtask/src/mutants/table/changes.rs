//! Mutants of watching what changes among a store's locks, in async and on threads.
//! Not here: a single look.

use super::list::{PLAIN, changes, threads};
use crate::mutants::mutant::{Edit, Mutant};

const CHANGES: &str = "crates/tenure/src/changes.rs";
const LIFE: &str = "crates/tenure/src/watchdog/life.rs";
const RUNTIME: &str = "crates/tenure/src/blocking/runtime.rs";
const THREADS_CHANGES: &str = "crates/tenure/src/blocking/changes.rs";
const THREADS_CLIENT: &str = "crates/tenure/src/blocking/client.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "changes-out-of-order",
        promise: "Changes are told in the order of the keys",
        edits: &[Edit {
            file: CHANGES,
            find: "        .into_iter()
        .filter_map(|key| difference",
            replace: "        .into_iter()
        .rev()
        .filter_map(|key| difference",
        }],
        tests: changes(&["it_begins_with_what_stands_in_the_order_of_the_keys"]),
        ..PLAIN
    },
    Mutant {
        name: "passing-on-is-not-told",
        promise: "It is told when others hold a key than before",
        edits: &[Edit {
            file: CHANGES,
            find: "before.map(holders).unwrap_or_default() != holders(&status)",
            replace: "before.map(holders).unwrap_or_default().len() != holders(&status).len()",
        }],
        tests: changes(&["a_key_is_told_when_it_is_held_waited_for_passed_on_and_freed"]),
        ..PLAIN
    },
    Mutant {
        name: "time-is-told-as-a-change",
        promise: "Renewals and the passing of time are no changes",
        edits: &[Edit {
            file: CHANGES,
            find: "before.map(waiters).unwrap_or_default() != waiters(&status)",
            replace: "before != after",
        }],
        tests: changes(&["renewals_and_the_passing_of_time_are_no_changes"]),
        ..PLAIN
    },
    Mutant {
        name: "only-the-first-page-is-looked-at",
        promise: "All keys are told, however many pages they come in",
        edits: &[Edit {
            file: CHANGES,
            find: "Some(next) => after = Some(next),",
            replace: "Some(next) => {
                after = Some(next);
                return Ok(seen);
            }",
        }],
        tests: changes(&["many_keys_are_told_once_each_though_they_come_in_pages"]),
        ..PLAIN
    },
    Mutant {
        name: "as-many-keys-as-the-limit-are-too-many",
        promise: "As many keys as the limit says are kept in mind",
        edits: &[Edit {
            file: CHANGES,
            find: "if seen.len() > limit {",
            replace: "if seen.len() >= limit {",
        }],
        tests: changes(&["more_keys_than_its_limit_end_it_in_words"]),
        ..PLAIN
    },
    Mutant {
        name: "rests-longer-than-it-is-told-to",
        promise: "The store is looked at as often as asked",
        edits: &[Edit {
            file: CHANGES,
            find: "interval.max(SHORTEST)",
            replace: "interval.max(INTERVAL)",
        }],
        tests: changes(&["the_store_is_looked_at_once_a_second_or_as_often_as_asked"]),
        ..PLAIN
    },
    Mutant {
        name: "dropped-next-loses-a-change",
        promise: "A `next` that is dropped loses no change",
        edits: &[Edit {
            file: CHANGES,
            find: "poll_fn(|context| self.poll(context)).await",
            replace: "let change = poll_fn(|context| self.poll(context)).await;
        tokio::task::yield_now().await;
        change",
        }],
        tests: changes(&["a_next_that_is_dropped_loses_no_change"]),
        ..PLAIN
    },
    Mutant {
        name: "weather-is-told-at-every-look",
        promise: "That the store does not answer is told once",
        edits: &[Edit {
            file: CHANGES,
            find: "if !std::mem::replace(&mut self.unavailable, true) {",
            replace: "if !std::mem::replace(&mut self.unavailable, true) || self.unavailable {",
        }],
        tests: changes(&["weather_is_told_once_and_does_not_end_it"]),
        ..PLAIN
    },
    Mutant {
        name: "stream-goes-on-after-a-fault",
        promise: "A fault that time does not mend ends the stream",
        edits: &[Edit {
            file: CHANGES,
            find: "self.ended = matches!(change, Poll::Ready(Err(_)));",
            replace: "self.ended = matches!(change, Poll::Ready(Err(_))) && self.unavailable;",
        }],
        tests: changes(&["a_fault_that_time_does_not_mend_ends_the_stream"]),
        ..PLAIN
    },
    Mutant {
        name: "rest-stands-still-while-the-machine-sleeps",
        promise: "A rest is over when its time has passed, though the machine slept",
        edits: &[Edit {
            file: CHANGES,
            find: "nap(watchdog, until - now)",
            replace: "tokio::time::sleep(until - now)",
        }],
        tests: changes(&["a_rest_is_over_when_its_time_has_passed_though_the_machine_slept"]),
        ..PLAIN
    },
    Mutant {
        name: "watch-outlives-the-runtime-of-its-client",
        promise: "A watch ends with the runtime on which its client works",
        edits: &[Edit {
            file: LIFE,
            find: "        shared.closing.notify_waiters();
",
            replace: "",
        }],
        tests: changes(&["it_ends_when_the_runtime_ends_on_which_its_client_works"]),
        ..PLAIN
    },
    Mutant {
        name: "watch-is-not-told-that-its-client-closes",
        promise: "A watch that rests ends at once when its client is closed",
        edits: &[Edit {
            file: CHANGES,
            find: "() = &mut closing => {}",
            replace: "() = std::future::pending() => {}",
        }],
        tests: changes(&["it_ends_at_once_when_its_client_is_closed"]),
        ..PLAIN
    },
    // On threads.
    Mutant {
        name: "threads-watch-every-key",
        promise: "A watch on threads tells of its prefix alone",
        edits: &[Edit {
            file: THREADS_CLIENT,
            find: "self.inner.watch(prefix)",
            replace: "self.inner.watch(&prefix.as_ref()[..0])",
        }],
        tests: threads(&["a_thread_is_told_what_stands_and_then_what_happens"]),
        ..PLAIN
    },
    Mutant {
        name: "one-change-of-a-look-is-told",
        promise: "Every change that a look has found is told",
        edits: &[Edit {
            file: CHANGES,
            find: "self.untold.pop_front()",
            replace: "self.untold.drain(..).next()",
        }],
        tests: threads(&["a_change_that_came_between_two_waits_is_told_by_the_second"]),
        ..PLAIN
    },
    Mutant {
        name: "iterator-goes-on-after-an-error",
        promise: "An iterator of changes ends after an error",
        edits: &[Edit {
            file: THREADS_CHANGES,
            find: "runtime.block_on(StreamExt::next(inner))",
            replace: "Some(runtime.block_on(inner.next()))",
        }],
        tests: threads(&["more_keys_than_its_limit_end_it"]),
        ..PLAIN
    },
    Mutant {
        name: "watch-on-threads-outlives-the-closing-of-its-client",
        promise: "Closing its client ends a watch that rests",
        edits: &[
            Edit {
                file: CHANGES,
                find: "if watchdog.is_closed() {",
                replace: "if watchdog.is_closed() && time.is_zero() {",
            },
            Edit {
                file: CHANGES,
                find: "() = &mut closing => {}",
                replace: "() = std::future::pending() => {}",
            },
        ],
        tests: threads(&["closing_its_client_ends_a_watch_that_rests"]),
        ..PLAIN
    },
    Mutant {
        name: "thread-ends-with-its-client-alone",
        promise: "A watch outlives its client",
        edits: &[Edit {
            file: RUNTIME,
            find: "#[derive(Clone)]
pub(crate) struct Runtime(Arc<Shared>);
",
            replace: "pub(crate) struct Runtime(Arc<Shared>);

impl Clone for Runtime {
    fn clone(&self) -> Self {
        let clone = Self::with(self.0.handle.clone(), None);
        let _ = self.0.client.get().map(|client| clone.0.client.set(client.clone()));
        clone
    }
}
",
        }],
        tests: threads(&["a_watch_outlives_its_client"]),
        ..PLAIN
    },
];
