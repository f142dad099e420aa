//! Two servers, one lock store and one database: a request that comes many times at once is charged once.
//! Not here: a server that dies between charge and answer, which is the payment provider's to survive.
#![cfg(unix)]

#[path = "../../scene.rs"]
mod scene;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Barrier;
use std::thread;

use rustix::process::Signal;
use scene::{LIMIT, Process, Scene};

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

/// Sends one order; answers the status and the body of the reply.
fn order(address: &str, header: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /orders HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n{header}Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap();
    (status.parse().unwrap(), body.to_owned())
}

fn charges(scene: &Scene, key: &str) -> i64 {
    let shop = rusqlite::Connection::open(scene.path("shop.db")).unwrap();
    let sql = "SELECT count(*) FROM charges WHERE key = ?1";
    shop.query_row(sql, [key], |row| row.get(0)).unwrap()
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
                order(address, "Idempotency-Key: seven\r\n", "2 shoes")
            })
        };
        let sent: Vec<_> = (0..50).map(send).collect();
        sent.into_iter().map(|reply| reply.join().unwrap()).collect()
    });
    let one = (201, "charged: number 1 for 2 shoes\n".to_owned());
    assert_eq!(replies, BTreeSet::from([one.clone()]));
    assert_eq!(charges(&scene, "seven"), 1);

    for server in &mut servers {
        let again = order(&server.address, "Idempotency-Key: seven\r\n", "2 shoes");
        assert_eq!(again, one, "the answer is kept");
        server.process.send(Signal::INT);
        assert_eq!(server.process.exit_code(), 0);
    }
}

#[test]
fn requests_with_keys_of_their_own_are_charged_each() {
    let scene = Scene::new();
    let server = server(&scene);
    for (number, key) in [(1, "a"), (2, "b")] {
        let (status, body) = order(&server.address, &format!("Idempotency-Key: {key}\r\n"), "socks");
        assert_eq!(
            (status, body),
            (201, format!("charged: number {number} for socks\n"))
        );
        assert_eq!(charges(&scene, key), 1);
    }
}

#[test]
fn a_request_without_a_usable_key_is_refused_and_not_charged() {
    let scene = Scene::new();
    let server = server(&scene);
    let too_long = "k".repeat(300);
    assert_eq!(order(&server.address, "", "socks").0, 400);
    assert_eq!(
        order(
            &server.address,
            &format!("Idempotency-Key: {too_long}\r\n"),
            "socks"
        )
        .0,
        400
    );
    assert_eq!(charges(&scene, &too_long), 0);
}
