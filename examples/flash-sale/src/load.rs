//! The load: trials in which many buyers come at once, and the books that come of them.
//!
//! In the paused trials a shop is stopped in the middle of a sale, beyond its lease, while others sell.

mod http;

use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use self::http::{Headers, Reply, ask};
use crate::Fault;
use crate::shop::ITEMS;
use crate::way::Way;

/// Buyers who come at once: three for two items; those who come while a shop is paused; and those who hardly wait.
const BUYERS: usize = 150;
const MEANWHILE: usize = 40;
const IMPATIENT: usize = 10;

/// How often a buyer comes who is told to try later.
const TRIES: usize = 20;

/// What buyers may say of themselves. The slow one thinks for longer than it takes to notice him, and to pause his shop.
const HARDLY_WAITS: Headers = &[("patience", "100ms")];
const KNOWS_AT_ONCE: Headers = &[("think", "0s")];
const SLOW: Headers = &[("think", "4s")];

/// How long a shop may take to answer at first, and to get to the next step of a sale; how often it is asked meanwhile.
const OPENING: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// A way to sell, and whether a shop is paused meanwhile.
#[derive(Clone, Copy)]
struct Trial {
    name: &'static str,
    way: Way,
    paused: bool,
    /// Whether the books must balance.
    balances: bool,
}

const fn trial(name: &'static str, way: Way, paused: bool, balances: bool) -> Trial {
    Trial {
        name,
        way,
        paused,
        balances,
    }
}

const TRIALS: [Trial; 6] = [
    trial("unlocked", Way::Unlocked, false, false),
    trial("locked", Way::Locked, false, true),
    trial("fenced", Way::Fenced, false, true),
    trial("striped", Way::Striped, false, true),
    // No lock can keep a process from writing that was paused beyond its lease.
    trial("locked-paused", Way::Locked, true, false),
    trial("fenced-paused", Way::Fenced, true, true),
];

/// What the buyers of a trial were told.
#[derive(Default)]
struct Told {
    sold: usize,
    sold_out: usize,
    /// "Try later", because the lock was busy for longer than they wait.
    turned_away: usize,
    /// The first reply that is none of these, and was the last.
    fault: Option<String>,
    /// What the buyer of the paused shop was told.
    slow: Option<String>,
    /// Orders a second, from the crowd's coming to its last order.
    rate: f64,
}

/// Runs these trials, or all, one after the other, and prints a line of the books for each.
///
/// # Errors
/// If a shop does not answer, or if the books do not balance where they must.
pub(crate) async fn run(shops: &str, trials: &[&str]) -> Result<(), Fault> {
    let shops: Vec<String> = shops.split(',').map(str::to_owned).collect();
    if shops.len() < 2 {
        return Err("a sale needs two shops at least: HOST:PORT,HOST:PORT".into());
    }
    let named = |name: &&str| {
        TRIALS
            .into_iter()
            .find(|trial| trial.name == *name)
            .ok_or(format!("{name:?} is no trial"))
    };
    let mut chosen = trials.iter().map(named).collect::<Result<Vec<_>, _>>()?;
    if chosen.is_empty() {
        chosen.extend(TRIALS);
    }
    for shop in &shops {
        wait_until(shop, OPENING, |_| Ok(true)).await?;
    }
    println!("{} shops, {ITEMS} items\n", shops.len());
    println!(
        "trial           sold  left  oversold  updates lost  sold out  turned away  refused  at once  orders/s"
    );
    let (mut words, mut outcome) = (Vec::new(), Ok(()));
    let (mut fenced, mut striped) = (0.0, 0.0);
    for trial in chosen {
        let told = trial.run(&shops).await?;
        let balances = print_books(trial, &told, &shops).await?;
        match trial.way {
            Way::Fenced if !trial.paused => fenced = told.rate,
            Way::Striped => striped = told.rate,
            _ => {}
        }
        if let Some(slow) = told.slow {
            words.push(format!(
                "{}: the buyer of the paused shop was told: {slow}",
                trial.name
            ));
        }
        let fault = told.fault.map(|fault| format!("a buyer was told: {fault}"));
        let fault = fault.or((trial.balances && !balances).then(|| "the books do not balance".to_owned()));
        if let (Ok(()), Some(fault)) = (&outcome, fault) {
            outcome = Err(format!("{}: {fault}", trial.name).into());
        }
    }
    if fenced > 0.0 && striped > 0.0 {
        words.push(format!(
            "striped: {:.1} times the orders a second of fenced",
            striped / fenced
        ));
    }
    println!("\n{}", words.join("\n"));
    outcome
}

/// Prints the line of a trial, and returns whether its books balance.
async fn print_books(trial: Trial, told: &Told, shops: &[String]) -> io::Result<bool> {
    let (mut overtaken, mut at_once) = (0, 0);
    for shop in shops {
        let till = ask(shop, "GET /till", &[]).await?;
        overtaken += till.number("overtaken")?;
        at_once = at_once.max(till.number("at-once")?);
    }
    let books = ask(&shops[0], "GET /books", &[]).await?;
    let (sold, left) = (books.number("sold")?, books.number("left")?);
    // Items beyond those that there were: so many updates were written over.
    let lost = sold + left - ITEMS;
    let oversold = (sold - ITEMS).max(0);
    let Told {
        sold_out,
        turned_away,
        ..
    } = told;
    let rate = if trial.paused {
        "-".to_owned()
    } else {
        format!("{:.0}", told.rate)
    };
    println!(
        "{:<14}{sold:>6}{left:>6}{oversold:>10}{lost:>14}{sold_out:>10}{turned_away:>13}{overtaken:>9}{at_once:>9}{rate:>10}",
        trial.name
    );
    Ok(lost == 0 && oversold == 0)
}

