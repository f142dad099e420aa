//! Prints results as Markdown tables with aligned columns.

use std::time::Duration;

use crate::cli::Pace;
use crate::contest::{Disturbed, TOO_MUCH, TRIES};
use crate::machine;
use crate::plan::{Client, Distance, name};
use crate::row::Row;
use crate::stats::{TOO_WIDE, is_too_wide, spread, verdict};

const HEAD: [&str; 17] = [
    "workload",
    "store",
    "client",
    "locks/s",
    "hand-overs/s",
    "p50",
    "p99",
    "max",
    "min share",
    "spread",
    "beside bare",
    "beside rslock",
    "beside rlock",
    "beside redisson",
    "beside go",
    "beside curator",
    "beside one server",
];

/// The other libraries, in the order of their columns.
const PEERS: [Client; 5] = [
    Client::Rslock,
    Client::Rlock,
    Client::Redisson,
    Client::Go,
    Client::Curator,
];

/// Index of the first column with numbers, which are right-aligned.
const NUMBERS_FROM: usize = 3;

/// The printed report, as BENCHMARKS.md has it. `left_out` are notes on comparisons that were not made.
pub(crate) fn section(
    rows: &[Row],
    left_out: Vec<String>,
    disturbed: Disturbed,
    pace: Pace,
    distance: Distance,
) -> String {
    let mut on = machine::describe();
    let server = match distance {
        Distance::Near => None,
        Distance::Apart => Some("on a core of its own, which the clients keep off"),
        Distance::Away => Some("a millisecond or two away, each way"),
    };
    on.extend(server.map(|server| ("the server", server.to_owned())));
    let (rounds, round, warm_up) = (pace.rounds, pace.round, pace.warm_up);
    let rounds = format!("{rounds} rounds of {round:?}, after {warm_up:?} of warm-up");
    on.push(("rounds", rounds));
    let on: Vec<_> = on
        .into_iter()
        .map(|(what, value)| vec![what.to_owned(), value])
        .collect();
    let cells: Vec<_> = rows.iter().map(|row| cells(row, rows)).collect();
    let mut text = format!("{}\n{}", table(&["on", ""], &on), table(&HEAD, &cells));
    for note in left_out.into_iter().chain(notes(rows, disturbed)) {
        text += &format!("\n{note}\n");
    }
    text
}

fn cells(row: &Row, rows: &[Row]) -> Vec<String> {
    let too_wide = if is_too_wide(&row.rounds) { " (!)" } else { "" };
    let mut cells = vec![
        name(row.workload),
        name(row.store),
        name(row.client),
        thousands(row.rate_per_s),
        thousands(row.handovers_per_s),
        time(row.p50_us),
        time(row.p99_us),
        time(row.max_us),
        format!("{:.2}", row.min_share),
        format!("{:.0} %{too_wide}", spread(&row.rounds) * 100.0),
        compared(row, rows, Client::Bare),
    ];
    let is_ours = !PEERS.contains(&row.client) && row.client != Client::Bare;
    cells.extend(PEERS.map(|peer| match is_ours {
        true => compared(row, rows, peer),
        false => String::new(),
    }));
    let has_several_servers = matches!(row.client, Client::TenureCluster | Client::TenureQuorum);
    cells.push(match has_several_servers {
        true => compared(row, rows, Client::Tenure),
        false => String::new(),
    });
    cells
}

/// The verdict on a row compared to the row of another client on the same workload and store. Empty without such a
/// row.
fn compared(row: &Row, rows: &[Row], client: Client) -> String {
    let is_partner =
        |other: &&Row| (other.workload, other.store, other.client) == (row.workload, row.store, client);
    match rows.iter().find(is_partner) {
        Some(other) if row.client != client => verdict(&row.rounds, &other.rounds),
        _ => String::new(),
    }
}

