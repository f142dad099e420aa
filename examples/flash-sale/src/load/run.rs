//! Runs the trials, prints the table, and says whether each kept its promise.
//! Not here: a trial (`trial`).

use super::table::head;
use super::trial::{Outcome, Trial};
use super::wait::until_all_answer;
use crate::Fault;
use crate::shop::ITEMS;
use crate::way::Way;

/// Runs these trials, or all, one after the other.
///
/// # Errors
/// If a shop does not answer, or if the books do not balance where they must.
pub(crate) async fn run(shops: &str, trials: &[&str]) -> Result<(), Fault> {
    let shops: Vec<String> = shops.split(',').map(str::to_owned).collect();
    if shops.len() < 2 {
        return Err("a sale needs two shops at least: HOST:PORT,HOST:PORT".into());
    }
    let mut chosen = trials
        .iter()
        .map(|name| name.parse())
        .collect::<Result<Vec<Trial>, _>>()?;
    if chosen.is_empty() {
        chosen.extend(Trial::ALL);
    }
    until_all_answer(&shops).await?;
    println!("{} shops, {ITEMS} items\n\n{}", shops.len(), head());
    let mut outcomes = Vec::new();
    for trial in chosen {
        let outcome = trial.run(&shops).await?;
        println!("{}", outcome.line());
        outcomes.push(outcome);
    }
    println!();
    outcomes.iter().for_each(tell_slow);
    tell_gain(&outcomes);
    outcomes.iter().try_for_each(judge)
}

/// Says what became of the sale in whose middle its shop was paused.
fn tell_slow(outcome: &Outcome) {
    if let Some(slow) = &outcome.slow {
        println!(
            "{}: the buyer of the paused shop was told: {slow}",
            outcome.trial.name
        );
    }
}

/// Says what ten shelves gain over one.
fn tell_gain(outcomes: &[Outcome]) {
    let rate = |way| {
        let mut of_way = outcomes.iter().filter(|outcome| outcome.trial.way == way);
        of_way.find_map(Outcome::rate)
    };
    if let (Some(one), Some(ten)) = (rate(Way::Fenced), rate(Way::Striped)) {
        println!("striped: {:.1} times the orders a second of fenced", ten / one);
    }
}

fn judge(outcome: &Outcome) -> Result<(), Fault> {
    let name = outcome.trial.name;
    if let Some(fault) = &outcome.told.fault {
        return Err(format!("{name}: a buyer was told: {fault}").into());
    }
    if outcome.trial.balances && (outcome.lost() != 0 || outcome.sold > ITEMS) {
        return Err(format!("{name}: the books do not balance").into());
    }
    Ok(())
}
