//! The first calls on a connection, in one round trip: they load the scripts, and ask the server for its clock and its
//! role, and a member of a quorum for its uptime.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, InfoDict, RedisResult, Value};
use tenure_backend::{BackendError, Effect, Fault, Instant};
use tenure_endpoint::Host;

use crate::claims::names::COUNTER;
use crate::claims::reply::{integer, list, text};
use crate::claims::script::Dialect;
use crate::config::Config;
use crate::connection::connect_error::{ConnectError, no_time};
use crate::connection::recovery::recovers_until;

/// What a server says to a client that has logged in.
pub(crate) struct Greeting {
    /// The server's clock, in microseconds since 1970.
    pub(crate) time: u64,
    /// Arrival of the replies, on this client's clock.
    pub(crate) arrived: Instant,
    pub(crate) round_trip: Duration,
    /// The server's role; its refusal if this user may not call `ROLE`, or the server does not know it.
    pub(crate) role: RedisResult<Role>,
    /// Time until which the server must place no claim; see [`recovers_until`].
    pub(crate) recovers_until: Option<Instant>,
}

/// The role of a server in replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A master, with the number of its replicas; `None` if it does not tell that.
    Master {
        replicas: Option<u64>,
    },
    Replica,
}

impl Role {
    /// The role of a server that does not tell it.
    pub(crate) const MASTER: Role = Role::Master { replicas: None };

    /// Decodes the reply of `ROLE`. A server that does not call itself a replica counts as a master.
    pub(crate) fn decode(reply: &Value) -> Self {
        match list(reply) {
            Some([role, ..]) if text(role) == Some("slave") => Role::Replica,
            Some([_, _, replicas]) => Role::Master {
                replicas: list(replicas).map(|replicas| replicas.len() as u64),
            },
            _ => Role::MASTER,
        }
    }

    /// Asks for the role with `INFO`, for a user that may not call `ROLE`. A server that refuses that too counts as a
    /// master.
    pub(crate) async fn by_info(connection: &mut MultiplexedConnection) -> RedisResult<Self> {
        let info: RedisResult<InfoDict> = redis::cmd("INFO")
            .arg("replication")
            .query_async(connection)
            .await;
        match info {
            Ok(info) if info.get("role").is_some_and(|role: String| role == "slave") => Ok(Role::Replica),
            Err(error) if error.code().is_none() => Err(error),
            _ => Ok(Role::MASTER),
        }
    }
}

impl Greeting {
    pub(crate) async fn exchange(
        connection: &mut MultiplexedConnection,
        config: &Config,
        server: &Host,
        dialect: Dialect,
    ) -> Result<Self, ConnectError> {
        let mut calls = redis::pipe();
        calls.cmd("ROLE");
        if config.member.is_some() {
            calls.cmd("INFO").arg("server").cmd("EXISTS").arg(COUNTER);
        }
        for script in config.layout.scripts().first() {
            calls.add_command(script.load(dialect));
        }
        calls.cmd("TIME");
        let sent = config.clock.now();
        let replies = connection.send_packed_commands(&calls, 0, calls.len()).await?;
        let arrived = config.clock.now();
        let mut replies = replies.into_iter().map(Value::extract_error);
        let mut next = || replies.next().unwrap_or(Ok(Value::Nil));
        let role = next().map(|reply| Role::decode(&reply));
        let recovers_until = match &config.member {
            None => None,
            Some(member) => {
                let uptime = uptime(next()?)?;
                let has_counter = next().is_ok_and(|count| integer(&count) == Some(1));
                recovers_until(member, uptime, has_counter, arrived)
            }
        };
        let rest = replies.collect::<RedisResult<Vec<_>>>()?;
        let time = rest.last().and_then(time).ok_or_else(|| no_time(server))?;
        Ok(Greeting {
            time,
            arrived,
            round_trip: arrived - sent,
            role,
            recovers_until,
        })
    }
}

/// The server's uptime in seconds, from its reply to `INFO`. The server subtracts two times of its clock, so the difference is
/// negative after the clock was set back to before the start. It then counts as 0, and the member recovers as after a restart.
fn uptime(info: Value) -> Result<u64, BackendError> {
    let info = InfoDict::from_redis_value(info).ok();
    let uptime: Option<i64> = info.and_then(|info| info.get("uptime_in_seconds"));
    let uptime = uptime.ok_or_else(|| {
        let message = "the server does not tell its uptime, which a quorum needs of its servers";
        BackendError::new(Fault::Store, Effect::None, message)
    })?;
    Ok(u64::try_from(uptime).unwrap_or(0))
}

/// Decodes the reply of `TIME` into microseconds. Returns `None` if it is malformed or too large.
pub(crate) fn time(value: &Value) -> Option<u64> {
    let [seconds, micros] = list(value)? else {
        return None;
    };
    integer(seconds)?
        .checked_mul(1_000_000)?
        .checked_add(integer(micros)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_uptime_below_zero_counts_as_zero() {
        let uptime = |info: &str| uptime(Value::BulkString(info.into())).ok();
        let server =
            |seconds: &str| format!("# Server\r\nuptime_in_seconds:{seconds}\r\nuptime_in_days:0\r\n");
        assert_eq!(uptime(&server("61")), Some(61));
        assert_eq!(uptime(&server("-3600")), Some(0));
        assert_eq!(uptime(&server("soon")), None);
        assert_eq!(uptime("# Server\r\n"), None);
    }
}
