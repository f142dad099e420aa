//! Runs a Redis server, three shops and the load, and checks the counts of each trial.
#![cfg(unix)]

#[path = "../../fixture.rs"]
mod fixture;
#[path = "../../http.rs"]
mod http;

use std::net::TcpListener;
use std::{fs, thread};

use fixture::{Fixture, Process, wait_for};
use http::{Reply, send};
use rusqlite::Connection;
use rustix::process::Signal;
use tenure_servers::Redis;

const PROGRAM: &str = env!("CARGO_BIN_EXE_flash-sale");

struct Sale {
    fixture: Fixture,
    redis: Redis,
    processes: [Process; 3],
    shops: [String; 3],
}

impl Sale {
    /// Starts shops whose locks have this lease.
    fn open(lease: &str) -> Sale {
        let (fixture, redis) = (Fixture::new(), Redis::start().unwrap());
        let start = || shop(&fixture, &redis, "127.0.0.1:0", lease);
        // Started at once, so that the shops also compete to create the tables.
        let processes = [start(), start(), start()];
        let address = |shop: &Process| shop.line_with("listening on ")["listening on ".len()..].to_owned();
        Sale {
            shops: processes.each_ref().map(address),
            processes,
            fixture,
            redis,
        }
    }

    fn load(&self, trials: &[&str]) -> Process {
        let mut command = self.fixture.command(PROGRAM);
        command.args(["load", &self.shops.join(",")]).args(trials);
        Process::start(command)
    }

    /// Runs one trial. Compares its counts with the database. Returns the counts, and the lines printed after them.
    fn run(&self, trial: &str) -> ([i64; 7], String) {
        let mut load = self.load(&[trial]);
        let line = load.line_with(trial);
        let words = load.rest().join("\n");
        assert_eq!(load.exit_code(), 0, "the load finds its promise kept: {line}");
        let books = "SELECT (SELECT count(*) FROM orders), (SELECT sum(items) FROM stock)";
        let books = self
            .database()
            .query_row(books, [], |row| Ok([row.get::<_, i64>(0)?, row.get(1)?]));
        let counts = counts(&line);
        assert_eq!(books.unwrap(), counts[..2], "{line}");
        (counts, words)
    }

    fn database(&self) -> Connection {
        Connection::open(self.fixture.path("shop.db")).unwrap()
    }
}

fn shop(fixture: &Fixture, redis: &Redis, address: &str, lease: &str) -> Process {
    let mut command = fixture.command(PROGRAM);
    command
        .args(["shop", address, "shop.db", lease])
        .env("TENURE_URL", redis.url());
    Process::start(command)
}

/// The seven counts in a line that `load.rs` prints, in the order of its header: `sold` to `at once`.
fn counts(line: &str) -> [i64; 7] {
    let words: Vec<_> = line.split_whitespace().collect();
    std::array::from_fn(|n| words[n + 1].parse().unwrap())
}

/// `sold`, `left`, `oversold` and `updates lost`, if each item was sold once.
const BALANCED: [i64; 4] = [100, 0, 0, 0];

fn ask(shop: &str, what: &str, headers: &str) -> Reply {
    http::ask(shop, what, headers, "")
}

fn wait_for_a_thinker(shop: &str) {
    wait_for("a buyer who thinks", || {
        ask(shop, "GET /till", "").body.contains("thinking 1\n")
    });
}

#[test]
fn shops_oversell_only_without_the_lock() {
    let sale = Sale::open("30s");
    let (unlocked, _) = sale.run("unlocked");
    let [_, _, oversold, lost, ..] = unlocked;
    assert!(oversold > 0 && lost > 0, "{unlocked:?}");
    let (locked, _) = sale.run("locked");
    let [.., sold_out, _, at_once] = locked;
    assert_eq!(locked[..4], BALANCED);
    assert_eq!((sold_out, at_once), (50, 1));
}

