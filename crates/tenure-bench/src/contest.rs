//! One comparison: clients that take turns, round by round, so that a slow moment of the machine hits all of them.

use std::time::Duration;

use crate::Fallible;
use crate::cli::Pace;
use crate::plan::{Client, Pairing};
use crate::processes::Processes;
use crate::row::Row;
use crate::site::{Ground, Site};
use crate::stolen::{self, CoresTime};
use crate::tally::Round;

/// A round is disturbed if more than this part of the cores' time was taken by the host: by two ticks of a hundred, not by
/// one.
pub(crate) const TOO_MUCH: f64 = 0.015;

/// How often a round is run that is disturbed each time. The least disturbed counts.
pub(crate) const TRIES: u32 = 4;

/// How often the host of the machine was in the way, over all clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disturbed {
    /// Rounds that count.
    pub(crate) rounds: u32,
    /// Rounds that were run beside them and do not count.
    pub(crate) again: u32,
    /// Of those that count, the disturbed ones.
    pub(crate) still: u32,
}

struct Entrant {
    client: Client,
    crew: Processes,
    rounds: Vec<Round>,
    _site: Site,
}

impl Entrant {
    async fn run(&mut self, time: Duration, disturbed: &mut Disturbed) -> Fallible<()> {
        let crew = &mut self.crew;
        let once = async || {
            let before = CoresTime::now();
            // The same time for every client, though some take a second more to serve the last of those who wait.
            let after = async {
                tokio::time::sleep(time).await;
                CoresTime::now()
            };
            let (round, after) = tokio::join!(crew.round(time), after);
            Ok((round?, stolen::part(before, after)))
        };
        self.rounds.push(least_disturbed(once, disturbed).await?);
        Ok(())
    }
}

/// Runs a round until one is not disturbed, at most [`TRIES`] times, and returns the least disturbed. `once` returns what a
/// round showed, which is not looked at, and which part of the cores' time was taken during it.
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

/// Runs all rounds of a pairing; a row for each of its clients.
pub(crate) async fn hold(
    pairing: &Pairing,
    pace: Pace,
    section: Duration,
    ground: &Ground,
    disturbed: &mut Disturbed,
) -> Fallible<Vec<Row>> {
    let mut entrants = Vec::new();
    for &client in &pairing.clients {
        let site = Site::make(pairing.store, ground).await?;
        let mut crew = Processes::start(pairing.workload, client, &site.place, section).await?;
        crew.round(pace.warm_up).await?;
        entrants.push(Entrant {
            client,
            crew,
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
        entrant.crew.end().await?;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Which of the tries counts, if so much is taken during each; and what was counted of them.
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
    fn a_round_counts_as_it_is_unless_the_host_took_too_much() {
        assert_eq!(run(&[0.0]), (0, counted(0, 0)));
        assert_eq!(run(&[TOO_MUCH]), (0, counted(0, 0)));
    }

    #[test]
    fn a_disturbed_round_is_run_again_until_one_is_not() {
        assert_eq!(run(&[0.3, 0.01]), (1, counted(1, 0)));
        assert_eq!(run(&[0.3, 0.2, 0.5, 0.0]), (3, counted(3, 0)));
    }

    #[test]
    fn of_rounds_that_are_all_disturbed_the_least_disturbed_counts_and_is_told() {
        assert_eq!(run(&[0.3, 0.2, 0.5, 0.4]), (1, counted(3, 1)));
    }
}
