//! A Redis server, three shops and the load, each a process: what the books say of each trial.
//! Not here: the statements alone (`fence.rs`).
#![cfg(unix)]

#[path = "../../scene.rs"]
mod scene;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use rusqlite::Connection;
use rustix::process::Signal;
use scene::{LIMIT, Process, Scene, assert_is_one_line_in_words, wait_for};
use tenure_servers::Redis;

const PROGRAM: &str = env!("CARGO_BIN_EXE_flash-sale");

/// Three shops that share a stock and a lock store.
struct Sale {
    scene: Scene,
    redis: Redis,
    processes: [Process; 3],
    /// Where they listen.
    shops: [String; 3],
}

impl Sale {
    fn open() -> Sale {
        Sale::open_with("30s")
    }

    /// With that lease.
    fn open_with(lease: &str) -> Sale {
        let (scene, redis) = (Scene::new(), Redis::start().unwrap());
        let start = || shop(&scene, &redis, "127.0.0.1:0", lease);
        // All at once: they also share the making of the tables.
        let processes = [start(), start(), start()];
        let address = |shop: &Process| shop.line_with("listening on ")["listening on ".len()..].to_owned();
        Sale {
            shops: processes.each_ref().map(address),
            processes,
            scene,
            redis,
        }
    }

    /// What the shops and the load have written to stderr.
    fn faults(&self) -> String {
        fs::read_to_string(self.scene.path("stderr")).unwrap()
    }

    fn load(&self, trials: &[&str]) -> Process {
        let mut command = self.scene.command(PROGRAM);
        command.args(["load", &self.shops.join(",")]).args(trials);
        Process::start(command)
    }