#[test]
fn ten_shelves_sell_concurrently_and_balance() {
    let sale = Sale::open("30s");
    let [fenced, striped] = ["fenced", "striped"].map(|trial| sale.run(trial).0);
    assert_eq!([&fenced[..4], &striped[..4]], [BALANCED, BALANCED]);
    // Compares the counts `at once` (the most buyers that think at the same time), not the speed, which depends on
    // the machine's load.
    let ([.., one], [.., many]) = (fenced, striped);
    assert!(one == 1 && many > 1, "at once: {one}, {many}");
}

#[test]
fn a_paused_shop_oversells_only_without_a_fence() {
    let sale = Sale::open("2s");
    let (locked, words) = sale.run("locked-paused");
    let [_, _, oversold, lost, ..] = locked;
    assert_eq!(
        (oversold, lost),
        (40, 40),
        "it wrote over the sales of the others"
    );
    let (fenced, again) = sale.run("fenced-paused");
    assert_eq!(fenced[..4], BALANCED);
    let [.., refused, _] = fenced;
    assert_eq!(refused, 1, "the sale of the paused shop");
    let order = "the lock on \"flash-sale\" was lost: its lease ended; and in its second request: order 41";
    assert!(words.ends_with(&format!("{order}, as before")), "{words}");
    assert!(again.ends_with(order), "this is another order: {again}");
}

#[test]
fn a_buyer_gets_503_if_the_lock_stays_busy() {
    let sale = Sale::open("30s");
    let [first, second, _] = &sale.shops;
    assert_eq!(ask(first, "POST /restock/locked", "").status, 200);
    thread::scope(|threads| {
        let slow = threads.spawn(|| ask(first, "POST /buy/locked/slow", "think: 8s\r\n"));
        wait_for_a_thinker(first);
        for patience in ["patience: 0s\r\n", "patience: 2s\r\n"] {
            let busy = ask(second, "POST /buy/locked/ann", patience);
            assert_eq!((busy.status, busy.body.as_str()), (503, "sold out, try later\n"));
            assert!(busy.head.contains("retry-after: 1"), "{busy:?}");
        }
        assert_eq!(slow.join().unwrap().status, 201);
    });
    assert_eq!(
        ask(second, "POST /buy/locked/ann", "").status,
        201,
        "it is free again"
    );
}

#[test]
fn a_buyer_that_disconnects_does_not_release_the_lock() {
    let sale = Sale::open("30s");
    let [first, second, _] = &sale.shops;
    assert_eq!(ask(first, "POST /restock/locked", "").status, 200);
    let early = send(first, "POST /buy/locked/early", "think: 3s\r\n", "");
    wait_for_a_thinker(first);
    drop(early);
    // These requests give the server time to notice the closed connection.
    for _ in 0..20 {
        assert_eq!(ask(first, "GET /books", "").status, 200);
    }
    assert_eq!(ask(second, "POST /buy/locked/ann", "").body, "order 2\n");
    assert_eq!(ask(second, "GET /books", "").body, "sold 2\nleft 98\n");
}

#[test]
fn a_buyer_has_one_order_after_many_requests() {
    let sale = Sale::open("30s");
    for way in ["locked", "fenced", "striped"] {
        assert_eq!(
            ask(&sale.shops[0], &format!("POST /restock/{way}"), "").status,
            200
        );
        let buy = |n: usize| ask(&sale.shops[n % 3], &format!("POST /buy/{way}/ann"), "").body;
        let mut replies: Vec<_> = thread::scope(|threads| {
            let asked: Vec<_> = (0..9).map(|n| threads.spawn(move || buy(n))).collect();
            asked.into_iter().map(|reply| reply.join().unwrap()).collect()
        });
        replies.sort();
        assert_eq!(replies[0], "order 1\n");
        assert_eq!(replies[1..], ["order 1, as before\n"; 8]);
        assert_eq!(ask(&sale.shops[1], "GET /books", "").body, "sold 1\nleft 99\n");
        sale.database().execute("UPDATE stock SET items = 0", []).unwrap();
        assert_eq!(buy(2), "order 1, as before\n", "also when all is sold");
    }
}