impl Trial {
    async fn run(self, shops: &[String]) -> Result<Told, Fault> {
        let way = self.way.name();
        for shop in shops {
            ask(shop, &format!("POST /restock/{way}"), &[]).await?;
        }
        let mut told = Told::default();
        if !self.paused {
            self.crowd("buyer", BUYERS, shops, &[], TRIES, &mut told).await?;
            return Ok(told);
        }
        // The first shop is paused in the middle of a sale, others sell meanwhile, and it goes on.
        let (first, others) = shops.split_first().ok_or("there is no shop")?;
        let what = format!("POST /buy/{way}/slow");
        let slow = tokio::spawn({
            let (first, what) = (first.clone(), what.clone());
            async move { ask(&first, &what, SLOW).await }
        });
        wait_until(first, LIMIT, |till| Ok(till.number("thinking")? == 1)).await?;
        self.crowd("impatient", IMPATIENT, others, HARDLY_WAITS, 1, &mut told)
            .await?;
        let pid = ask(first, "GET /till", &[]).await?.number("pid")?;
        let paused = Paused::stop(pid)?;
        // They wait until the lease of the shop that stands still has ended.
        self.crowd("meanwhile", MEANWHILE, others, KNOWS_AT_ONCE, TRIES, &mut told)
            .await?;
        let sold = ask(&others[0], "GET /books", &[]).await?.number("sold")?;
        if sold != MEANWHILE as i64 {
            return Err(
                format!("{sold} were sold to {MEANWHILE}: the shop was not paused in its sale").into(),
            );
        }
        drop(paused);
        let reply = slow.await??;
        // Its buyer may be told that the lock is lost before the sale itself has ended.
        wait_until(first, LIMIT, |till| Ok(till.number("thinking")? == 0)).await?;
        let again = ask(first, &what, &[]).await?;
        told.slow = Some(format!(
            "{}; and when he asked again: {}",
            reply.body.trim(),
            again.body.trim()
        ));
        self.crowd("buyer", BUYERS, shops, KNOWS_AT_ONCE, TRIES, &mut told)
            .await?;
        Ok(told)
    }

    /// Buyers come to the shops at once, each under a name of his own, and those who are told when to come back do so.
    async fn crowd(
        self,
        name: &str,
        buyers: usize,
        shops: &[String],
        headers: Headers,
        tries: usize,
        told: &mut Told,
    ) -> io::Result<()> {
        let began = Instant::now();
        let mut crowd = JoinSet::new();
        for (number, shop) in (0..buyers).zip(shops.iter().cycle()) {
            let what = format!("POST /buy/{}/{name}-{number}", self.way.name());
            crowd.spawn(buyer(shop.clone(), what, headers, tries));
        }
        let mut last_order = Duration::ZERO;
        while let Some(heard) = crowd.join_next().await {
            let (turned_away, reply) = heard??;
            told.turned_away += turned_away;
            match reply.status {
                200 | 201 => {
                    told.sold += 1;
                    last_order = began.elapsed();
                }
                410 => told.sold_out += 1,
                503 => {}
                status => {
                    let fault = format!("{status} {}", reply.body.trim());
                    told.fault.get_or_insert(fault);
                }
            }
        }
        told.rate = told.sold as f64 / last_order.as_secs_f64();
        Ok(())
    }
}

/// One buyer: how often he was told to try later, and the last reply.
///
/// He comes again when the shop says, or at once if it was overtaken or does not know how the sale went: an order that there
/// is after all is then the answer.
async fn buyer(shop: String, what: String, headers: Headers, tries: usize) -> io::Result<(usize, Reply)> {
    let (mut came, mut turned_away) = (0, 0);
    loop {
        let reply = ask(&shop, &what, headers).await?;
        came += 1;
        turned_away += usize::from(reply.status == 503);
        let is_open = matches!(reply.status, 409 | 500);
        match reply.retry_after().or(is_open.then_some(Duration::ZERO)) {
            Some(later) if came < tries => sleep(later).await,
            _ => return Ok((turned_away, reply)),
        }
    }
}

/// Asks a shop's till until it says so.
async fn wait_until(
    shop: &str,
    limit: Duration,
    says: impl Fn(&Reply) -> io::Result<bool>,
) -> Result<(), Fault> {
    let end = Instant::now() + limit;
    loop {
        let asked = timeout_at(end, ask(shop, "GET /till", &[])).await;
        let said = asked
            .unwrap_or_else(|late| Err(late.into()))
            .and_then(|till| says(&till));
        match said {
            Ok(true) => return Ok(()),
            _ if Instant::now() < end => sleep(PAUSE).await,
            Ok(false) => {
                return Err(format!("the sale at {shop} made no step for {} s", limit.as_secs()).into());
            }
            Err(error) => {
                let limit = limit.as_secs();
                return Err(format!("the shop {shop} has not answered for {limit} s: {error}").into());
            }
        }
    }
}

/// A process of this machine that stands still until this is dropped: as one whose machine is suspended.
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
        // It may have been killed meanwhile.
        let _ = kill_process(self.0, Signal::CONT);
    }
}