    /// Runs one trial; answers its line of the table, which must say what the shops' own database does, and the words below.
    fn run(&self, trial: &str) -> (Row, String) {
        let mut load = self.load(&[trial]);
        let row = Row::read(&load.line_with(trial));
        let words = load.rest().join("\n");
        assert_eq!(load.exit_code(), 0, "the load finds its promise kept: {row:?}");
        let books = "SELECT (SELECT count(*) FROM orders), (SELECT sum(items) FROM stock)";
        let books = self
            .database()
            .query_row(books, [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(books, Ok((row.sold, row.left)));
        (row, words)
    }

    fn database(&self) -> Connection {
        Connection::open(self.scene.path("shop.db")).unwrap()
    }
}

fn shop(scene: &Scene, redis: &Redis, address: &str, lease: &str) -> Process {
    let mut command = scene.command(PROGRAM);
    command
        .args(["shop", address, "shop.db", lease])
        .env("TENURE_URL", redis.url());
    Process::start(command)
}

/// A line of the table, as far as it is counted.
#[derive(Debug)]
struct Row {
    sold: i64,
    left: i64,
    oversold: i64,
    lost: i64,
    sold_out: i64,
    turned_away: i64,
    refused: i64,
    at_once: i64,
}

impl Row {
    fn read(line: &str) -> Row {
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words.len(), 10, "{line}");
        let count = |n: usize| words[n].parse().unwrap_or_else(|_| panic!("{n} of {line}"));
        Row {
            sold: count(1),
            left: count(2),
            oversold: count(3),
            lost: count(4),
            sold_out: count(5),
            turned_away: count(6),
            refused: count(7),
            at_once: count(8),
        }
    }

    /// All is sold, and no more than there was.
    fn balances(&self) {
        assert_eq!(
            (self.sold, self.left, self.oversold, self.lost),
            (100, 0, 0, 0),
            "{self:?}"
        );
    }
}

/// Sends one request, and does not wait for the reply.
fn send(shop: &str, what: &str, header: &str) -> TcpStream {
    let mut stream = TcpStream::connect(shop).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let request = format!("{what} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Sends one request; answers the status, the head and the body of the reply.
fn ask(shop: &str, what: &str, header: &str) -> (u16, String, String) {
    let mut stream = send(shop, what, header);
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

/// Waits until a buyer thinks in that shop.
fn wait_for_a_thinker(shop: &str) {
    wait_for("a buyer who thinks", || {
        ask(shop, "GET /till", "").2.contains("thinking 1\n")
    });
}

#[test]
fn without_the_lock_three_shops_oversell_and_with_it_the_books_balance() {
    let sale = Sale::open();
    let (unlocked, _) = sale.run("unlocked");
    assert!(unlocked.oversold > 0 && unlocked.lost > 0, "{unlocked:?}");
    let (locked, _) = sale.run("locked");
    locked.balances();
    assert_eq!((locked.sold_out, locked.at_once), (50, 1), "{locked:?}");
}

#[test]
fn ten_shelves_are_sold_from_at_once_and_their_books_balance() {
    let sale = Sale::open();
    let mut load = sale.load(&["fenced", "striped"]);
    let [fenced, striped] = ["fenced", "striped"].map(|trial| Row::read(&load.line_with(trial)));
    fenced.balances();
    striped.balances();
    // What makes the gain. The gain itself is a time, and other work on the machine is in it.
    assert!(
        fenced.at_once == 1 && striped.at_once > 1,
        "{fenced:?}, {striped:?}"
    );
    let gain = load.line_with("striped: ");
    assert!(gain.ends_with(" times the orders a second of fenced"), "{gain}");
    load.rest();
    assert_eq!(load.exit_code(), 0);
}

#[test]
fn a_shop_paused_beyond_its_lease_oversells_unless_it_is_fenced() {
    let sale = Sale::open_with("2s");
    let (locked, words) = sale.run("locked-paused");
    // It wrote over the forty sales of the others.
    assert_eq!(
        (locked.sold, locked.oversold, locked.lost),
        (140, 40, 40),
        "{locked:?}"
    );
    let (fenced, again) = sale.run("fenced-paused");
    fenced.balances();
    assert_eq!(fenced.refused, 1, "the sale of the paused shop: {fenced:?}");
    let order = "the lock was lost: its lease ended; and when he asked again: order 41";
    assert!(words.ends_with(&format!("{order}, as before")), "{words}");
    assert!(
        again.ends_with(order),
        "his sale was refused, and this is another: {again}"
    );
    for trial in [locked, fenced] {
        assert_eq!(trial.turned_away, 10, "those who do not wait: {trial:?}");
    }
}

#[test]
fn a_buyer_is_told_to_try_later_when_the_lock_is_busy_for_longer_than_he_waits() {
    let sale = Sale::open();
    let [first, second, _] = &sale.shops;
    assert_eq!(ask(first, "POST /restock/locked", "").0, 200);
    thread::scope(|threads| {
        let slow = threads.spawn(|| ask(first, "POST /buy/locked/slow", "Think: 3s\r\n"));
        wait_for_a_thinker(first);
        for patience in ["0s", "50ms"] {
            let (status, head, body) = ask(
                second,
                "POST /buy/locked/ann",
                &format!("Patience: {patience}\r\n"),
            );
            assert_eq!((status, body.as_str()), (503, "sold out, try later\n"));
            assert!(head.contains("retry-after: 1"), "{head}");
        }
        assert_eq!(slow.join().unwrap().0, 201);
    });
    assert_eq!(ask(second, "POST /buy/locked/ann", "").0, 201, "it is free again");
}

#[test]
fn a_buyer_who_gives_up_in_the_middle_of_his_sale_does_not_take_the_lock_along() {
    let sale = Sale::open();
    let [first, second, _] = &sale.shops;
    assert_eq!(ask(first, "POST /restock/locked", "").0, 200);
    let early = send(first, "POST /buy/locked/early", "Think: 1s\r\n");
    wait_for_a_thinker(first);
    drop(early);
    // Replies to others: the shop has had its turns, and has seen that he is gone.
    for _ in 0..20 {
        assert_eq!(ask(first, "GET /books", "").0, 200);
    }
    assert_eq!(ask(second, "POST /buy/locked/ann", "").2, "order 2\n");
    assert_eq!(ask(second, "GET /books", "").2, "sold 2\nleft 98\n");
}

#[test]
fn a_buyer_has_one_order_however_often_and_wherever_he_asks() {
    let sale = Sale::open();
    for way in ["locked", "fenced", "striped"] {
        assert_eq!(ask(&sale.shops[0], &format!("POST /restock/{way}"), "").0, 200);
        let mut replies: Vec<_> = thread::scope(|threads| {
            let ask = |n: usize| {
                let shop = &sale.shops[n % 3];
                threads.spawn(move || ask(shop, &format!("POST /buy/{way}/ann"), ""))
            };
            let asked: Vec<_> = (0..9).map(ask).collect();
            let replies = asked.into_iter().map(|reply| reply.join().unwrap());
            replies.map(|(status, _, body)| (status, body)).collect()
        });
        replies.sort();
        assert_eq!(replies.pop().unwrap(), (201, "order 1\n".to_owned()));
        assert_eq!(replies, vec![(200, "order 1, as before\n".to_owned()); 8]);
        assert_eq!(ask(&sale.shops[1], "GET /books", "").2, "sold 1\nleft 99\n");
        sale.database().execute("UPDATE stock SET items = 0", []).unwrap();
        let late = ask(&sale.shops[2], &format!("POST /buy/{way}/ann"), "");
        assert_eq!(late.2, "order 1, as before\n", "also when all is sold");
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_an_empty_stock_is_sold_out() {
    let sale = Sale::open();
    let shop = &sale.shops[0];
    assert_eq!(
        ask(shop, "POST /buy/fenced/ann", "").0,
        410,
        "it was never restocked"
    );
    assert_eq!(ask(shop, "POST /buy/striped/ann", "").0, 410);
    assert_eq!(ask(shop, "POST /buy/somehow/ann", "").0, 400);
    assert_eq!(ask(shop, "POST /buy/locked/ann", "Think: long\r\n").0, 400);
    assert_eq!(ask(shop, "POST /restock/somehow", "").0, 400);
}

#[test]
fn a_shop_that_is_asked_to_stop_ends_its_sale_and_gives_its_lock_back() {
    let mut sale = Sale::open();
    ask(&sale.shops[0], "POST /restock/locked", "");
    for (n, signal) in [Signal::INT, Signal::TERM].into_iter().enumerate() {
        let shop = &sale.shops[n];
        thread::scope(|threads| {
            let what = format!("POST /buy/locked/buyer-{n}");
            let sold = threads.spawn(move || ask(shop, &what, "Think: 200ms\r\n"));
            wait_for_a_thinker(shop);
            sale.processes[n].send(signal);
            assert_eq!(sold.join().unwrap().0, 201);
        });
        assert_eq!(sale.processes[n].exit_code(), 0);
        assert_eq!(sale.redis.ask(&["EXISTS", "flash-sale"]).unwrap(), "0");
    }
}

#[test]
fn a_load_that_is_interrupted_lets_the_paused_shop_go_on() {
    let sale = Sale::open();
    let mut load = sale.load(&["fenced-paused"]);
    let shop = &sale.shops[0];
    let stat = format!("/proc/{}/stat", sale.processes[0].pid());
    wait_for("the pause", || {
        fs::read_to_string(&stat).unwrap().contains(") T ")
    });
    load.send(Signal::TERM);
    assert_eq!(load.exit_code(), 1);
    assert_eq!(ask(shop, "GET /till", "").0, 200);
}

#[test]
fn the_load_waits_for_a_shop_that_opens_after_it_has_come() {
    let mut sale = Sale::open();
    let late = TcpListener::bind("127.0.0.1:0").unwrap();
    sale.shops[2] = late.local_addr().unwrap().to_string();
    let mut load = sale.load(&["locked"]);
    // It has come to the door, and is sent away.
    drop(late.accept().unwrap());
    drop(late);
    let _late = shop(&sale.scene, &sale.redis, &sale.shops[2], "30s");
    Row::read(&load.line_with("locked")).balances();
    load.rest();
    assert_eq!(load.exit_code(), 0);
}

#[test]
fn the_load_says_in_words_which_shop_does_not_answer() {
    let mut sale = Sale::open();
    // Nobody listens at this port.
    sale.shops[1] = "127.0.0.1:1".to_owned();
    let mut load = sale.load(&["locked"]);
    assert_eq!((load.rest(), load.exit_code()), (Vec::new(), 1));
    let said = sale.faults();
    assert!(
        said.starts_with("error: the shop 127.0.0.1:1 has not answered for 10 s: "),
        "{said}"
    );
    assert_is_one_line_in_words(&said);
}

#[test]
fn who_says_nothing_to_do_is_told_what_there_is() {
    let scene = Scene::new();
    let mut program = Process::start(scene.command(PROGRAM));
    assert_eq!((program.rest(), program.exit_code()), (Vec::new(), 1));
    let said = fs::read_to_string(scene.path("stderr")).unwrap();
    let words = "error: this makes no sense\n\nusage: flash-sale shop ADDRESS DATABASE [LEASE]\n       flash-sale load ";
    assert!(said.starts_with(words), "{said}");
}

#[test]
fn a_shop_writes_down_why_its_store_failed() {
    let mut sale = Sale::open();
    assert_eq!(ask(&sale.shops[0], "POST /restock/locked", "").0, 200);
    sale.redis.process().stop();
    let (status, _, body) = ask(&sale.shops[0], "POST /buy/locked/ann", "Patience: 1s\r\n");
    assert_eq!((status, body.as_str()), (500, "the store failed\n"));
    let said = sale.faults();
    assert!(
        said.starts_with("a sale failed: the store failed: Redis at "),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}
