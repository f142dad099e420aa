//! One comparison: clients that take turns, round by round, so that a slow moment of the machine hits all of them.
//! Not here: which comparisons there are (`plan`).

use std::time::Duration;

use crate::Fallible;
use crate::cli::Pace;
use crate::crew::{Crew, hire};
use crate::plan::{Client, Pairing};
use crate::row::Row;
use crate::site::{Ground, Site};
use crate::tally::Round;

struct Entrant {
    client: Client,
    crew: Box<dyn Crew>,
    rounds: Vec<Round>,
    _site: Site,
}

/// Runs all rounds of a pairing; a row for each of its clients.
pub(crate) async fn hold(
    pairing: &Pairing,
    pace: Pace,
    section: Duration,
    ground: &Ground,
) -> Fallible<Vec<Row>> {
    let mut entrants = Vec::new();
    for &client in &pairing.clients {
        let site = Site::make(pairing.store, ground)?;
        let mut crew = hire(pairing.workload, client, &site.place, section).await?;
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
            entrant.rounds.push(entrant.crew.round(pace.round).await?);
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
        entrant.crew.dismiss().await?;
    }
    Ok(rows)
}
