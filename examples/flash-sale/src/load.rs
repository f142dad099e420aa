//! The load: trials with many buyers at once, and the resulting counts of orders and items.
//!
//! In the paused trials a shop is stopped during a sale, for longer than its lease, while the others sell.

use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::Fault;
use crate::http::{LIMIT, Reply, request};
use crate::shop::ITEMS;

/// Number of buyers that come at once: more than there are items.
const BUYERS: usize = 150;
/// Number of buyers that come while a shop is paused.
const MEANWHILE: usize = 40;

/// Maximum number of requests of one buyer.
const TRIES: usize = 20;
/// Pause between two requests of one buyer, as in `Retry-After`.
const LATER: Duration = Duration::from_secs(1);

/// Request headers that say how long a buyer thinks. While the slow buyer thinks, the trial pauses the process of its shop.
const DECIDES_AT_ONCE: &str = "think: 0s\r\n";
const SLOW: &str = "think: 4s\r\n";

/// Time limit for a shop's first answer.
const OPENING: Duration = Duration::from_secs(10);
/// Pause between two requests to a shop's till.
const PAUSE: Duration = Duration::from_millis(5);

/// Trials: a way to sell, with `-paused` if a shop is paused meanwhile, and whether orders and items must add up.
const TRIALS: [(&str, bool); 6] = [
    ("unlocked", false),
    ("locked", true),
    ("fenced", true),
    ("striped", true),
    // A lock alone cannot stop the writes of a process that was paused for longer than its lease.
    ("locked-paused", false),
    ("fenced-paused", true),
];

/// Runs the given trials, or all if none is given. Prints a line of counts for each.
///
/// # Errors
/// A shop gives a wrong answer, or orders and items do not add up although they must.
pub(crate) async fn run(shops: &str, trials: &[&str]) -> Result<(), Fault> {
    let shops: Vec<String> = shops.split(',').map(str::to_owned).collect();
    if shops.len() < 2 {
        return Err("a sale needs two shops at least: HOST:PORT,HOST:PORT".into());
    }
    if let Some(unknown) = trials
        .iter()
        .find(|name| TRIALS.iter().all(|trial| trial.0 != **name))
    {
        return Err(format!("{unknown:?} is no trial").into());
    }
    for shop in &shops {
        wait_until(shop, OPENING, |_| true).await?;
    }
    println!("{} shops, {ITEMS} items\n", shops.len());
    println!("trial           sold  left  oversold  updates lost  sold out  refused  at once  orders/s");
    let mut words = Vec::new();
    for (name, must_balance) in TRIALS {
        if !trials.is_empty() && !trials.contains(&name) {
            continue;
        }
        let way = name.strip_suffix("-paused").unwrap_or(name);
        for shop in &shops {
            ask(shop, &format!("POST /restock/{way}"), "").await?;
        }
        let crowd = if way == name {
            crowd(way, "buyer", BUYERS, &shops, "").await?
        } else {
            let answer = pause_a_sale(way, &shops).await?;
            words.push(format!("{name}: the buyer of the paused shop got: {answer}"));
            crowd(way, "buyer", BUYERS, &shops, DECIDES_AT_ONCE).await?
        };
        let balances = print_books(name, &crowd, &shops).await?;
        if must_balance && !balances {
            return Err(format!("{name}: the orders and items do not add up").into());
        }
    }
    println!("\n{}", words.join("\n"));
    Ok(())
}

/// Stops the first shop in the middle of a sale until its lease has ended and the others have sold. Returns the answers
/// to its buyer.
async fn pause_a_sale(way: &str, shops: &[String]) -> Result<String, Fault> {
    let (first, others) = shops.split_first().ok_or("there is no shop")?;
    let what = format!("POST /buy/{way}/slow");
    let slow = tokio::spawn({
        let (first, what) = (first.clone(), what.clone());
        async move { ask(&first, &what, SLOW).await }
    });
    wait_until(first, LIMIT, |till| number(till, "thinking").ok() == Some(1)).await?;
    let pid = number(&ask(first, "GET /till", "").await?, "pid")?;
    let paused = Paused::stop(pid)?;
    // Buyers at other shops wait until the lease of the stopped shop has ended.
    crowd(way, "meanwhile", MEANWHILE, others, DECIDES_AT_ONCE).await?;
    let sold = number(&ask(&others[0], "GET /books", "").await?, "sold")?;
    if sold != MEANWHILE as i64 {
        return Err(format!("{sold} were sold to {MEANWHILE}: the shop was not paused in its sale").into());
    }
    drop(paused);
    let answer = slow.await??.body;
    // Waits for the end of the sale, because the buyer may learn earlier that the lock is lost.
    wait_until(first, LIMIT, |till| number(till, "thinking").ok() == Some(0)).await?;
    let again = ask(first, &what, "").await?.body;
    Ok(format!(
        "{}; and in its second request: {}",
        answer.trim(),
        again.trim()
    ))
}

