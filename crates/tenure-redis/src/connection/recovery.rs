//! A member of a quorum that restarted may have forgotten claims that are still held. So clients place no claim on it
//! until the longest lease has passed since the restart.

use std::time::Duration;

use tenure_backend::Instant;

/// What a client knows of a server that is a member of a quorum.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_redis::{Config, Member, StoreUrl};
///
/// let member = Member { max_lease: Duration::from_secs(60), durable: false };
/// let config = Config::from_url(&StoreUrl::parse("redis://cache.example")?)?.member(member);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// The longest lease of any client of the quorum.
    pub max_lease: Duration,
    /// The operator vouches that no restart of the server loses a write that it has answered. No setting of the server
    /// proves that: it may have been changed since, and its disk may be a new one.
    ///
    /// Such a member may place claims as soon as it is up, if it has the token counter that each grant writes. A durable
    /// member without this counter has lost its data or is new, and keeps out like any other.
    pub durable: bool,
}

/// Returns the time until which claims may be held that a member has forgotten. `None` if it has been up for longer than
/// the longest lease, or if it forgets nothing and `has_counter`: each grant writes the token counter, which has no
/// expiry, so a member without it has lost its data or never granted a claim.
///
/// A restart breaks all connections, so it is enough to ask for `uptime`, in seconds, once on each.
pub(crate) fn recovers_until(
    member: &Member,
    uptime: u64,
    has_counter: bool,
    now: Instant,
) -> Option<Instant> {
    let until = now + missing(member.max_lease, Duration::from_secs(uptime));
    let has_its_data = member.durable && has_counter;
    (until > now && !has_its_data).then_some(until)
}

/// The part of `max_lease` that has not passed since the start of a server that shows this uptime. The server counts
/// whole seconds of its clock, so it may have been up for a second less than it shows.
fn missing(max_lease: Duration, uptime: Duration) -> Duration {
    (max_lease + Duration::from_secs(1)).saturating_sub(uptime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_recovers_until_the_longest_lease_has_passed() {
        let s = Duration::from_secs;
        assert_eq!(missing(s(60), s(0)), s(61));
        assert_eq!(missing(s(60), s(60)), s(1));
        assert_eq!(missing(s(60), s(61)), s(0));
        assert_eq!(missing(s(60), s(1_000)), s(0));
    }

    #[test]
    fn only_a_durable_member_with_its_counter_is_spared() {
        for (durable, has_counter, uptime, recovers) in [
            (true, true, 0, false),
            (true, false, 0, true),
            (false, true, 0, true),
            (true, false, 61, false),
            (false, true, 61, false),
        ] {
            let member = Member {
                max_lease: Duration::from_secs(60),
                durable,
            };
            let until = recovers_until(&member, uptime, has_counter, Instant::ORIGIN);
            assert_eq!(until.is_some(), recovers, "{member:?} {has_counter} {uptime}");
        }
    }
}
