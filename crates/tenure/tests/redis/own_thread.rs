//! `Settings::own_thread` on Redis: a program keeps its lock while it blocks its runtime for longer than the lease.
//! `engine/close.rs` tests this without connections.

use std::time::Duration;

use tenure::inspect::Query;
use tenure::{Client, Guard, LockKey, Settings};
use tenure_servers::Redis;
use tokio::runtime::Runtime;

const LEASE: Duration = Duration::from_secs(4);

/// A program on a current-thread runtime. The tests block its thread.
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

    /// Blocks the program for `blocked`. Returns true if the lock is still held then.
    fn is_held_after(&self, blocked: Duration) -> bool {
        self.runtime.block_on(async {
            // sleep: the test blocks the program's only thread on purpose.
            std::thread::sleep(blocked);
            self.guard.is_held()
        })
    }
}

#[test]
fn a_lock_is_kept_while_the_program_blocks_its_runtime() {
    let server = Redis::start().expect("Redis starts");
    let program = Program::start(&server);
    assert!(program.is_held_after(LEASE * 5 / 4), "{:?}", program.guard);
    let closed = program.runtime.block_on(program.client.close(LEASE));
    assert!(closed.is_ok(), "{closed:?}");
}

/// The call that finds a broken connection opens a new one, whose tasks must run on the client's thread.
#[test]
fn a_replaced_connection_runs_on_the_clients_thread() {
    let server = Redis::start().expect("Redis starts");
    let program = Program::start(&server);
    server
        .ask(&["CLIENT", "KILL", "TYPE", "normal"])
        .expect("the server answers");
    program.runtime.block_on(async {
        let key = LockKey::new("k").expect("a short text");
        // Retries, because the first call may find the connection broken.
        while program.client.inspect(Query::Key(key.clone())).await.is_err() {}
    });
    assert!(program.is_held_after(LEASE * 5 / 4), "{:?}", program.guard);
}
