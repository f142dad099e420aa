//! Two servers, one lock store and one database: a request is charged once, however often it comes, whoever gives up.
#![cfg(unix)]

#[path = "../../http.rs"]
mod http;
#[path = "../../scene.rs"]
mod scene;

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;

use http::LIMIT;
use rusqlite::Connection;
use rustix::process::Signal;
use scene::{Process, Scene, wait_for};
use tenure::{LockKey, Query};
use tokio::runtime::Builder;

struct Server {
    process: Process,
    address: String,
}

fn server(scene: &Scene) -> Server {
    let mut command = scene.command(env!("CARGO_BIN_EXE_web-once"));
    command.args(["127.0.0.1:0", "shop.db"]);
    let process = Process::start(command);
    let line = process.line_with("listening on ");
    let address = line.rsplit(' ').next().unwrap().to_owned();
    Server { process, address }
}

/// The header of most orders, and the answer to each.
const SEVEN: &str = "idempotency-key: seven\r\n";

fn charged_once() -> (u16, String) {
    (201, "charged: number 1 for 2 shoes\n".to_owned())
}

/// Sends one order; answers the status and the body of the reply.
fn order(address: &str, headers: &str, body: &str) -> (u16, String) {
    let reply = http::ask(address, "POST /orders", headers, body);
    (reply.status, reply.body)
}

fn shop(scene: &Scene) -> Connection {
    Connection::open(scene.path("shop.db")).unwrap()
}

fn charges(scene: &Scene, key: &str) -> i64 {
    count(&shop(scene), "charges", key)
}

fn count(shop: &Connection, table: &str, key: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table} WHERE key = ?1");
    shop.query_row(&sql, [key], |row| row.get(0)).unwrap()
}

#[test]
fn a_request_that_comes_fifty_times_at_once_to_two_servers_is_charged_once() {
    let scene = Scene::new();
    let mut servers = [server(&scene), server(&scene)];
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
    assert_eq!(charges(&scene, "seven"), 1);

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

/// A client sends an order, and gives up in the middle of its charge, which ends when the answered
/// transaction does.
fn give_up(scene: &Scene, server: &Server) -> Connection {
    let slow = shop(scene);
    slow.execute_batch("BEGIN IMMEDIATE").unwrap();
    let early = http::send(&server.address, "POST /orders", SEVEN, "2 shoes");
    wait_for("the lock on the order", || is_held(scene, "order:seven"));
    drop(early);
    // Replies to others: the server has had its turns, and has seen that the client is gone.
    for _ in 0..20 {
        assert_eq!(order(&server.address, "", "socks").0, 400);
    }
    slow
}

#[test]
fn a_client_that_gives_up_and_comes_again_is_charged_once() {
    let scene = Scene::new();
    let servers = [server(&scene), server(&scene)];
    let slow = give_up(&scene, &servers[0]);
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
    assert_eq!(charges(&scene, "seven"), 1);
}

#[test]
fn the_answer_to_a_client_that_has_gone_is_kept() {
    let scene = Scene::new();
    let server = server(&scene);
    let slow = give_up(&scene, &server);
    slow.execute_batch("COMMIT").unwrap();
    wait_for("the answer", || count(&slow, "answers", "seven") == 1);
    assert_eq!(charges(&scene, "seven"), 1);
}

#[test]
fn an_order_whose_server_died_between_charge_and_answer_is_answered_and_not_charged_again() {
    let scene = Scene::new();
    let server = server(&scene);
    let charged = "INSERT INTO charges (key, body) VALUES ('seven', '2 shoes')";
    shop(&scene).execute(charged, []).unwrap();
    assert_eq!(order(&server.address, SEVEN, "2 shoes"), charged_once());
    assert_eq!(charges(&scene, "seven"), 1);
}

/// Asks the lock store.
fn is_held(scene: &Scene, key: &str) -> bool {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = tenure::connect(&scene.url()).await.unwrap();
        let asked = locks.inspect(Query::Key(LockKey::new(key).unwrap())).await;
        locks.close(LIMIT).await.unwrap();
        !asked.unwrap().items.is_empty()
    })
}

#[test]
fn requests_with_keys_of_their_own_are_charged_each() {
    let scene = Scene::new();
    let server = server(&scene);
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
    let scene = Scene::new();
    let server = server(&scene);
    let too_long = "k".repeat(300);
    for header in [String::new(), format!("idempotency-key: {too_long}\r\n")] {
        assert_eq!(order(&server.address, &header, "socks").0, 400, "{header}");
    }
    assert_eq!(charges(&scene, &too_long), 0);
}

#[test]
fn a_redis_may_be_its_lock_store() {
    scene::assert_speaks_redis(env!("CARGO_BIN_EXE_web-once"), &["127.0.0.1:0", "shop.db"]);
}
