//! Results for people: a table for the terminal, and the section of BENCHMARKS.md.
//! Not here: the judgement of the figures (`stats`).

use std::fmt::Write;

use crate::cli::Pace;
use crate::contest::{Disturbed, TOO_MUCH, TRIES};
use crate::machine;
use crate::plan::{Client, Distance, LeftOut, Store, Workload, name};
use crate::row::Row;
use crate::stats::{Ratio, TOO_WIDE, Verdict, compare, is_too_wide, spread};

const HEAD: [&str; 11] = [
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
];

const NO_CONCLUSION: &str = "no conclusion";

/// Columns from here on are numbers, and stand to the right.
const NUMBERS_FROM: usize = 3;

/// How the worst wait on one key compares to the mean one.
const WORST: [&str; 9] = [
    "workload",
    "store",
    "client",
    "mean wait",
    "worst of a round",
    "worst of all / mean",
    "mean turns",
    "worst of all / mean",
    "min process share",
];

/// How Tenure's rates compare to those of the peers that ran in turns with it.
const PEERS: [&str; 5] = ["workload", "store", "client", "beside rslock", "beside rlock"];

/// All that a run has to tell.
#[derive(Clone, Copy)]
pub(crate) struct Measured<'a> {
    pub(crate) rows: &'a [Row],
    pub(crate) left_out: &'a [LeftOut],
    pub(crate) disturbed: Disturbed,
}

/// What is printed to a terminal.
pub(crate) fn table(measured: &Measured<'_>) -> String {
    let rows = measured.rows;
    let mut text = aligned(
        &HEAD,
        &rows.iter().map(|row| cells(row, rows)).collect::<Vec<_>>(),
    );
    for (title, head, rows) in more(rows) {
        text += &format!("\n{}\n", title.to_lowercase());
        text += &aligned(head, &rows);
    }
    for note in notes(measured) {
        text += &format!("\n{note}\n");
    }
    text
}

/// The section of BENCHMARKS.md between its two marks.
pub(crate) fn markdown(measured: &Measured<'_>, pace: Pace, distance: Distance) -> String {
    let rows = measured.rows;
    let mut text = String::from("| on | |\n|---|---|\n");
    for (what, value) in machine::describe() {
        text += &format!("| {what} | {value} |\n");
    }
    match distance {
        Distance::Near => {}
        Distance::Apart => text += "| the server | on a core of its own, which the clients keep off |\n",
        Distance::Away => text += "| the server | a millisecond or two away, each way |\n",
    }
    let rounds = format!(
        "{} rounds of {:?}, after {:?}",
        pace.rounds, pace.round, pace.warm_up
    );
    text += &format!("| rounds | {rounds} of warm-up |\n\n");
    text += &piped(
        &HEAD,
        &rows.iter().map(|row| cells(row, rows)).collect::<Vec<_>>(),
    );
    for (title, head, rows) in more(rows) {
        text += &format!("\n{title}:\n\n");
        text += &piped(head, &rows);
    }
    for note in notes(measured) {
        text += &format!("\n{note}\n");
    }
    text
}

