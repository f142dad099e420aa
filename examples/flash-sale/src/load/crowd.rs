//! A crowd of buyers that come to the shops at once, and what they are told.
//! Not here: who sends them, and when (`trial`).

use std::io;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::http::{Headers, Reply, ask};
use crate::way::Way;

/// Buyers who come at once.
pub(crate) struct Crowd<'a> {
    pub(crate) shops: &'a [String],
    pub(crate) way: Way,
    /// The names are this and a number: each has one order at most.
    pub(crate) name: &'a str,
    pub(crate) buyers: usize,
    /// What each says of himself: how long he thinks, and how long he waits for the lock.
    pub(crate) headers: Headers,
    /// How often each comes, when he is told "try later", or that it is open whether he has an order.
    pub(crate) tries: usize,
}

/// What the buyers were told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) sold: usize,
    pub(crate) sold_out: usize,
    /// "Try later", because the lock was busy for longer than they wait.
    pub(crate) turned_away: usize,
    /// The first reply that is none of these, and was the last.
    pub(crate) fault: Option<String>,
    /// How long each reply took.
    pub(crate) took: Vec<Duration>,
    /// From the moment they came to the last order.
    pub(crate) until_last_order: Duration,
}

impl Crowd<'_> {
    /// Each buyer comes, and those who are told when to come back do so.
    pub(crate) async fn come(&self) -> io::Result<Told> {
        let began = Instant::now();
        let mut buyers = JoinSet::new();
        for (number, shop) in (0..self.buyers).zip(self.shops.iter().cycle()) {
            let what = format!("POST /buy/{}/{}-{number}", self.way.name(), self.name);
            buyers.spawn(buyer(shop.clone(), what, self.headers, self.tries));
        }
        let mut told = Told::default();
        while let Some(replies) = buyers.join_next().await {
            for reply in replies?? {
                told.add(&reply, began);
            }
        }
        Ok(told)
    }
}

/// What a buyer was told, and when.
struct Heard {
    came: Instant,
    replied: Instant,
    reply: Reply,
    /// Whether he came again.
    again: bool,
}

/// One buyer.
async fn buyer(shop: String, what: String, headers: Headers, tries: usize) -> io::Result<Vec<Heard>> {
    let mut all = Vec::new();
    for nth in 1..=tries {
        let came = Instant::now();
        let reply = ask(&shop, &what, headers).await?;
        let later = if nth < tries { come_again(&reply) } else { None };
        all.push(Heard {
            came,
            replied: Instant::now(),
            reply,
            again: later.is_some(),
        });
        match later {
            Some(later) => sleep(later).await,
            None => break,
        }
    }
    Ok(all)
}

/// When to come again: as the shop says, or at once if it was overtaken or does not know how the sale went. An order that
/// there is after all is then the answer.
fn come_again(reply: &Reply) -> Option<Duration> {
    let is_open = matches!(reply.status, 409 | 500);
    reply.retry_after().or(is_open.then_some(Duration::ZERO))
}

impl Told {
    fn add(&mut self, heard: &Heard, began: Instant) {
        self.took.push(heard.replied - heard.came);
        match heard.reply.status {
            200 | 201 => {
                self.sold += 1;
                self.until_last_order = self.until_last_order.max(heard.replied - began);
            }
            410 => self.sold_out += 1,
            503 => self.turned_away += 1,
            _ if heard.again => {}
            status => {
                let fault = format!("{status} {}", heard.reply.body.trim());
                self.fault.get_or_insert(fault);
            }
        }
    }

    /// What two crowds were told; the time is of no use then.
    pub(crate) fn and(mut self, other: Told) -> Told {
        self.sold += other.sold;
        self.sold_out += other.sold_out;
        self.turned_away += other.turned_away;
        self.fault = self.fault.or(other.fault);
        self.took.extend(other.took);
        self.until_last_order = Duration::ZERO;
        self
    }
}
