//! A connection that subscribes: to channels of a server, or to the sharded ones of a cluster's node.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream::{BoxStream, unfold};
use redis::aio::{MultiplexedConnection, PubSub, PubSubSink};
use redis::{AsyncConnectionConfig, FromRedisValue, ProtocolVersion, PushInfo, PushKind, RedisError, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::claims::names::CLIENT_CHANNEL;
use crate::claims::script::Dialect;
use crate::connection::connect_error::ConnectError;
use crate::connection::dial::Dialer;
use crate::connection::driver::log_in;
use crate::connection::wire::dialect_of_node;

/// What a subscribed connection receives.
pub(super) enum Event {
    /// A message came on a channel.
    Message { channel: String, message: String },
    /// The server sends no more messages of this channel, as after its slot has moved to another node.
    Unsubscribed(String),
}

/// Why the server has not confirmed a subscription.
pub(super) enum NotSubscribed {
    /// The user may not subscribe to one of the channels.
    Refused,
    /// The connection has failed.
    Lost,
}

/// Changes the subscriptions of a connection.
#[derive(Clone)]
pub(super) enum Subscriber {
    Plain(PubSubSink),
    /// For sharded channels: a message does not go to all nodes of the cluster, but only to subscribers at the node
    /// of the channel's slot.
    Sharded(MultiplexedConnection),
}

/// Connects. The stream of events ends with the connection.
pub(super) async fn open(dialer: &Dialer) -> Result<(Subscriber, BoxStream<'static, Event>), ConnectError> {
    if dialer.moves.is_some()
        && let Some(sharded) = open_sharded(dialer).await?
    {
        return Ok(sharded);
    }
    let stream = dialer.streams.open(&dialer.located().await?, None).await?;
    let (sink, stream) = PubSub::new(&dialer.handshake().await?, stream).await?.split();
    let events = stream.map(|message| Event::Message {
        channel: message.get_channel_name().to_owned(),
        message: String::from_utf8_lossy(message.get_payload_bytes()).into_owned(),
    });
    Ok((Subscriber::Plain(sink), events.boxed()))
}

/// Connects to a node of a cluster; `None` if it has no sharded channels.
async fn open_sharded(
    dialer: &Dialer,
) -> Result<Option<(Subscriber, BoxStream<'static, Event>)>, ConnectError> {
    let (sender, pushes) = unbounded_channel();
    let settings = AsyncConnectionConfig::new().set_push_sender(sender);
    // Only in this version of the protocol does the redis crate pass pushed messages to `sender`.
    let login = dialer.handshake().await?.set_protocol(ProtocolVersion::RESP3);
    let stream = dialer.streams.open(&dialer.located().await?, None).await?;
    let (mut connection, driver) = log_in(stream, &login, settings).await?;
    if dialect_of_node(&mut connection).await? != Dialect::ShardedCluster {
        return Ok(None);
    }
    let events = unfold((pushes, driver), async |(mut pushes, driver)| {
        let event = next_event(&mut pushes).await?;
        Some((event, (pushes, driver)))
    });
    Ok(Some((Subscriber::Sharded(connection), events.boxed())))
}

async fn next_event(pushes: &mut UnboundedReceiver<PushInfo>) -> Option<Event> {
    loop {
        let PushInfo { kind, data } = pushes.recv().await?;
        let mut data = data.into_iter();
        let mut text = || String::from_redis_value(data.next()?).ok();
        match kind {
            PushKind::SMessage | PushKind::Message => {
                let channel = text()?;
                let message = text().unwrap_or_default();
                return Some(Event::Message { channel, message });
            }
            PushKind::SUnsubscribe => return text().map(Event::Unsubscribed),
            PushKind::Disconnection => return None,
            _ => {}
        }
    }
}

impl Subscriber {
    /// Subscribes to all these channels.
    pub(super) async fn subscribe(&mut self, channels: &[Arc<str>]) -> Result<(), NotSubscribed> {
        let subscribed = match self {
            Subscriber::Plain(sink) => sink.subscribe(texts(channels)).await,
            Subscriber::Sharded(connection) => each(connection, "SUBSCRIBE", channels).await,
        };
        subscribed.map_err(|error| match error.code() {
            Some("NOPERM") => NotSubscribed::Refused,
            _ => NotSubscribed::Lost,
        })
    }

    pub(super) async fn unsubscribe(&mut self, channels: &[Arc<str>]) -> Option<()> {
        match self {
            Subscriber::Plain(sink) => sink.unsubscribe(texts(channels)).await.ok(),
            Subscriber::Sharded(connection) => each(connection, "UNSUBSCRIBE", channels).await.ok(),
        }
    }

    pub(super) async fn ping(&mut self) -> Option<()> {
        match self {
            Subscriber::Plain(sink) => sink.ping::<Value>().await.ok().map(drop),
            Subscriber::Sharded(connection) => redis::cmd("PING").exec_async(connection).await.ok(),
        }
    }
}

fn texts(channels: &[Arc<str>]) -> Vec<&str> {
    channels.iter().map(|channel| &**channel).collect()
}

/// Sends one command for each channel, because channels in different slots cannot share one. The channels of clients
/// belong to no slot.
async fn each(
    connection: &MultiplexedConnection,
    command: &str,
    channels: &[Arc<str>],
) -> Result<(), RedisError> {
    let calls = channels.iter().map(async |channel| {
        let mut command = match channel.starts_with(CLIENT_CHANNEL) {
            true => redis::cmd(command),
            false => redis::cmd(&format!("S{command}")),
        };
        command.arg(&**channel).exec_async(&mut connection.clone()).await
    });
    try_join_all(calls).await.map(drop)
}
