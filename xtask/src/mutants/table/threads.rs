//! Mutants of the face without async.
//! Not here: elections (`election`) and changes (`changes`) on threads.

use super::list::{PLAIN, threads};
use crate::mutants::mutant::{Edit, Mutant};

const GUARD: &str = "crates/tenure/src/blocking/guard.rs";
const HELD: &str = "crates/tenure/src/held.rs";
const MULTI: &str = "crates/tenure/src/blocking/multi.rs";
const MUTEX: &str = "crates/tenure/src/blocking/mutex.rs";
const OPTIONS: &str = "crates/tenure/src/blocking/options.rs";
const RUNTIME: &str = "crates/tenure/src/blocking/runtime.rs";
const RWLOCK: &str = "crates/tenure/src/blocking/rwlock.rs";
const SEMAPHORE: &str = "crates/tenure/src/blocking/semaphore.rs";
const STATE: &str = "crates/tenure/src/line/state.rs";
const STRIPED: &str = "crates/tenure/src/blocking/striped.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    // Locks.
    Mutant {
        name: "threads-get-one-token",
        promise: "Every grant has a greater token, also on threads",
        edits: &[Edit {
            file: GUARD,
            find: "self.inner.token()",
            replace: "self.inner.token().and(FencingToken::new(1))",
        }],
        tests: threads(&["a_lock_excludes_and_every_grant_has_a_greater_token"]),
        ..PLAIN
    },
    Mutant {
        name: "grants-of-a-run-share-tokens",
        promise: "A claim that is passed on has a greater token",
        edits: &[Edit {
            file: HELD,
            find: "u64::from(nth)",
            replace: "u64::from(nth / 2)",
        }],
        tests: threads(&["thirty_two_threads_on_one_key_exclude_each_other"]),
        ..PLAIN
    },
    Mutant {
        name: "owner-does-not-reach-the-lock",
        promise: "An owner nests its locks on threads",
        edits: &[Edit {
            file: OPTIONS,
            find: "self.map(|inner| inner.owned_by(owner))",
            replace: "self.map(|inner| inner.label(owner.name()))",
        }],
        tests: threads(&["an_owner_nests_its_locks_across_threads"]),
        ..PLAIN
    },
    Mutant {
        name: "threads-fall-back-on-a-fault",
        promise: "The fallback never runs on a fault, also on threads",
        edits: &[Edit {
            file: MUTEX,
            find: "            self.try_lock()?",
            replace: "            self.try_lock().unwrap_or_default()",
        }],
        tests: threads(&["a_fallback_runs_only_when_the_lock_is_busy"]),
        ..PLAIN
    },
    Mutant {
        name: "threads-fall-back-on-a-fault-while-they-wait",
        promise: "The fallback never runs on a fault that comes while a thread waits",
        edits: &[Edit {
            file: MUTEX,
            find: "                Err(Error::Timeout) => None,
                Err(error) => return Err(error),",
            replace: "                Err(_) => None,",
        }],
        tests: threads(&["a_fallback_runs_only_when_the_lock_is_busy"]),
        ..PLAIN
    },
    Mutant {
        name: "at-least-does-not-reach-the-lock",
        promise: "Every option reaches the lock",
        edits: &[Edit {
            file: OPTIONS,
            find: "self.map(|inner| inner.at_least(time))",
            replace: "self.map(|inner| inner.at_least(time * 0))",
        }],
        tests: threads(&["every_option_reaches_the_lock"]),
        ..PLAIN
    },
    Mutant {
        name: "threads-read-when-they-ask-to-write",
        promise: "A writer is alone, also on threads",
        edits: &[Edit {
            file: RWLOCK,
            find: "self.inner.try_write()",
            replace: "self.inner.try_read()",
        }],
        tests: threads(&["readers_share_and_a_writer_is_alone"]),
        ..PLAIN
    },
    Mutant {
        name: "threads-take-one-permit-of-many",
        promise: "As many permits are taken as were asked for",
        edits: &[Edit {
            file: SEMAPHORE,
            find: "self.inner.acquire_many_within(permits, limit)",
            replace: "self.inner.acquire_many_within(permits.min(1), limit)",
        }],
        tests: threads(&["a_semaphore_has_so_many_permits"]),
        ..PLAIN
    },
    Mutant {
        name: "threads-have-stripes-of-their-own",
        promise: "A name has the same stripe on threads and in async",
        edits: &[Edit {
            file: STRIPED,
            find: "self.inner.mutex(name)",
            replace: "self.inner.mutex([name.as_ref(), b\"!\"].concat())",
        }],
        tests: threads(&["a_name_has_the_same_stripe_here_and_in_async"]),
        ..PLAIN
    },
    Mutant {
        name: "multi-asks-one-member",
        promise: "A multi-lock of threads goes on only while all members are held",
        edits: &[Edit {
            file: MULTI,
            find: "self.guards.iter().try_for_each(Guard::check)",
            replace: "self.guards.last().map_or(Ok(()), Guard::check)",
        }],
        tests: threads(&["several_locks_of_several_clients_are_taken_together_or_not_at_all"]),
        ..PLAIN
    },
    Mutant {
        name: "watchdog-starts-on-the-thread-of-another-client",
        promise: "Locks held together with another client do not hang on its thread",
        edits: &[Edit {
            file: RUNTIME,
            find: "        client.engine.watchdog.start(&client.engine)?;
",
            replace: "",
        }],
        tests: threads(&["locks_held_together_with_another_client_do_not_hang_on_its_thread"]),
        ..PLAIN
    },
    Mutant {
        name: "threads-are-told-what-is-left-as-the-lease",
        promise: "What a guard tells on threads is what the engine knows",
        edits: &[Edit {
            file: GUARD,
            find: "self.inner.lease()",
            replace: "self.inner.remaining()",
        }],
        tests: threads(&["what_the_client_tells_of_its_store_is_told_here_too"]),
        ..PLAIN
    },
    Mutant {
        name: "threads-unlock-nothing",
        promise: "An unlock wakes the thread that waits",
        edits: &[Edit {
            file: GUARD,
            find: "self.runtime.block_on(self.inner.unlock())",
            replace: "std::mem::forget(self);
        Ok(())",
        }],
        tests: threads(&["a_waiting_thread_is_woken_by_the_thread_that_unlocks"]),
        ..PLAIN
    },
    // Loss and end.
    Mutant {
        name: "check-finds-no-loss",
        promise: "A thread that asks between its steps learns that its lock is lost",
        edits: &[Edit {
            file: GUARD,
            find: "self.inner.loss().map_or(Ok(()), Err)",
            replace: "self.inner.loss().and(None).map_or(Ok(()), Err)",
        }],
        tests: threads(&["loss_is_noticed_by_waiting_and_by_asking"]),
        ..PLAIN
    },
    Mutant {
        name: "work-is-done-though-its-lock-was-lost",
        promise: "Work whose lock was lost meanwhile is not reported as done",
        edits: &[Edit {
            file: GUARD,
            find: "        let output = work(self);
        self.check()?;
        Ok(output)",
            replace: "        Ok(work(self))",
        }],
        tests: threads(&["work_whose_lock_was_lost_meanwhile_is_not_reported_as_done"]),
        ..PLAIN
    },
    Mutant {
        name: "wait-for-loss-stands-still-while-the-machine-sleeps",
        promise: "A wait for loss is over when its time has passed, though the machine slept",
        edits: &[Edit {
            file: RUNTIME,
            find: "self.block_on(within(&client.engine, limit, future))",
            replace: "let _ = client;
        self.block_on(async { tokio::time::timeout(limit, future).await.ok() })",
        }],
        tests: threads(&["a_wait_for_loss_is_over_when_its_time_has_passed_though_the_machine_slept"]),
        ..PLAIN
    },
    Mutant {
        name: "nobody-drives-the-watchdog-of-threads",
        promise: "A thread that never waits keeps its lock renewed",
        edits: &[Edit {
            file: RUNTIME,
            find: ".spawn(move || runtime.block_on(until_nobody_is_left))",
            replace: ".spawn(move || {
                let _never_driven = (runtime, until_nobody_is_left);
                std::thread::park();
            })",
        }],
        tests: threads(&["a_thread_that_never_waits_keeps_its_lock_renewed"]),
        ..PLAIN
    },
    Mutant {
        name: "thread-outlives-its-client",
        promise: "A client ends its thread when everything of it has gone",
        edits: &[Edit {
            file: RUNTIME,
            find: "let _ = nobody_left.send(client);",
            replace: "std::mem::forget((nobody_left, client));",
        }],
        tests: threads(&["a_client_ends_its_thread_when_everything_of_it_has_gone_and_not_before"]),
        ..PLAIN
    },
    Mutant {
        name: "closing-is-told-as-an-expiry",
        promise: "Holders are told that their client was closed",
        edits: &[Edit {
            file: STATE,
            find: "held.lose(LostCause::Closed);",
            replace: "held.lose(LostCause::Expired);",
        }],
        tests: threads(&["closing_ends_waits_and_belief_and_gives_everything_back"]),
        ..PLAIN
    },
    // Threads of async runtimes.
    Mutant {
        name: "async-workers-are-told-by-tokio-alone",
        promise: "On an async worker every call that can wait panics with a sentence",
        edits: &[Edit {
            file: RUNTIME,
            find: "if Handle::try_current().is_ok() {",
            replace: "if Handle::try_current().is_err() {",
        }],
        tests: threads(&["on_an_async_worker_every_call_that_can_wait_panics_with_a_sentence"]),
        ..PLAIN
    },
    Mutant {
        name: "refused-unlock-keeps-the-lock",
        promise: "A guard unlocked on an async worker is given back all the same",
        edits: &[Edit {
            file: GUARD,
            find: "self.runtime.block_on(self.inner.unlock())",
            replace: "let guard = Box::leak(Box::new(Some(self.inner)));
        self.runtime
            .block_on(async { guard.take().expect(\"it is there\").unlock().await })",
        }],
        tests: threads(&["a_guard_unlocked_on_an_async_worker_is_given_back_all_the_same"]),
        ..PLAIN
    },
    Mutant {
        name: "threads-that-may-wait-are-refused",
        promise: "Calls work inside `spawn_blocking` and `block_in_place`",
        edits: &[Edit {
            file: RUNTIME,
            find: "assert!(attempt.is_ok(), \"{ON_A_WORKER}\");",
            replace: "panic!(\"{ON_A_WORKER}: {}\", attempt.is_ok());",
        }],
        tests: threads(&["calls_work_inside_spawn_blocking_and_block_in_place"]),
        ..PLAIN
    },
    Mutant {
        name: "dropping-a-client-waits",
        promise: "Dropping never waits",
        edits: &[Edit {
            file: RUNTIME,
            find: "let _ = nobody_left.send(client);",
            replace: "let _ = self.handle.block_on(client.close(Duration::MAX));
            drop(nobody_left);",
        }],
        tests: threads(&["dropping_never_waits_and_works_on_an_async_worker_and_outside"]),
        ..PLAIN
    },
];
