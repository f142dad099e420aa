//! The task of a session: it keeps a connection, and opens another one when that breaks, until the session ends.

use std::convert::Infallible;
use std::time::Duration;

use tenure_backend::Effect;
use tenure_endpoint::Refused;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::connect::{Connection, Connector};
use super::exchange::Exchange;
use super::order::Order;
use super::watch::{Event, Registry};
use crate::error::session_ended;

/// The pause after each round in which no host served the session.
const PAUSE: Duration = Duration::from_millis(50);

/// Whether a session can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is a connection.
    Connected,
    /// There is no connection, and the client tries to open one. The session may have expired.
    Disconnected,
    /// The session has ended.
    Ended,
}

/// What is known of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The number of the session: the owner of its ephemeral nodes.
    pub id: i64,
    /// Time without a sign of life after which ZooKeeper ends the session, as the last server has said.
    pub timeout: Duration,
    /// The last host that served the session.
    pub server: String,
    /// Whether the session can be used.
    pub state: State,
}

/// The task's own data.
pub(super) struct Driver {
    pub(super) connector: Connector,
    pub(super) orders: mpsc::Receiver<Order>,
    pub(super) info: watch::Sender<SessionInfo>,
    pub(super) registry: Registry,
}

impl Driver {
    /// Serves the session until it ends. `alive` ends when the client is closed.
    pub(super) async fn run(mut self, first: Connection, mut alive: mpsc::Receiver<Infallible>) {
        let mut connection = first;
        while let Some(pause) = self.serve(connection, &mut alive).await {
            self.info.send_modify(|info| info.state = State::Disconnected);
            let opened = tokio::select! {
                opened = self.reconnect(pause) => opened,
                _ = alive.recv() => None,
            };
            let Some((server, opened)) = opened else {
                break;
            };
            connection = opened;
            self.info.send_modify(|info| {
                info.server = server;
                info.timeout = self.connector.timeout;
                info.state = State::Connected;
            });
            self.registry.fire_all(Event::Reconnected);
        }
        self.info.send_modify(|info| info.state = State::Ended);
        self.registry.fire_all(Event::SessionEnded);
        self.orders.close();
        while let Ok(order) = self.orders.try_recv() {
            // Fails if the caller has given up.
            let _ = order.reply.send(Err(session_ended(Effect::None)));
        }
    }

    /// Serves one connection until it breaks. Returns the pause before the next one: if this one broke at once, before the
    /// server had answered a request, the servers may do so again. `None` if the session was closed, or the client was dropped.
    async fn serve(
        &mut self,
        connection: Connection,
        alive: &mut mpsc::Receiver<Infallible>,
    ) -> Option<Duration> {
        let Connection { mut reader, writer } = connection;
        let opened_at = Instant::now();
        let mut exchange = Exchange::new(writer, self.connector.timeout, opened_at);
        let last_zxid = &mut self.connector.last_zxid;
        let cause = loop {
            let deadline = exchange.deadline();
            tokio::select! {
                message = reader.next() => match message {
                    Ok(message) => {
                        match exchange.receive(&message, &mut self.registry, last_zxid, Instant::now()) {
                            Ok(()) if exchange.is_closed => return None,
                            Ok(()) => {}
                            Err(cause) => break cause.to_owned(),
                        }
                    }
                    Err(error) => break error.to_string(),
                },
                order = self.orders.recv(), if exchange.has_room() => match order {
                    Some(order) => exchange.send(order, Instant::now()),
                    None => return None,
                },
                written = exchange.writer.advance(), if !exchange.writer.is_idle() => {
                    if let Err(error) = written {
                        break error.to_string();
                    }
                }
                () = sleep_until(deadline) => {
                    if let Err(cause) = exchange.tick(Instant::now()) {
                        break cause.to_owned();
                    }
                }
                _ = alive.recv() => {
                    exchange.fail("the client was closed");
                    return None;
                }
            }
        };
        let at_once = !exchange.is_proven && opened_at.elapsed() < PAUSE;
        exchange.fail(&cause);
        Some(if at_once { PAUSE } else { Duration::ZERO })
    }

    /// Tries the hosts in turn until one serves the session. Returns `None` if the session has ended.
    async fn reconnect(&mut self, mut pause: Duration) -> Option<(String, Connection)> {
        loop {
            sleep(pause).await;
            match self.connector.round().await {
                Ok(opened) => return Some(opened),
                Err(Refused::Everywhere(_)) => return None,
                Err(Refused::Here(_)) => pause = PAUSE,
            }
        }
    }
}