fn notes(rows: &[Row], disturbed: Disturbed) -> Vec<String> {
    let mut notes = Vec::new();
    let Disturbed { rounds, again, still } = disturbed;
    if again > 0 {
        notes.push(format!(
            "The host of this machine was in the way: rounds in which it took more than {} % of the cores' time were run again \
             ({again} times). Of the {rounds} that count {still} are still disturbed: a round is run {TRIES} times at the most.",
            TOO_MUCH * 100.0
        ));
    }
    let wide = rows.iter().filter(|row| is_too_wide(&row.rounds)).count();
    if wide > 0 {
        notes.push(format!(
            "(!) Too wide a spread to conclude anything from the rates so marked ({wide}): the bounds of their median lie more than \
             {:.0} % of it apart. Run again on a quiet machine, or `full`.",
            TOO_WIDE * 100.0
        ));
    }
    notes
}

pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let width = |at: usize| {
        let cells = [&head].into_iter().chain(rows).map(|row| row[at].chars().count());
        cells.max().unwrap_or(0).max(3)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths).enumerate();
        let padded = cells.map(|(at, (cell, width))| match at < NUMBERS_FROM {
            true => format!("| {cell:width$} "),
            false => format!("| {cell:>width$} "),
        });
        padded.collect::<String>() + "|\n"
    };
    let end = |at| if at < NUMBERS_FROM { "-" } else { ":" };
    let rule = widths
        .iter()
        .enumerate()
        .map(|(at, width)| "-".repeat(width - 1) + end(at));
    let rule: Vec<String> = rule.collect();
    line(&head) + &line(&rule) + &rows.iter().map(|row| line(row)).collect::<String>()
}

/// `1234567.8` as `1,234,568`.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time in µs, printed in a suitable unit.
fn time(us: f64) -> String {
    format!("{:.1?}", Duration::from_secs_f64(us / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Store, Workload};
    use crate::tally::Round;

    /// The report on clients with these rates in three rounds.
    fn printed(rates: &[(Client, [u64; 3])], disturbed: Disturbed) -> String {
        let rows: Vec<Row> = rates
            .iter()
            .map(|(client, rates)| {
                let rounds = rates.map(|rate| Round {
                    grants: vec![rate],
                    ..Round::new(Duration::from_secs(1))
                });
                Row::of(Workload::Solo, Store::Sqlite, *client, &rounds)
            })
            .collect();
        section(&rows, Vec::new(), disturbed, crate::cli::QUICK, Distance::Near)
    }

    #[test]
    fn the_report_counts_disturbances_by_the_host() {
        let rates = [(Client::Bare, [100; 3])];
        assert!(!printed(&rates, Disturbed::default()).contains("host"));
        let (rounds, again, still) = (40, 9, 2);
        let text = printed(&rates, Disturbed { rounds, again, still });
        let said = "run again (9 times). Of the 40 that count 2 are still disturbed: a round is run 4 times at the most.";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn a_wide_spread_is_marked_and_allows_no_conclusion() {
        let rates = [(Client::Tenure, [50, 200, 150]), (Client::Bare, [100, 101, 100])];
        let text = printed(&rates, Disturbed::default());
        for said in ["no conclusion", "100 % (!)", "from the rates so marked (1)"] {
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn a_steady_row_is_compared_to_the_bare_one_and_to_peers() {
        let rates = [
            (Client::Tenure, [80, 81, 80]),
            (Client::Rlock, [40; 3]),
            (Client::Bare, [100, 101, 100]),
        ];
        let text = printed(&rates, Disturbed::default());
        let mut lines = text.lines().filter(|line| line.contains("| solo"));
        let ours = lines.find(|line| line.contains("| tenure ")).unwrap();
        assert!(ours.contains("0.80 × (0.80 to 0.80) |"), "{ours}");
        assert!(ours.contains("2.00 × (2.00 to 2.02) |"), "{ours}");
        assert!(!text.contains("(!)"), "{text}");
    }
}
