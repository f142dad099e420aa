//! Blocking calls on threads of async runtimes: where they panic, where they work, and that dropping a guard never waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tenure::blocking::{self, multi};
use tokio::runtime::{Builder, Runtime};

use crate::fixture::{SOON, client, held, is_free, two_clients};

const SENTENCE: &str = "tenure::blocking was called on a thread that drives async tasks";

/// A runtime with two threads.
fn workers() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all();
    builder.build().expect("tokio starts")
}

/// A runtime with one thread.
fn alone() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().expect("tokio starts")
}

/// Runs `call` inside a task of the runtime, and returns the message with which it panics.
fn panic_inside(runtime: &Runtime, call: impl FnOnce() + Send + 'static) -> String {
    let failed = runtime.block_on(async { tokio::spawn(async move { call() }).await });
    let panic = failed.expect_err("the call panics").into_panic();
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
        .expect("a panic has a sentence")
}

#[test]
fn waiting_calls_panic_on_async_workers() {
    for runtime in [workers(), alone()] {
        let client = client();
        let held = Arc::new(client.mutex("held").lock().expect("it is free"));
        let [mutex, tried] = ["k", "k"].map(|key| client.mutex(key));
        let (guard, limited, closing) = (held.clone(), held.clone(), client.clone());
        let (mut changes, election) = (client.watch(""), client.election("chair"));
        let calls: [Box<dyn FnOnce() + Send>; 8] = [
            Box::new(|| drop(blocking::connect("memory:"))),
            Box::new(move || drop(mutex.lock())),
            Box::new(move || drop(tried.try_lock())),
            Box::new(move || drop(guard.lost())),
            Box::new(move || drop(limited.lost_within(SOON))),
            Box::new(move || drop(changes.next())),
            Box::new(move || drop(election.campaign())),
            Box::new(move || drop(closing.close(SOON))),
        ];
        for call in calls {
            let sentence = panic_inside(&runtime, call);
            assert!(sentence.starts_with(SENTENCE), "{sentence}");
        }
        let in_the_root = AssertUnwindSafe(|| runtime.block_on(async { drop(client.mutex("k").lock()) }));
        let root = catch_unwind(in_the_root);
        assert!(root.is_err(), "also in the task that block_on runs");
        assert!(held.is_held(), "what was refused did no harm");
        assert!(is_free(&client, "k"));
    }
}

#[test]
fn unlocking_on_an_async_worker_still_releases() {
    let runtime = alone();
    let client = client();
    let guard = client.mutex("k").lock().expect("it is free");
    let sentence = panic_inside(&runtime, move || drop(guard.unlock()));
    assert!(sentence.starts_with(SENTENCE), "{sentence}");
    drop(
        client
            .mutex("k")
            .lock_within(SOON)
            .expect("the lock was released"),
    );
}

#[test]
fn calls_work_inside_spawn_blocking_and_block_in_place() {
    let runtime = workers();
    let client = client();
    runtime.block_on(async {
        let mutex = client.mutex("k");
        let in_a_blocking_thread = tokio::task::spawn_blocking(move || {
            let guard = mutex.lock().expect("it is free");
            let client = blocking::connect("memory:").expect("memory is always there");
            held(client.mutex("own")).unlock().expect("it is held");
            guard.unlock().expect("it is held");
        });
        in_a_blocking_thread.await.expect("it does not panic");
        let mutex = client.mutex("k");
        let in_place = tokio::spawn(async move {
            tokio::task::block_in_place(|| mutex.lock().expect("it is free").unlock().expect("it is held"));
        });
        in_place.await.expect("it does not panic");
    });
    let entered = runtime.enter();
    let guard = client.mutex("k").lock();
    let guard = guard.expect("a thread that only entered a runtime may wait");
    guard.unlock().expect("it is held");
    drop(entered);
}

#[test]
fn dropping_a_guard_never_waits_on_any_thread() {
    let (one, other) = two_clients();
    let outside = one.mutex("outside").lock().expect("it is free");
    let inside = one.mutex("inside").lock().expect("it is free");
    let both = multi([one.mutex("a"), one.mutex("b")]).lock();
    let both = both.expect("they are free");
    drop(outside);
    alone().block_on(async move {
        drop((inside, both));
        drop(one);
    });
    for key in ["outside", "inside", "a", "b"] {
        drop(other.mutex(key).lock_within(SOON).expect("the lock was released"));
    }
}