type Table = (&'static str, &'static [&'static str], Vec<Vec<String>>);

/// The tables that follow the first, each if it has rows.
fn more(rows: &[Row]) -> impl Iterator<Item = Table> {
    let worst: Vec<_> = rows.iter().filter_map(worst_cells).collect();
    let peers: Vec<_> = rows.iter().filter_map(|row| peer_cells(row, rows)).collect();
    let tables: [Table; 2] = [
        ("Waiting in line, in time and in turns of others", &WORST, worst),
        ("Tenure's rates beside its peers'", &PEERS, peers),
    ];
    tables.into_iter().filter(|(_, _, rows)| !rows.is_empty())
}

fn cells(row: &Row, rows: &[Row]) -> Vec<String> {
    let too_wide = if is_too_wide(&row.rounds) { " (!)" } else { "" };
    vec![
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
        beside(row, rows, Client::Bare),
    ]
}

/// The verdict on a row beside that of another client on its workload and store.
fn beside(row: &Row, rows: &[Row], client: Client) -> String {
    let is_partner =
        |other: &&Row| (other.workload, other.store, other.client) == (row.workload, row.store, client);
    match rows.iter().find(is_partner) {
        None => String::new(),
        Some(_) if row.client == client => String::new(),
        Some(other) => match compare(&row.rounds, &other.rounds) {
            Verdict::TooWide => NO_CONCLUSION.to_owned(),
            Verdict::Alike => "alike".to_owned(),
            Verdict::Differ(ratio) => ratio_text(ratio),
        },
    }
}

/// The median of the ratios with its bounds.
pub(crate) fn ratio_text(Ratio { median, low, high }: Ratio) -> String {
    if high < 10.0 {
        format!("{median:.2} × ({low:.2} to {high:.2})")
    } else {
        format!("{median:.0} × ({low:.0} to {high:.0})")
    }
}

/// Only where several wait for one key.
fn worst_cells(row: &Row) -> Option<Vec<String>> {
    if !row.workload.is_contended() {
        return None;
    }
    let (mean, turns) = (row.waits.time.mean(), row.waits.turns.mean());
    Some(vec![
        name(row.workload),
        name(row.store),
        name(row.client),
        time(mean / 1000.0),
        time(row.worst_us),
        format!("{:.1}", row.waits.time.max() as f64 / mean),
        format!("{turns:.1}"),
        format!("{:.1}", row.waits.turns.max() as f64 / turns),
        match row.workload {
            Workload::HotProcesses => format!("{:.2}", row.min_process_share),
            _ => String::new(),
        },
    ])
}

/// Only of Tenure, and where there are peers.
fn peer_cells(row: &Row, rows: &[Row]) -> Option<Vec<String>> {
    let verdicts = [Client::Rslock, Client::Rlock].map(|peer| beside(row, rows, peer));
    let is_ours = matches!(row.client, Client::Tenure | Client::TenureNoPassing);
    if !is_ours || verdicts.iter().all(String::is_empty) {
        return None;
    }
    let names = [name(row.workload), name(row.store), name(row.client)];
    Some(names.into_iter().chain(verdicts).collect())
}

fn notes(measured: &Measured<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let rows = measured.rows;
    notes.extend(measured.left_out.iter().map(LeftOut::to_string));
    notes.extend(host(measured.disturbed));
    let percent = TOO_WIDE * 100.0;
    let wide = rows.iter().filter(|row| is_too_wide(&row.rounds)).count();
    if wide > 0 {
        notes.push(format!(
            "(!) Too wide a spread to conclude anything from the rates so marked ({wide}): the bounds of their median lie more than \
             {percent:.0} % of it apart. Run again on a quiet machine, or `full`."
        ));
    }
    if rows
        .iter()
        .any(|row| beside(row, rows, Client::Bare) == NO_CONCLUSION)
    {
        notes.push(format!(
            "{NO_CONCLUSION}: the bounds of the ratio lie more than {percent:.0} % of it apart, on both sides of 1."
        ));
    }
    let bare = |store, contended| {
        rows.iter().any(|row| {
            (row.client, row.store) == (Client::Bare, store) && row.workload.is_contended() == contended
        })
    };
    if bare(Store::Memory, true) || bare(Store::Memory, false) {
        notes.push(
            "bare on memory is `tokio::sync::Mutex`: the physical limit, which promises far less.".to_owned(),
        );
    }
    if bare(Store::Redis, false) {
        notes.push("bare on redis is two calls of Tenure's own scripts where nobody waits.".to_owned());
    }
    if bare(Store::Redis, true) {
        notes.push("bare on redis is `SET NX PX` and a polite poll where somebody waits.".to_owned());
    }
    if rows.iter().any(|row| row.workload == Workload::LoneWaiter) {
        notes
            .push("lone-waiter: all 65 workers are counted, and the waits of the lone one alone.".to_owned());
    }
    notes
}

/// Only if the host was in the way.
fn host(disturbed: Disturbed) -> Option<String> {
    let Disturbed { rounds, again, still } = disturbed;
    (again > 0).then(|| {
        format!(
            "The host of this machine was in the way: rounds in which it took more than {} % of the cores' time were run again \
             ({again} times). Of the {rounds} that count {still} are still disturbed: a round is run {TRIES} times at the most.",
            TOO_MUCH * 100.0
        )
    })
}

/// A table for the terminal.
pub(crate) fn aligned(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([head[at].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    for row in [&head].into_iter().chain(rows) {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if at == 0 { "" } else { "  " };
            // Writing to a string cannot fail.
            let _ = match at < NUMBERS_FROM {
                true => write!(line, "{gap}{cell:width$}"),
                false => write!(line, "{gap}{cell:>width$}"),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn piped(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("| {} |\n|", head.join(" | "));
    for at in 0..head.len() {
        text += if at < NUMBERS_FROM { "---|" } else { "--:|" };
    }
    text.push('\n');
    for row in rows {
        text += &format!("| {} |\n", row.join(" | "));
    }
    text
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

/// Microseconds with three digits that say something.
fn time(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2} µs"),
        us if us < 100.0 => format!("{us:.1} µs"),
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 10_000.0 => format!("{:.2} ms", us / 1e3),
        us if us < 1_000_000.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tally::{Round, Waits};

    fn row(client: Client, rates: &[u64]) -> Row {
        let round = |rate: &u64| Round {
            time: Duration::from_secs(1),
            grants: vec![*rate],
            handovers: 0,
            waits: Waits::new(),
        };
        let rounds: Vec<_> = rates.iter().map(round).collect();
        Row::of(Workload::Solo, Store::Sqlite, client, &rounds)
    }

    fn measured(rows: &[Row]) -> Measured<'_> {
        Measured {
            rows,
            left_out: &[],
            disturbed: Disturbed::default(),
        }
    }

    #[test]
    fn that_the_host_was_in_the_way_is_said_and_how_often() {
        let rows = [row(Client::Bare, &[100])];
        let quiet = measured(&rows);
        assert!(!table(&quiet).contains("host"));
        let (rounds, again, still) = (40, 9, 2);
        let disturbed = Disturbed { rounds, again, still };
        let said = "rounds in which it took more than 1.5 % of the cores' time were run again (9 times). Of the 40 \
                    that count 2 are still disturbed: a round is run 4 times at the most.";
        for text in [
            table(&Measured { disturbed, ..quiet }),
            markdown(
                &Measured { disturbed, ..quiet },
                crate::cli::QUICK,
                Distance::Near,
            ),
        ] {
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn a_spread_that_is_too_wide_is_said_and_nothing_is_concluded_from_it() {
        let rows = [
            row(Client::Tenure, &[50, 200, 150]),
            row(Client::Bare, &[100, 101, 100]),
        ];
        let text = table(&measured(&rows));
        assert!(text.contains("no conclusion"), "{text}");
        assert!(text.contains("100 % (!)"), "{text}");
        assert!(
            text.contains("to conclude anything from the rates so marked (1)"),
            "{text}"
        );
        assert!(markdown(&measured(&rows), crate::cli::QUICK, Distance::Near).contains("no conclusion"));
    }

    #[test]
    fn a_steady_row_is_compared_to_the_bare_one() {
        let rows = [
            row(Client::Tenure, &[80, 81, 80]),
            row(Client::Bare, &[100, 101, 100]),
        ];
        let text = table(&measured(&rows));
        assert!(text.contains("0.80 ×"), "{text}");
        assert!(!text.contains("(!)"), "{text}");
    }

    #[test]
    fn what_is_left_out_is_said_with_its_reason() {
        let (_, left_out) =
            crate::plan::pairings(&[Workload::HotProcesses], &[Store::Memory], Distance::Near);
        let said = "hot-processes on memory is left out: memory is not shared between processes.";
        let measured = Measured {
            left_out: &left_out,
            ..measured(&[])
        };
        assert!(table(&measured).contains(said));
    }

    #[test]
    fn numbers_are_written_for_people() {
        let written: Vec<_> = [0.0, 999.4, 1000.0, 1_234_567.8].map(thousands).into();
        assert_eq!(written, ["0", "999", "1,000", "1,234,568"]);
        let written: Vec<_> = [0.4, 12.34, 456.7, 4_567.0, 45_678.0, 2_000_000.0]
            .map(time)
            .into();
        assert_eq!(
            written,
            ["0.40 µs", "12.3 µs", "457 µs", "4.57 ms", "46 ms", "2.00 s"]
        );
    }
}
