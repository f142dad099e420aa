//! A member of a quorum that restarted may have forgotten claims that are still held. So clients place no claim on it
//! until the longest lease has passed since the restart.

use std::time::Duration;

use tenure_backend::{BackendError, Effect, Fault, Instant};

use crate::config::Config;
use crate::connection::wire::Wire;

/// Returns the time until which claims may be held that the server has forgotten. `None` if the server is no member of
/// a quorum, has been up for longer than the longest lease, or syncs every write to its disk.
///
/// A restart breaks all connections, so it is enough to ask once on each.
pub(crate) async fn recovers_until(wire: &Wire, config: &Config) -> Result<Option<Instant>, BackendError> {
    let Some(max_lease) = config.max_lease else {
        return Ok(None);
    };
    let uptime = wire.info("server").await?.get("uptime_in_seconds");
    let uptime = uptime.map(Duration::from_secs).ok_or_else(|| {
        let message = "the server does not tell its uptime, which a quorum needs of its servers";
        BackendError::new(Fault::Store, Effect::None, message)
    })?;
    let until = config.clock.now() + missing(max_lease, uptime);
    if until <= config.clock.now() || syncs_every_write(wire).await {
        return Ok(None);
    }
    Ok(Some(until))
}

/// The part of `max_lease` that has not passed since the start of a server that shows this uptime. The server counts
/// whole seconds of its clock, so it may have been up for a second less than it shows.
fn missing(max_lease: Duration, uptime: Duration) -> Duration {
    (max_lease + Duration::from_secs(1)).saturating_sub(uptime)
}

/// Returns whether a restart of the server forgets nothing. False if the server does not tell.
async fn syncs_every_write(wire: &Wire) -> bool {
    wire.setting("appendonly").await.as_deref() == Some("yes")
        && wire.setting("appendfsync").await.as_deref() == Some("always")
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
}
