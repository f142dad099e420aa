//! A member of a quorum that restarted may have forgotten claims whose holders still believe in them. It places no claim
//! until the longest lease has passed.

use std::time::Duration;

use redis::Value;
use tenure_backend::{BackendError, Effect, Fault, Instant};

use crate::claims::reply::{list, text};
use crate::config::Config;
use crate::connection::wire::Wire;

/// Returns the time until which the server may have forgotten claims that still hold. `None` if it is no member of a
/// quorum, has been up for longer than the longest lease, or syncs every write to its disk.
///
/// A restart breaks all connections, so it is enough to ask once on each.
pub(crate) async fn recovers_until(wire: &Wire, config: &Config) -> Result<Option<Instant>, BackendError> {
    let Some(max_lease) = config.max_lease else {
        return Ok(None);
    };
    let info = wire.query(redis::cmd("INFO").arg("server")).await?;
    let until = config.clock.now() + missing(max_lease, uptime(&info).ok_or_else(no_uptime)?);
    if until <= config.clock.now() || syncs_every_write(wire).await {
        return Ok(None);
    }
    Ok(Some(until))
}

/// The rest of `max_lease` for a server that shows this uptime. The server counts whole seconds of its clock, so it may
/// have been up for a second less.
fn missing(max_lease: Duration, uptime: Duration) -> Duration {
    (max_lease + Duration::from_secs(1)).saturating_sub(uptime)
}

fn uptime(info: &Value) -> Option<Duration> {
    let mut lines = text(info)?.lines();
    let seconds = lines.find_map(|line| line.strip_prefix("uptime_in_seconds:"))?;
    Some(Duration::from_secs(seconds.trim().parse().ok()?))
}

/// Returns whether a restart of the server forgets nothing. False if the server does not tell.
async fn syncs_every_write(wire: &Wire) -> bool {
    let reply = wire.query(redis::cmd("CONFIG").arg("GET").arg("append*")).await;
    let settings = reply.as_ref().ok().and_then(list).unwrap_or_default();
    let is_set = |name, value| {
        let mut pairs = settings.chunks_exact(2);
        pairs.any(|pair| text(&pair[0]) == Some(name) && text(&pair[1]) == Some(value))
    };
    is_set("appendonly", "yes") && is_set("appendfsync", "always")
}

fn no_uptime() -> BackendError {
    let message = "the server does not tell its uptime, which a quorum needs of its servers";
    BackendError::new(Fault::Store, Effect::None, message)
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
    fn the_uptime_is_read_from_info() {
        let info = |text: &str| Value::BulkString(text.into());
        let shown = info("# Server\r\nredis_version:7.0.15\r\nuptime_in_seconds:42\r\nhz:10\r\n");
        assert_eq!(uptime(&shown), Some(Duration::from_secs(42)));
        assert_eq!(uptime(&info("# Server\r\n")), None);
    }
}
