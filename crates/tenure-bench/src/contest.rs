//! One comparison: the clients take turns, round by round, so that a slow moment of the machine affects all of them.

use std::time::Duration;

use crate::Fallible;
use crate::cli::Pace;
use crate::plan::{Client, Pairing};
use crate::processes::Processes;
use crate::row::Row;
use crate::site::{Site, Sites};
use crate::stolen::{self, CoresTime};
use crate::tally::Round;

/// A round is disturbed if the host of this virtual machine took more than this part of the cores' time: two ticks in
/// a hundred are too much, one is not.
pub(crate) const TOO_MUCH: f64 = 0.015;

/// Maximum number of tries of a round. If the machine's host disturbs all of them, the least disturbed one counts.
pub(crate) const TRIES: u32 = 4;

/// How often the host of this virtual machine disturbed the measurement, over all clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disturbed {
    /// Number of rounds, without repetitions.
    pub(crate) rounds: u32,
    /// Number of repetitions of rounds, each because the host disturbed the try before.
    pub(crate) again: u32,
    /// Number of rounds of which the host disturbed every try.
    pub(crate) still: u32,
}

struct Entrant {
    client: Client,
    processes: Processes,
    rounds: Vec<Round>,
    _site: Site,
}

impl Entrant {
    async fn run(&mut self, time: Duration, disturbed: &mut Disturbed) -> Fallible<()> {
        let processes = &mut self.processes;
        let once = async || {
            let before = CoresTime::now();
            // Reads the cores' time when `time` is over, not when the round is: a round lasts longer for clients that
            // take up to a second to serve their last waiters.
            let after = async {
                tokio::time::sleep(time).await;
                CoresTime::now()
            };
            let (round, after) = tokio::join!(processes.round(time), after);
            Ok((round?, stolen::part(before, after)))
        };
        self.rounds.push(least_disturbed(once, disturbed).await?);
        Ok(())
    }
}

/// Tries a round until it is not disturbed, at most [`TRIES`] times. Returns the result of the least disturbed try.
/// `once` returns a try's result, and the part of the cores' time that the machine's host took.
async fn least_disturbed<T>(
    mut once: impl AsyncFnMut() -> Fallible<(T, f64)>,
    disturbed: &mut Disturbed,
) -> Fallible<T> {
    disturbed.rounds += 1;
    let (mut best, mut least) = once().await?;
    for _ in 1..TRIES {
        if least <= TOO_MUCH {
            break;
        }
        disturbed.again += 1;
        let (round, part) = once().await?;
        if part < least {
            (best, least) = (round, part);
        }
    }
    disturbed.still += u32::from(least > TOO_MUCH);
    Ok(best)
}

/// Runs all rounds of a pairing; in each round its clients take turns. Returns a row for each client.
pub(crate) async fn hold(
    pairing: &Pairing,
    pace: Pace,
    section: Duration,
    sites: &Sites,
    disturbed: &mut Disturbed,
) -> Fallible<Vec<Row>> {
    let mut entrants = Vec::new();
    for &client in &pairing.clients {
        let site = Site::make(pairing.store, client, sites).await?;
        let mut processes = Processes::start(pairing.workload, client, &site.location, section).await?;
        processes.round(pace.warm_up).await?;
        entrants.push(Entrant {
            client,
            processes,
            rounds: Vec::new(),
            _site: site,
        });
    }
    for _ in 0..pace.rounds {
        for entrant in &mut entrants {
            entrant.run(pace.round, disturbed).await?;
        }
    }
    let mut rows = Vec::new();
    for entrant in entrants {
        rows.push(Row::of(
            pairing.workload,
            pairing.store,
            entrant.client,
            &entrant.rounds,
        ));
        entrant.processes.end().await?;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Runs a round whose tries lose these parts of the cores' time to the machine's host. Returns the index of the
    /// try that counts, and the counters.
    fn run(parts: &[f64]) -> (usize, Disturbed) {
        let (mut disturbed, mut parts) = (Disturbed::default(), parts.iter().copied().enumerate());
        let once = async || Ok(parts.next().expect("no more tries than there may be"));
        let best = least_disturbed(once, &mut disturbed).now_or_never();
        assert_eq!(parts.next(), None, "it is given up too soon");
        (best.expect("nothing to wait for").expect("no error"), disturbed)
    }

    fn counted(again: u32, still: u32) -> Disturbed {
        let rounds = 1;
        Disturbed { rounds, again, still }
    }

    #[test]
    fn an_undisturbed_round_counts() {
        assert_eq!(run(&[0.0]), (0, counted(0, 0)));
        assert_eq!(run(&[TOO_MUCH]), (0, counted(0, 0)));
    }

    #[test]
    fn a_disturbed_round_is_repeated() {
        assert_eq!(run(&[0.3, 0.01]), (1, counted(1, 0)));
        assert_eq!(run(&[0.3, 0.2, 0.5, 0.0]), (3, counted(3, 0)));
    }

    #[test]
    fn the_least_disturbed_round_counts_if_all_are_disturbed() {
        assert_eq!(run(&[0.3, 0.2, 0.5, 0.4]), (1, counted(3, 1)));
    }
}