#[test]
fn bad_requests_are_refused_and_empty_stock_is_sold_out() {
    let sale = Sale::open("30s");
    for (what, headers, status) in [
        ("POST /buy/fenced/ann", "", 410),
        ("POST /buy/striped/ann", "", 410),
        ("POST /buy/somehow/ann", "", 400),
        ("POST /buy/locked/ann", "think: long\r\n", 400),
        ("POST /restock/somehow", "", 400),
    ] {
        let reply = ask(&sale.shops[0], what, headers);
        assert_eq!(reply.status, status, "{what}: {}", reply.body);
    }
}

#[test]
fn a_stopping_shop_ends_its_sale_and_releases_its_lock() {
    let mut sale = Sale::open("30s");
    ask(&sale.shops[0], "POST /restock/locked", "");
    for (n, signal) in [Signal::INT, Signal::TERM].into_iter().enumerate() {
        let shop = &sale.shops[n];
        thread::scope(|threads| {
            let what = format!("POST /buy/locked/buyer-{n}");
            let sold = threads.spawn(move || ask(shop, &what, "think: 3s\r\n"));
            wait_for_a_thinker(shop);
            sale.processes[n].send(signal);
            assert_eq!(sold.join().unwrap().status, 201);
        });
        assert_eq!(sale.processes[n].exit_code(), 0);
        assert_eq!(sale.redis.ask(&["EXISTS", "flash-sale"]).unwrap(), "0");
    }
}

#[test]
fn an_interrupted_load_resumes_the_paused_shop() {
    let sale = Sale::open("30s");
    let mut load = sale.load(&["fenced-paused"]);
    let stat = format!("/proc/{}/stat", sale.processes[0].pid());
    wait_for("the pause", || {
        fs::read_to_string(&stat).unwrap().contains(") T ")
    });
    load.send(Signal::TERM);
    assert_eq!(load.exit_code(), 1);
    assert_eq!(ask(&sale.shops[0], "GET /till", "").status, 200);
}

#[test]
fn the_load_waits_for_a_shop_that_starts_late() {
    let mut sale = Sale::open("30s");
    let late = TcpListener::bind("127.0.0.1:0").unwrap();
    sale.shops[2] = late.local_addr().unwrap().to_string();
    let mut load = sale.load(&["locked"]);
    // The third shop does not run yet. The test listens at its address, and closes the load's first connection.
    drop(late.accept().unwrap());
    drop(late);
    let _late = shop(&sale.fixture, &sale.redis, &sale.shops[2], "30s");
    assert_eq!(counts(&load.line_with("locked"))[..4], BALANCED);
    load.rest();
    assert_eq!(load.exit_code(), 0);
}

#[test]
fn a_shop_logs_errors_of_its_store() {
    let mut sale = Sale::open("30s");
    assert_eq!(ask(&sale.shops[0], "POST /restock/locked", "").status, 200);
    sale.redis.process().stop();
    let reply = ask(&sale.shops[0], "POST /buy/locked/ann", "patience: 1s\r\n");
    assert_eq!(reply.status, 500);
    assert!(reply.body.starts_with("Redis at "), "{}", reply.body);
    let said = fs::read_to_string(sale.fixture.path("stderr")).unwrap();
    let begin = "a sale failed: Redis at ";
    assert!(said.starts_with(begin) && said.lines().count() == 1, "{said}");
}

#[test]
fn help_shows_the_usage() {
    fixture::assert_shows_its_usage(PROGRAM);
}

#[test]
fn unknown_arguments_are_refused_with_the_usage() {
    let output = std::process::Command::new(PROGRAM).arg("buy").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        printed.starts_with("error: no such arguments\n\nusage: flash-sale"),
        "{printed}"
    );
}
