//! Two servers share a lock store and a database: an order is charged once, even if clients give up and repeat it.
#![cfg(unix)]

#[path = "../../fixture.rs"]
mod fixture;
#[path = "../../http.rs"]
mod http;

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::sync::Barrier;
use std::thread;

use fixture::{Fixture, Process, wait_for};
use http::LIMIT;
use rusqlite::Connection;
use rustix::process::Signal;
use tenure::LockKey;
use tenure::inspect::Query;
use tokio::runtime::Builder;

struct Server {
    process: Process,
    address: String,
}

fn server(fixture: &Fixture) -> Server {
    let mut command = fixture.command(env!("CARGO_BIN_EXE_web-once"));
    command.args(["127.0.0.1:0", "shop.db"]);
    let process = Process::start(command);
    let line = process.line_with("listening on ");
    let address = line.rsplit(' ').next().unwrap().to_owned();
    Server { process, address }
}

/// Header of most orders in these tests.
const SEVEN: &str = "idempotency-key: seven\r\n";

fn charged_once() -> (u16, String) {
    (201, "charged: number 1 for 2 shoes\n".to_owned())
}

fn order(address: &str, headers: &str, body: &str) -> (u16, String) {
    let reply = http::ask(address, "POST /orders", headers, body);
    (reply.status, reply.body)
}

fn shop(fixture: &Fixture) -> Connection {
    Connection::open(fixture.path("shop.db")).unwrap()
}

fn charges(fixture: &Fixture, key: &str) -> i64 {
    count(&shop(fixture), "charges", key)
}

fn count(shop: &Connection, table: &str, key: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table} WHERE key = ?1");
    shop.query_row(&sql, [key], |row| row.get(0)).unwrap()
}

#[test]
fn fifty_concurrent_requests_are_charged_once() {
    let fixture = Fixture::new();
    let mut servers = [server(&fixture), server(&fixture)];
    let at_once = Barrier::new(50);
    let replies: BTreeSet<_> = thread::scope(|threads| {
        let send = |n: usize| {
            let (address, at_once) = (&servers[n % 2].address, &at_once);
            threads.spawn(move || {
                at_once.wait();
                order(address, SEVEN, "2 shoes")
            })
        };
        let sent: Vec<_> = (0..50).map(send).collect();
        sent.into_iter().map(|reply| reply.join().unwrap()).collect()
    });
    assert_eq!(replies, BTreeSet::from([charged_once()]));
    assert_eq!(charges(&fixture, "seven"), 1);

    for (server, signal) in servers.iter_mut().zip([Signal::INT, Signal::TERM]) {
        assert_eq!(
            order(&server.address, SEVEN, "2 shoes"),
            charged_once(),
            "the answer is kept"
        );
        server.process.send(signal);
        assert_eq!(server.process.exit_code(), 0);
    }
}

/// Sends an order, and closes the connection during its charge. The charge waits for the returned transaction to end.
fn give_up(fixture: &Fixture, server: &Server) -> Connection {
    let slow = shop(fixture);
    slow.execute_batch("BEGIN IMMEDIATE").unwrap();
    let early = http::send(&server.address, "POST /orders", SEVEN, "2 shoes");
    wait_for("the lock on the order", || is_held(fixture, "order:seven"));
    drop(early);
    // These requests give the server time to notice the closed connection.
    for _ in 0..20 {
        assert_eq!(order(&server.address, "", "socks").0, 400);
    }
    slow
}

#[test]
fn a_client_that_disconnects_and_retries_is_charged_once() {
    let fixture = Fixture::new();
    let servers = [server(&fixture), server(&fixture)];
    let slow = give_up(&fixture, &servers[0]);
    thread::scope(|threads| {
        let again = servers.each_ref().map(|server| {
            let address = &server.address;
            threads.spawn(|| order(address, SEVEN, "2 shoes"))
        });
        slow.execute_batch("COMMIT").unwrap();
        for reply in again {
            assert_eq!(reply.join().unwrap(), charged_once());
        }
    });
    assert_eq!(charges(&fixture, "seven"), 1);
}

#[test]
fn the_answer_to_a_disconnected_client_is_stored() {
    let fixture = Fixture::new();
    let server = server(&fixture);
    let slow = give_up(&fixture, &server);
    slow.execute_batch("COMMIT").unwrap();
    wait_for("the answer", || count(&slow, "answers", "seven") == 1);
    assert_eq!(charges(&fixture, "seven"), 1);
}

#[test]
fn a_stopped_server_finishes_the_charge_of_a_disconnected_client() {
    let fixture = Fixture::new();
    let mut server = server(&fixture);
    let slow = give_up(&fixture, &server);
    server.process.send(Signal::TERM);
    wait_for("the end of serving", || {
        TcpStream::connect(&server.address).is_err()
    });
    slow.execute_batch("COMMIT").unwrap();
    assert_eq!(server.process.exit_code(), 0);
    assert_eq!(count(&slow, "answers", "seven"), 1);
    assert!(!is_held(&fixture, "order:seven"));
}

#[test]
fn a_retry_after_a_server_died_is_not_charged_again() {
    let fixture = Fixture::new();
    let server = server(&fixture);
    let charged = "INSERT INTO charges (key, body) VALUES ('seven', '2 shoes')";
    shop(&fixture).execute(charged, []).unwrap();
    assert_eq!(order(&server.address, SEVEN, "2 shoes"), charged_once());
    assert_eq!(charges(&fixture, "seven"), 1);
}

fn is_held(fixture: &Fixture, key: &str) -> bool {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = tenure::connect(&fixture.url()).await.unwrap();
        let asked = locks.inspect(Query::Key(LockKey::new(key).unwrap())).await;
        locks.close(LIMIT).await.unwrap();
        !asked.unwrap().items.is_empty()
    })
}

#[test]
fn requests_with_different_keys_are_charged_separately() {
    let fixture = Fixture::new();
    let server = server(&fixture);
    for (number, key) in [(1, "a"), (2, "b")] {
        let charged = (201, format!("charged: number {number} for socks\n"));
        assert_eq!(
            order(&server.address, &format!("idempotency-key: {key}\r\n"), "socks"),
            charged
        );
    }
}

#[test]
fn a_request_without_a_usable_key_is_refused_and_not_charged() {
    let fixture = Fixture::new();
    let server = server(&fixture);
    let too_long = "k".repeat(300);
    for header in [String::new(), format!("idempotency-key: {too_long}\r\n")] {
        assert_eq!(order(&server.address, &header, "socks").0, 400, "{header}");
    }
    assert_eq!(charges(&fixture, &too_long), 0);
}

#[test]
fn redis_works_as_the_lock_store() {
    fixture::assert_speaks_redis(env!("CARGO_BIN_EXE_web-once"), &["127.0.0.1:0", "shop.db"]);
}

#[test]
fn help_shows_the_usage() {
    fixture::assert_shows_its_usage(env!("CARGO_BIN_EXE_web-once"));
}
