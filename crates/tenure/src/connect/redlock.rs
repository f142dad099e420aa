//! Opens a quorum of Redis servers: RedLock.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tenure_backend::{Backend, BackendError, Effect, Fault};
use tenure_endpoint::{Known, Options, StoreUrl};
use tenure_quorum::{Config, Quorum};
use tenure_redis::{Layout, Member, RedisStore};
use tokio::time::{Instant, timeout_at};

use crate::error::Error;

/// The options of the quorum itself. All other options in the URL apply to each server.
const OPTIONS: &[Known] = &[
    Known::one_of("layout", &["plain", "redisson"]),
    Known::limit("max_lease"),
    Known::limit("member_timeout"),
    Known::flag("durable"),
    Known::text("drift"),
];

/// Connects to the servers of `redlock://[user:pass@]host[:port],…[/db][?options]`, or `redlocks://…` for TLS.
///
/// Fails if no majority can be used: with a permanent error if so many servers refuse this client, for example its
/// password, that there can be no majority without them. Once a majority is connected, waits up to `member_timeout` for
/// the other servers. Servers that are not connected by then connect in the background.
pub(super) async fn open(url: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    let (options, servers) = url.split_options(OPTIONS)?;
    let max_lease = options.duration("max_lease").unwrap_or(Config::MAX_LEASE);
    let member_timeout = options
        .duration("member_timeout")
        .unwrap_or(Config::MEMBER_TIMEOUT);
    let config = Config::default()
        .member_timeout(member_timeout)
        .max_lease(max_lease)
        .drift(drift(&options))?;
    let member = Member {
        max_lease,
        durable: options.flag("durable").unwrap_or(false),
    };
    // Unlike on a single server, `plain` is the default, because other RedLock libraries use it.
    let layout = match options.one_of("layout") {
        Some("redisson") => Layout::Redisson,
        _ => Layout::Plain,
    };
    let scheme = match url.scheme() {
        "redlocks" => "rediss",
        _ => "redis",
    };
    let servers: Result<Vec<_>, BackendError> = servers
        .members(scheme)
        .iter()
        .map(tenure_redis::Config::from_url)
        .collect();
    let servers: Vec<_> = servers?
        .into_iter()
        .map(|server| server.layout(layout.clone()).member(member))
        .collect();
    let members = connect(servers, member_timeout).await?;
    Ok(Quorum::new(members, config)?)
}

/// Reads `drift` from the options. A text that is no number becomes NaN, which `Config::drift` refuses.
fn drift(options: &Options) -> f64 {
    let given = options.text("drift");
    given.map_or(Config::DRIFT, |drift| drift.parse().unwrap_or(f64::NAN))
}

/// Connects to at least a majority of the servers, or fails. The others connect in the background, also those that refuse
/// this client now: passwords are changed server by server.
async fn connect(
    servers: Vec<tenure_redis::Config>,
    grace: Duration,
) -> Result<Vec<Arc<dyn Backend>>, BackendError> {
    let majority = servers.len() / 2 + 1;
    let mut opened: Vec<Option<Arc<RedisStore>>> = vec![None; servers.len()];
    let opening = servers.iter().cloned().enumerate();
    let mut opening: FuturesUnordered<_> = opening
        .map(async |(at, server)| (at, RedisStore::connect(server).await))
        .collect();
    let (mut until, mut unreachable, mut refused) = (None, None, Vec::new());
    loop {
        let next = match until {
            Some(until) => timeout_at(until, opening.next()).await.ok().flatten(),
            None => opening.next().await,
        };
        match next {
            Some((at, Ok(store))) => opened[at] = Some(store),
            Some((_, Err(error))) if error.is_transient() => unreachable = Some(error),
            // A wrong setting of the URL concerns all servers.
            Some((_, Err(error))) if error.fault() == Fault::Invalid => return Err(error),
            Some((_, Err(error))) => refused.push(error),
            None => break,
        }
        if refused.len() > servers.len() - majority {
            break;
        }
        if until.is_none() && opened.iter().flatten().count() == majority {
            until = Some(Instant::now() + grace);
        }
    }
    if until.is_none() {
        // A refusal is the cause only if the servers without one are no majority.
        let permanent = refused.len() > servers.len() - majority;
        let cause = if permanent { refused.pop() } else { unreachable };
        let message = format!(
            "fewer than {majority} of the {} servers can be used",
            servers.len()
        );
        return Err(match cause {
            Some(cause) => BackendError::because(cause.fault(), Effect::None, message, cause),
            None => BackendError::new(Fault::Unavailable, Effect::None, message),
        });
    }
    for error in refused {
        tracing::warn!(%error, "a server of the quorum cannot be used");
    }
    let member = |(store, server): (Option<Arc<RedisStore>>, _)| -> Result<Arc<dyn Backend>, _> {
        Ok(match store {
            Some(store) => store,
            None => RedisStore::connect_later(server)?,
        })
    };
    opened.into_iter().zip(servers).map(member).collect()
}
