//! The trials: a way to sell, with or without a shop that is paused beyond its lease.
//! Not here: what is made of their outcome (`table`).

use std::io;
use std::str::FromStr;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::crowd::{Crowd, Told};
use super::http::{Headers, ask};
use super::pause::Paused;
use crate::way::Way;

/// How many come at once: three for two items.
const BUYERS: usize = 150;

/// How many come while a shop is paused.
const MEANWHILE: usize = 40;

/// How many of those who hardly wait come while a shop is at it.
const IMPATIENT: usize = 10;

/// What buyers may say of themselves.
const HARDLY_WAITS: Headers = &[("patience", "100ms")];
const KNOWS_AT_ONCE: Headers = &[("think", "0s")];

/// How often a buyer comes back who is told to try later.
const TRIES: usize = 20;

/// The buyer in whose sale the shop is paused: he thinks for longer than it takes to notice him there, and to pause it.
const SLOW: Headers = &[("think", "4s")];

/// Reached only where something is wrong.
const LIMIT: Duration = Duration::from_secs(60);

/// A way to sell, and what is done to a shop meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trial {
    pub(crate) name: &'static str,
    pub(crate) way: Way,
    paused: bool,
    /// Whether the books must balance.
    pub(crate) balances: bool,
}

/// What came of a trial.
pub(crate) struct Outcome {
    pub(crate) trial: Trial,
    pub(crate) told: Told,
    /// How many orders there are, and how many items are left.
    pub(crate) sold: i64,
    pub(crate) left: i64,
    /// How many sales the fence refused.
    pub(crate) overtaken: i64,
    /// The most buyers that one shop had at its till at once.
    pub(crate) at_once: i64,
    /// What the buyer was told in whose sale the shop was paused.
    pub(crate) slow: Option<String>,
}

const fn trial(name: &'static str, way: Way, paused: bool, balances: bool) -> Trial {
    Trial {
        name,
        way,
        paused,
        balances,
    }
}

impl Trial {
    pub(crate) const ALL: [Trial; 6] = [
        trial("unlocked", Way::Unlocked, false, false),
        trial("locked", Way::Locked, false, true),
        trial("fenced", Way::Fenced, false, true),
        trial("striped", Way::Striped, false, true),
        // No lock can keep a process from writing that was paused beyond its lease.
        trial("locked-paused", Way::Locked, true, false),
        trial("fenced-paused", Way::Fenced, true, true),
    ];

    pub(crate) async fn run(self, shops: &[String]) -> io::Result<Outcome> {
        for shop in shops {
            ask(shop, &format!("POST /restock/{}", self.way.name()), &[]).await?;
        }
        let (told, slow) = if self.paused {
            let (told, slow) = self.with_a_pause(shops).await?;
            (told, Some(slow))
        } else {
            (self.crowd("buyer", BUYERS, shops, &[]).come().await?, None)
        };
        let (mut overtaken, mut at_once) = (0, 0);
        for shop in shops {
            let till = ask(shop, "GET /till", &[]).await?;
            overtaken += till.number("overtaken")?;
            at_once = at_once.max(till.number("at-once")?);
        }
        let books = ask(&shops[0], "GET /books", &[]).await?;
        Ok(Outcome {
            trial: self,
            told,
            sold: books.number("sold")?,
            left: books.number("left")?,
            overtaken,
            at_once,
            slow,
        })
    }

    /// The first shop is paused in the middle of a sale, others sell meanwhile, and it goes on.
    async fn with_a_pause(self, shops: &[String]) -> io::Result<(Told, String)> {
        let (first, others) = shops.split_first().expect("there is a shop");
        let what = format!("POST /buy/{}/slow", self.way.name());
        let slow = tokio::spawn({
            let (first, what) = (first.clone(), what.clone());
            async move { ask(&first, &what, SLOW).await }
        });
        until(first, "thinking", 1).await?;
        let impatient = Crowd {
            tries: 1,
            ..self.crowd("impatient", IMPATIENT, others, HARDLY_WAITS)
        };
        let turned_away = impatient.come().await?;

        let pid = ask(first, "GET /till", &[]).await?.number("pid")?;
        let paused = Paused::stop(pid)?;
        // They wait until the lease of the shop that stands still has ended.
        let meanwhile = self
            .crowd("meanwhile", MEANWHILE, others, KNOWS_AT_ONCE)
            .come()
            .await?;
        let sold = ask(&others[0], "GET /books", &[]).await?.number("sold")?;
        if sold != MEANWHILE as i64 {
            let why =
                format!("{sold} were sold to {MEANWHILE}: the shop was not paused in the middle of its sale");
            return Err(io::Error::other(why));
        }
        drop(paused);

        let slow = slow.await??;
        // Its buyer may be told that the lock is lost before the sale itself has ended.
        until(first, "thinking", 0).await?;
        let again = ask(first, &what, &[]).await?;
        let slow = format!(
            "{}; and when he asked again: {}",
            slow.body.trim(),
            again.body.trim()
        );
        let rest = self.crowd("buyer", BUYERS, shops, KNOWS_AT_ONCE).come().await?;
        Ok((turned_away.and(meanwhile).and(rest), slow))
    }

    fn crowd<'a>(self, name: &'a str, buyers: usize, shops: &'a [String], headers: Headers) -> Crowd<'a> {
        Crowd {
            shops,
            way: self.way,
            name,
            buyers,
            headers,
            tries: TRIES,
        }
    }
}

/// Waits until so many are at a shop's till.
async fn until(shop: &str, name: &str, number: i64) -> io::Result<()> {
    let end = Instant::now() + LIMIT;
    while ask(shop, "GET /till", &[]).await?.number(name)? != number {
        if Instant::now() >= end {
            return Err(io::Error::other(format!(
                "not {number} {name} at {shop} within {LIMIT:?}"
            )));
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

impl FromStr for Trial {
    type Err = String;

    fn from_str(name: &str) -> Result<Trial, String> {
        let found = Trial::ALL.into_iter().find(|trial| trial.name == name);
        found.ok_or_else(|| format!("{name:?} is no trial"))
    }
}
