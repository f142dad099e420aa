//! The text of a claim in a row: its ID, on a layout with tokens their number, and its label. A person who reads the table
//! sees who holds the key. The first word identifies the claim.

use std::sync::Arc;

use tenure_backend::{Claim, ClaimId, HolderId};

/// The first word of a row that an eviction keeps from being taken until its cooldown has passed.
pub(super) const EVICTED: &str = "evicted";

/// The longest text of a claim without a label, in characters. In a narrower column, the ID of one claim could be cut to that
/// of another.
pub(crate) const LONGEST_ID: usize = "00000000-0000-0000-0000-000000000000:18446744073709551615 1024".len();

/// What the row says about its holder.
#[derive(Debug, PartialEq)]
pub(super) struct Holder {
    pub(super) id: HolderId,
    pub(super) label: Option<Arc<str>>,
    /// Number of tokens that the claim reserved.
    pub(super) tokens: Option<u32>,
}

/// Writes a claim's text. The label is cut to fit the column.
pub(super) fn write(claim: &Claim, tokens: Option<u32>, width: usize) -> String {
    let tokens = tokens.map(|tokens| format!(" {tokens}")).unwrap_or_default();
    let mut text = format!("{}{tokens}", claim.at.id);
    if !claim.label.is_empty() {
        text.push(' ');
        text.push_str(&claim.label);
    }
    cut(text, width)
}

/// Writes the text of a row whose holder was evicted. Names the claim, so that only this claim learns of the eviction.
pub(super) fn write_evicted(holder: &HolderId, by: Option<&str>, width: usize) -> String {
    let claim = match holder {
        HolderId::Claim(id) => format!(" {id}"),
        _ => String::new(),
    };
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    cut(format!("{EVICTED}{claim}{by}"), width)
}

/// Returns who has evicted this claim, if a row's text says that it was evicted.
pub(super) fn read_evicted<'a>(text: &'a str, id: &str) -> Option<Option<&'a str>> {
    let rest = text.strip_prefix(EVICTED)?.strip_prefix(' ')?.strip_prefix(id)?;
    match rest {
        "" => Some(None),
        rest => Some(Some(rest.strip_prefix(" by ")?)),
    }
}

fn cut(mut text: String, width: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(width) {
        text.truncate(end);
    }
    text
}

/// Reads what `write` wrote; any other text is a foreign holder's name.
pub(super) fn read(text: &str, has_tokens: bool) -> Holder {
    let (id, rest) = text.split_once(' ').unwrap_or((text, ""));
    let Ok(id) = id.parse::<ClaimId>() else {
        return Holder {
            id: HolderId::Foreign(text.into()),
            label: None,
            tokens: None,
        };
    };
    let (tokens, label) = match has_tokens {
        true => rest.split_once(' ').unwrap_or((rest, "")),
        false => ("", rest),
    };
    Holder {
        id: HolderId::Claim(id),
        label: Some(label.into()),
        tokens: tokens.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_backend::{ClaimRef, ClientId, LockKey};

    use super::*;

    fn claim(label: &str) -> Claim {
        let id = ClaimId::new(ClientId::from_random([7; 16]), 3);
        let key = LockKey::new("k").expect("a key");
        Claim {
            label: label.into(),
            ..Claim::of(ClaimRef { key, id }, Duration::from_secs(1))
        }
    }

    #[test]
    fn a_claim_is_read_as_it_was_written() {
        for (label, tokens) in [
            ("", None),
            ("ada@web-1:4711", None),
            ("", Some(2)),
            ("a b  c", Some(1024)),
        ] {
            let claim = claim(label);
            let text = write(&claim, tokens, 255);
            let expected = Holder {
                id: HolderId::Claim(claim.at.id),
                label: Some(label.into()),
                tokens,
            };
            assert_eq!(read(&text, tokens.is_some()), expected, "{text}");
        }
    }

    #[test]
    fn a_long_label_is_cut_at_a_character() {
        let text = write(&claim(&"ä".repeat(300)), Some(7), 100);
        assert_eq!(text.chars().count(), 100);
        assert_eq!(read(&text, true).tokens, Some(7));
    }

    #[test]
    fn only_the_evicted_claim_learns_of_its_eviction() {
        let id = claim("").at.id;
        for by in [None, Some("alice and bob")] {
            let text = write_evicted(&HolderId::Claim(id), by, 255);
            assert_eq!(read_evicted(&text, &id.to_string()), Some(by), "{text}");
            let other = ClaimId::new(id.client(), 33).to_string();
            assert_eq!(read_evicted(&text, &other), None, "{text}");
            assert_eq!(read(&text, true).id, HolderId::Foreign(text.as_str().into()));
        }
        let text = write_evicted(&HolderId::Foreign("web-1".into()), Some("alice"), 255);
        assert_eq!(text, "evicted by alice");
    }

    #[test]
    fn other_texts_are_foreign_holders() {
        for text in ["web-1", "07070707-0707-4707-8707-070707070707:thread-12", ""] {
            assert_eq!(read(text, false).id, HolderId::Foreign(text.into()));
        }
    }
}