#[derive(Default)]
struct Crowd {
    sold: usize,
    sold_out: usize,
    /// Time from the first request to the last order.
    took: Duration,
}

/// Sends buyers to the shops at once, each with a name of its own. Returns the counts of their answers.
async fn crowd(
    way: &str,
    name: &str,
    buyers: usize,
    shops: &[String],
    headers: &'static str,
) -> Result<Crowd, Fault> {
    let began = Instant::now();
    let mut buying = JoinSet::new();
    for (number, shop) in (0..buyers).zip(shops.iter().cycle()) {
        let what = format!("POST /buy/{way}/{name}-{number}");
        buying.spawn(buyer(shop.clone(), what, headers));
    }
    let mut crowd = Crowd::default();
    while let Some(reply) = buying.join_next().await {
        let reply = reply??;
        match reply.status {
            200 | 201 => {
                crowd.sold += 1;
                crowd.took = began.elapsed();
            }
            410 => crowd.sold_out += 1,
            status => return Err(format!("a buyer got: {status} {}", reply.body.trim()).into()),
        }
    }
    Ok(crowd)
}

/// One buyer, which tries again if the lock was busy, a later holder of the lock overtook the shop, or the result is
/// unknown. A buyer that already has an order gets that one.
async fn buyer(shop: String, what: String, headers: &'static str) -> io::Result<Reply> {
    for _ in 1..TRIES {
        let reply = ask(&shop, &what, headers).await?;
        if !matches!(reply.status, 409 | 500 | 503) {
            return Ok(reply);
        }
        sleep(LATER).await;
    }
    ask(&shop, &what, headers).await
}

/// Prints the line of a trial. Returns whether orders and items add up.
async fn print_books(name: &str, crowd: &Crowd, shops: &[String]) -> io::Result<bool> {
    let (mut refused, mut at_once) = (0, 0);
    for shop in shops {
        let till = ask(shop, "GET /till", "").await?;
        refused += number(&till, "overtaken")?;
        at_once = at_once.max(number(&till, "at-once")?);
    }
    let books = ask(&shops[0], "GET /books", "").await?;
    let (sold, left) = (number(&books, "sold")?, number(&books, "left")?);
    let oversold = (sold - ITEMS).max(0);
    // Each update that was overwritten leaves one item too many.
    let lost = sold + left - ITEMS;
    let sold_out = crowd.sold_out;
    let rate = crowd.sold as f64 / crowd.took.as_secs_f64();
    println!(
        "{name:<14}{sold:>6}{left:>6}{oversold:>10}{lost:>14}{sold_out:>10}{refused:>9}{at_once:>9}{rate:>10.0}"
    );
    Ok(lost == 0 && oversold == 0)
}

/// Sends a request to a shop over a new connection: `ask("127.0.0.1:8081", "GET /books", "")`.
async fn ask(shop: &str, what: &str, headers: &str) -> io::Result<Reply> {
    let exchange = async {
        let mut stream = TcpStream::connect(shop).await?;
        stream.write_all(request(what, headers, "").as_bytes()).await?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await?;
        Reply::read(&reply)
    };
    let reply = timeout(LIMIT, exchange)
        .await
        .unwrap_or_else(|late| Err(late.into()));
    reply.map_err(|error| io::Error::new(error.kind(), format!("{what} at {shop}: {error}")))
}

/// Returns the number in a reply's line `NAME NUMBER`.
fn number(reply: &Reply, name: &str) -> io::Result<i64> {
    let mut lines = reply.body.lines().filter_map(|line| line.split_once(' '));
    let number = lines
        .find(|line| line.0 == name)
        .and_then(|line| line.1.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("no {name:?} in {:?}", reply.body)))
}

/// Sends `GET /till` to a shop until `says` accepts the answer.
async fn wait_until(shop: &str, limit: Duration, says: impl Fn(&Reply) -> bool) -> Result<(), Fault> {
    let asking = async {
        while !ask(shop, "GET /till", "").await.is_ok_and(|till| says(&till)) {
            sleep(PAUSE).await;
        }
    };
    let limit_s = limit.as_secs();
    timeout(limit, asking)
        .await
        .map_err(|_| format!("the shop {shop} has not answered as it should for {limit_s} s").into())
}

/// A process that is stopped, as if its machine were suspended. Dropping this continues the process.
struct Paused(Pid);

impl Paused {
    fn stop(pid: i64) -> io::Result<Paused> {
        let pid = i32::try_from(pid)
            .ok()
            .filter(|pid| *pid > 1)
            .and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("this is no process to stop"))?;
        kill_process(pid, Signal::STOP)?;
        Ok(Paused(pid))
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        // Fails if the process was killed while it was stopped.
        let _ = kill_process(self.0, Signal::CONT);
    }
}
