//! IDs of clients, claims and owners, and their text forms.

use std::fmt;
use std::str::FromStr;

use crate::LockKey;

/// ID of one client of one process: a random UUID (version 4), chosen when the client is created.
///
/// No two clients share an ID, even on one host. An ID made of host and process number could repeat after a restart.
///
/// # Examples
/// ```
/// use tenure_backend::ClientId;
///
/// let id = ClientId::from_random([7; 16]);
/// assert_eq!(id.to_string(), "07070707-0707-4707-8707-070707070707");
/// assert_eq!(ClientId::from_bytes(*id.as_bytes()), id);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId([u8; 16]);

impl ClientId {
    /// Makes an ID from 16 random bytes. The UUID's version and variant replace six of the bits.
    pub const fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        ClientId(bytes)
    }

    /// The 16 bytes, for stores that keep them in binary form.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Makes an ID from the bytes that [`as_bytes`](Self::as_bytes) returned.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        ClientId(bytes)
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// ID of one claim: chosen before the first byte is sent, and never used for another claim.
///
/// Its text is `uuid:number`, as Redisson writes its owners. The number counts the client's claims from 1.
///
/// # Examples
/// ```
/// use tenure_backend::{ClaimId, ClientId};
///
/// let id = ClaimId::new(ClientId::from_random([7; 16]), 3);
/// assert_eq!(id.to_string(), "07070707-0707-4707-8707-070707070707:3");
/// assert_eq!(id.to_string().parse(), Ok(id));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId {
    client: ClientId,
    number: u64,
}

impl ClaimId {
    /// Makes the ID of the client's claim with this number. Clients use numbers that fit a signed 64-bit column.
    pub const fn new(client: ClientId, number: u64) -> Self {
        ClaimId { client, number }
    }

    /// The client that made the claim.
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// The claim's number within its client.
    pub const fn number(&self) -> u64 {
        self.number
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.number)
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error for a text that is not a [`ClaimId`] of the form `uuid:number`.
///
/// # Examples
/// ```
/// use tenure_backend::ClaimId;
///
/// let text = "07070707-0707-4707-8707-070707070707:3";
/// assert!(text.parse::<ClaimId>().is_ok());
/// for other in ["thread-12", &text.replace('-', ""), &format!("{text} ")] {
///     assert!(other.parse::<ClaimId>().is_err());
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a claim: expected a client's uuid, a colon and a number")]
#[non_exhaustive]
pub struct InvalidClaimId;

impl FromStr for ClaimId {
    type Err = InvalidClaimId;

    /// Accepts exactly what `Display` writes, so each claim has one text.
    fn from_str(text: &str) -> Result<Self, InvalidClaimId> {
        let (uuid, number) = text.split_once(':').ok_or(InvalidClaimId)?;
        let number = number.parse().map_err(|_| InvalidClaimId)?;
        let mut digits = uuid
            .bytes()
            .filter(|b| *b != b'-')
            .map(|b| (b as char).to_digit(16));
        let mut bytes = [0; 16];
        for byte in &mut bytes {
            let (Some(Some(high)), Some(Some(low))) = (digits.next(), digits.next()) else {
                return Err(InvalidClaimId);
            };
            *byte = u8::try_from(high << 4 | low).map_err(|_| InvalidClaimId)?;
        }
        let id = ClaimId::new(ClientId(bytes), number);
        if id.to_string() == text {
            Ok(id)
        } else {
            Err(InvalidClaimId)
        }
    }
}

/// A claim's ID together with its key. Renewals and releases identify claims by both.
///
/// # Examples
/// ```
/// use tenure_backend::{ClaimId, ClaimRef, ClientId, LockKey};
///
/// let id = ClaimId::new(ClientId::from_random([7; 16]), 3);
/// let on = |key| ClaimRef { key: LockKey::new(key).unwrap(), id };
/// // A store looks a claim up by key and ID. The same ID on another key is no claim.
/// assert_ne!(on("order:42"), on("order:43"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClaimRef {
    /// The key that the claim is for.
    pub key: LockKey,
    /// The claim's ID.
    #[cfg_attr(feature = "serde", serde(rename = "claim"))]
    pub id: ClaimId,
}

impl fmt::Debug for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} by {}", self.key, self.id)
    }
}

/// Number of the owner of a claim within its client. All claims of one `Owner` have the same number.
///
/// The client counts re-entry in memory, so a store never decides by this number. It may record the number for people.
///
/// # Examples
/// ```
/// use tenure_backend::{Mode, OwnerId};
///
/// // To the store, two claims of one owner are two claims. Only the client lets an owner enter twice.
/// let (outer, inner) = ((OwnerId::new(1), Mode::Exclusive), (OwnerId::new(1), Mode::Exclusive));
/// assert_eq!(outer.0, inner.0);
/// assert!(!inner.1.admits([outer.1]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(u64);

impl OwnerId {
    /// Creates the ID from the number that the client gave the owner; 0 for claims without an owner.
    pub const fn new(number: u64) -> Self {
        OwnerId(number)
    }

    /// Returns the number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_id_has_exactly_one_text() {
        let id = ClaimId::new(ClientId::from_random([0xab; 16]), u64::MAX);
        let text = id.to_string();
        assert_eq!(text.parse(), Ok(id));
        for other in [
            text.to_uppercase(),
            text.replace('-', ""),
            format!("{text}0"),
            text.replace(':', ":+"),
            String::new(),
        ] {
            assert_eq!(other.parse::<ClaimId>(), Err(InvalidClaimId), "{other}");
        }
    }
}
