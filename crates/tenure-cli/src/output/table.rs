//! The tables of `ls` and `show` without `--json`.

use tenure::backend::escape_control;

use super::status::{Claimant, Holder, KeyStatus};

/// Formats the table of `ls`: a row for each holder, and one for a key that has only waiters. Returns an empty text if
/// there are no keys.
pub fn list(keys: &[KeyStatus]) -> String {
    let mut rows = Vec::new();
    for status in keys {
        let queue = status
            .waiters
            .as_ref()
            .map_or("?".to_owned(), |waiters| waiters.len().to_string());
        let row = |holder: Option<&Holder>| {
            let [who, mode, token, left] =
                holder.map_or(["-".into(), "-".into(), "-".into(), "-".into()], cells);
            vec![status.key.clone(), mode, who, token, left, queue.clone()]
        };
        if status.holders.is_empty() {
            rows.push(row(None));
        }
        rows.extend(status.holders.iter().map(|holder| row(Some(holder))));
    }
    aligned(&["KEY", "MODE", "HOLDER", "TOKEN", "LEFT", "WAITERS"], &rows)
}

/// Formats the text of `show`: one key, its holders and its waiters in order. `only_fair`: unfair waiters are not shown.
pub fn show(status: &KeyStatus, only_fair: bool) -> String {
    let kind = status.kind.map_or(String::new(), |kind| format!(" ({kind})"));
    let mut text = format!("{}{kind}\n", escape_control(&status.key));
    if status.holders.is_empty() {
        text.push_str("\nnot held\n");
    } else {
        let rows: Vec<Vec<String>> = status
            .holders
            .iter()
            .map(|holder| {
                let [who, mode, token, left] = cells(holder);
                vec![who, mode, token, left, holder.who.claim.clone()]
            })
            .collect();
        text.push('\n');
        text.push_str(&aligned(&["HOLDER", "MODE", "TOKEN", "LEFT", "CLAIM"], &rows));
    }
    match &status.waiters {
        None => text.push_str("\nwaiters unknown: this store does not show them\n"),
        Some(waiters) if waiters.is_empty() => text.push_str(match only_fair {
            true => "\nno waiters (only fair waiters are shown)\n",
            false => "\nno waiters\n",
        }),
        Some(waiters) => {
            let rows: Vec<Vec<String>> = waiters
                .iter()
                .map(|waiter| {
                    let place = waiter
                        .position
                        .map_or("-".to_owned(), |position| (position + 1).to_string());
                    let who = &waiter.who;
                    vec![place, who.name(), who.mode.to_owned(), who.claim.clone()]
                })
                .collect();
            text.push('\n');
            text.push_str(&aligned(&["PLACE", "WAITER", "MODE", "CLAIM"], &rows));
        }
    }
    text
}

/// Returns the cells of a holder: label, mode, token and time left.
pub(super) fn cells(holder: &Holder) -> [String; 4] {
    let mode = match holder.permits {
        Some(permits) => format!("{permits} {}", holder.who.mode),
        None => holder.who.mode.to_owned(),
    };
    let token = holder.token.map_or("-".to_owned(), |token| token.to_string());
    let left = holder.remaining_ms.map_or("-".to_owned(), seconds);
    [holder.who.name(), mode, token, left]
}

impl Claimant {
    pub(super) fn name(&self) -> String {
        match (&self.label, self.foreign) {
            (Some(label), false) => label.to_owned(),
            (Some(label), true) => format!("{label} (foreign)"),
            (None, false) => "-".to_owned(),
            (None, true) => "(foreign)".to_owned(),
        }
    }
}

fn seconds(remaining_ms: u64) -> String {
    format!("{}.{}s", remaining_ms / 1000, remaining_ms % 1000 / 100)
}

/// Aligns the columns to their widest cells, two spaces apart, without spaces at line ends.
fn aligned(titles: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let head: Vec<String> = titles.iter().map(|title| (*title).to_owned()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(&head)
        .chain(rows)
        .map(|line| {
            line.iter()
                .map(|cell| escape_control(cell).into_owned())
                .collect()
        })
        .collect();
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Waiter;
    use super::super::status::claimant;
    use super::*;

    fn holder(label: &str, mode: &'static str, permits: Option<u32>) -> Holder {
        Holder {
            who: claimant(&format!("claim-{label}"), Some(label), mode),
            permits,
            token: Some(1_732_000_000_000_001),
            remaining_ms: Some(29_950),
        }
    }

    fn keys() -> Vec<KeyStatus> {
        let stranger = Holder {
            who: claimant("x:1", None, "exclusive"),
            permits: None,
            token: None,
            remaining_ms: None,
        };
        let waiter = |label: &str, position| Waiter {
            who: claimant(&format!("claim-{label}"), Some(label), "exclusive"),
            position,
        };
        vec![
            KeyStatus {
                key: "backup".into(),
                kind: Some("mutex"),
                holders: vec![holder("ann@host:1", "exclusive", None)],
                waiters: Some(vec![waiter("bob@host:2", Some(0)), waiter("cy@host:3", None)]),
            },
            KeyStatus {
                key: "po\u{202e}ol".into(),
                kind: Some("semaphore"),
                holders: vec![
                    holder("a", "permits", Some(2)),
                    holder("b\u{1b}[2J", "permits", Some(1)),
                ],
                waiters: Some(vec![]),
            },
            KeyStatus {
                key: "java".into(),
                kind: Some("mutex"),
                holders: vec![stranger],
                waiters: None,
            },
            KeyStatus {
                key: "free".into(),
                kind: Some("mutex"),
                holders: vec![],
                waiters: Some(vec![waiter("d", Some(0))]),
            },
        ]
    }

    #[test]
    fn a_list_has_a_row_for_each_holder() {
        assert_eq!(
            list(&keys()),
            "\
KEY           MODE       HOLDER      TOKEN             LEFT   WAITERS
backup        exclusive  ann@host:1  1732000000000001  29.9s  2
po\\u{202e}ol  2 permits  a           1732000000000001  29.9s  0
po\\u{202e}ol  1 permits  b\\u{1b}[2J  1732000000000001  29.9s  0
java          exclusive  (foreign)   -                 -      ?
free          -          -           -                 -      1
"
        );
        assert_eq!(list(&[]), "");
    }

    #[test]
    fn one_key_shows_its_holders_and_its_queue() {
        assert_eq!(
            show(&keys()[0], true),
            "\
backup (mutex)

HOLDER      MODE       TOKEN             LEFT   CLAIM
ann@host:1  exclusive  1732000000000001  29.9s  claim-ann@host:1

PLACE  WAITER      MODE       CLAIM
1      bob@host:2  exclusive  claim-bob@host:2
-      cy@host:3   exclusive  claim-cy@host:3
"
        );
        assert!(show(&keys()[1], true).ends_with("\nno waiters (only fair waiters are shown)\n"));
        assert!(show(&keys()[1], false).ends_with("\nno waiters\n"));
        assert!(show(&keys()[2], true).ends_with("\nwaiters unknown: this store does not show them\n"));
        assert!(show(&keys()[3], true).contains("\nnot held\n"));
    }
}
