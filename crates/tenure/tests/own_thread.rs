//! `Settings::own_thread`: a program may block its runtime for longer than its leases last, on a store with connections.
//! That the watchdog alone renews there is in `engine/close.rs`.

use std::time::Duration;

use tenure::{Client, Guard, LockKey, Query, Settings};
use tenure_servers::Redis;
use tokio::runtime::Runtime;

const LEASE: Duration = Duration::from_secs(1);

/// A program with one thread, which drives its tasks and blocks them.
struct Program {
    runtime: Runtime,
    client: Client,
    guard: Guard,
}

impl Program {
    fn start(server: &Redis) -> Program {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime for the test");
        let (client, guard) = runtime.block_on(async {
            let settings = Settings::default().own_thread(true);
            let client = tenure::connect_with(&server.url(), settings)
                .await
                .expect("the server runs");
            let guard = client.mutex("k").lease(LEASE).lock().await.expect("it is free");
            (client, guard)
        });
        Program {
            runtime,
            client,
            guard,
        }
    }

    /// Whether the lock is held after the program has blocked for so long.
    fn is_held_after(&self, blocked: Duration) -> bool {
        self.runtime.block_on(async {
            // sleep: the program blocks its only thread, which is what is tried.
            std::thread::sleep(blocked);
            self.guard.is_held()
        })
    }
}

#[test]
fn a_lock_is_kept_while_the_program_blocks_its_runtime() {
    let server = Redis::start().expect("Redis starts");
    let program = Program::start(&server);
    assert!(program.is_held_after(LEASE * 5 / 2), "{:?}", program.guard);
    let closed = program.runtime.block_on(program.client.close(LEASE));
    assert!(closed.is_ok(), "{closed:?}");
}

/// The call that finds a connection broken makes the next one: not on the runtime of whoever made that call.
#[test]
fn a_connection_that_a_caller_replaced_is_not_the_callers() {
    let server = Redis::start().expect("Redis starts");
    let program = Program::start(&server);
    server
        .ask(&["CLIENT", "KILL", "TYPE", "normal"])
        .expect("the server answers");
    program.runtime.block_on(async {
        let key = LockKey::new("k").expect("a short text");
        // The first may find it broken.
        while program.client.inspect(Query::Key(key.clone())).await.is_err() {}
    });
    assert!(program.is_held_after(LEASE * 5 / 2), "{:?}", program.guard);
}
