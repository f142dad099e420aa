//! The requests of a client.
//!
//! # Cancel safety
//! Dropping the future of a request withdraws it if it was not sent. Otherwise ZooKeeper carries it out, and nobody reads
//! the reply.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{BackendError, Effect};
use tenure_endpoint::Refused;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::connect::Connector;
use super::jute::{Read, Reader, Writer};
use super::messages::*;
use super::order::{Order, Reply};
use super::session::{Driver, SessionInfo, State};
use super::watch::{Registration, Registry, Subject, Watch};
use crate::config::Config;
use crate::error::{Code, code, found, refused, session_ended, too_large, unanswered, unsent};

/// The greatest length of a message to a server: ZooKeeper's own `jute.maxbuffer`. It closes the connection of a client
/// that sends a longer one.
const MAX_REQUEST: usize = 0xf_ffff;

/// The number of requests that wait for the task of the session.
const ORDERS: usize = 64;

/// A session in ZooKeeper. Clones share it. It goes on until [`close`](Client::close); if all clones are dropped, ZooKeeper
/// ends it after its timeout.
///
/// Each request fails with one of these errors: `Unavailable` if no server could be reached in time or the connection
/// broke, and if the session has ended, which [`is_session_end`](super::is_session_end) recognizes; `Denied` if the user
/// lacks a permission; `Limit` if it is larger than ZooKeeper reads; and others, whose [`code`](super::code) says why
/// ZooKeeper refuses the request.
#[derive(Clone)]
pub struct Client {
    orders: mpsc::Sender<Order>,
    info: watch::Receiver<SessionInfo>,
    command_timeout: Duration,
    /// `None` once the client was closed.
    alive: Arc<Mutex<Option<mpsc::Sender<Infallible>>>>,
}

impl Client {
    /// Opens a session, and asks for this timeout. ZooKeeper may grant a shorter or longer one.
    ///
    /// # Errors
    /// `Invalid` if the certificates cannot be used, `Unsupported` if TLS was left out of this build, `Denied` if ZooKeeper
    /// refuses the credentials, and the error of a host if none served the client: that of one which may serve it later, if there
    /// is one.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn connect(config: Config, session_timeout: Duration) -> Result<Self, BackendError> {
        let command_timeout = config.command_timeout;
        let mut connector = Connector::new(config, session_timeout)?;
        let opened = connector.round().await;
        let (server, connection) = opened.map_err(Refused::into_error)?;
        let (orders, ordered) = mpsc::channel(ORDERS);
        let (alive, is_alive) = mpsc::channel(1);
        let info = watch::Sender::new(SessionInfo {
            id: connector.id,
            timeout: connector.timeout,
            server,
            state: State::Connected,
        });
        let client = Client {
            orders,
            info: info.subscribe(),
            command_timeout,
            alive: Arc::new(Mutex::new(Some(alive))),
        };
        let driver = Driver {
            connector,
            orders: ordered,
            info,
            registry: Registry::default(),
        };
        tokio::spawn(driver.run(connection, is_alive));
        Ok(client)
    }

    /// What is known of the session. The receiver reports each change of it.
    pub fn info(&self) -> watch::Receiver<SessionInfo> {
        self.info.clone()
    }

    /// Creates a node, and returns its whole path and `czxid`.
    ///
    /// # Errors
    /// As [`Client`] says. Codes: `NO_NODE` without a parent, `NODE_EXISTS`, `NO_CHILDREN_FOR_EPHEMERALS`, `INVALID_ACL`.
    pub async fn create(
        &self,
        path: &str,
        data: &[u8],
        mode: Mode,
        acl: Acl,
    ) -> Result<Created, BackendError> {
        let op = Op::Create(path.to_owned(), data.to_owned(), mode, acl);
        let reply = self.send(&op).await?;
        // The number of the change in the header is that of the creation.
        Ok(Created {
            path: reply.read(|reader| reader.text())?,
            czxid: reply.zxid,
        })
    }

    /// Deletes a node if it has the version; `None` stands for any.
    ///
    /// # Errors
    /// As [`Client`] says. Codes: `NO_NODE`, `BAD_VERSION`, `NOT_EMPTY`.
    pub async fn delete(&self, path: &str, version: Option<i32>) -> Result<(), BackendError> {
        self.send(&Op::Delete(path.to_owned(), version)).await.map(drop)
    }

    /// Returns what ZooKeeper knows of a node, or `None` if it does not exist.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn exists(&self, path: &str) -> Result<Option<Stat>, BackendError> {
        found(self.look(opcode::EXISTS, path, None, Stat::read).await)
    }

    /// As [`exists`](Client::exists), and watches the node, also if it does not exist: until it is created, deleted or
    /// its data are replaced.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn exists_watched(&self, path: &str) -> Result<(Option<Stat>, Watch), BackendError> {
        let (registration, watch) = Registration::new(Subject::Node, path);
        let stat = self.look(opcode::EXISTS, path, Some(registration), Stat::read);
        Ok((found(stat.await)?, watch))
    }

    /// Reads the data of a node.
    ///
    /// # Errors
    /// As [`Client`] says. Code: `NO_NODE`.
    pub async fn get_data(&self, path: &str) -> Result<(Vec<u8>, Stat), BackendError> {
        self.look(opcode::GET_DATA, path, None, data).await
    }

    /// As [`get_data`](Client::get_data), and watches the node until it is deleted or its data are replaced. A call that
    /// fails leaves no watch.
    ///
    /// # Errors
    /// As [`get_data`](Client::get_data).
    pub async fn get_data_watched(&self, path: &str) -> Result<(Vec<u8>, Stat, Watch), BackendError> {
        let (registration, watch) = Registration::new(Subject::Node, path);
        let read = self.look(opcode::GET_DATA, path, Some(registration), data);
        read.await.map(|(data, stat)| (data, stat, watch))
    }

    /// Returns the names of a node's children, in no order.
    ///
    /// # Errors
    /// As [`get_data`](Client::get_data).
    pub async fn get_children(&self, path: &str) -> Result<(Vec<String>, Stat), BackendError> {
        self.look(opcode::GET_CHILDREN, path, None, children).await
    }

    /// As [`get_children`](Client::get_children), and watches the node until it is deleted, or a child is created or
    /// deleted. A call that fails leaves no watch.
    ///
    /// # Errors
    /// As [`get_data`](Client::get_data).
    pub async fn get_children_watched(&self, path: &str) -> Result<(Vec<String>, Stat, Watch), BackendError> {
        let (registration, watch) = Registration::new(Subject::Children, path);
        let read = self.look(opcode::GET_CHILDREN, path, Some(registration), children);
        read.await.map(|(children, stat)| (children, stat, watch))
    }

    /// Replaces the data of a node if it has the version; `None` stands for any.
    ///
    /// # Errors
    /// As [`Client`] says. Codes: `NO_NODE`, `BAD_VERSION`.
    pub async fn set_data(
        &self,
        path: &str,
        data: &[u8],
        version: Option<i32>,
    ) -> Result<Stat, BackendError> {
        let op = Op::SetData(path.to_owned(), data.to_owned(), version);
        self.send(&op).await?.read(Stat::read)
    }

    /// Waits until the server of this client has all changes that the leader has proposed. Reads that are sent later
    /// see them.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn sync(&self, at: &str) -> Result<(), BackendError> {
        let body = Writer::default().text(at).into_bytes();
        let reply = self.ask(opcode::SYNC, body, Effect::None, None).await?;
        reply.read(|reader| reader.text()).map(drop)
    }

    /// Carries out all operations, or none of them. The leader decides, so a transaction of checks alone shows the
    /// newest state. A single change is sent as a request of its own, which costs ZooKeeper less.
    ///
    /// # Errors
    /// As [`Client`] says. An operation that fails is no error, but an [`Outcome::Refused`].
    pub async fn multi(&self, ops: &[Op]) -> Result<Outcome, BackendError> {
        if let [op] = ops
            && !matches!(op, Op::Check(..))
        {
            return match self.send(op).await {
                Ok(reply) => Ok(Outcome::Done {
                    zxid: reply.zxid,
                    results: vec![reply.read(|reader| Done::read(op.opcode(), reader))?],
                }),
                Err(error) => match code(&error) {
                    Some(code) if error.effect() == Effect::None && !error.is_transient() => {
                        Ok(Outcome::Refused { index: 0, code })
                    }
                    _ => Err(error),
                },
            };
        }
        let effect = match ops.iter().all(|op| matches!(op, Op::Check(..))) {
            true => Effect::None,
            false => Effect::Unknown,
        };
        let reply = self.ask(opcode::MULTI, multi(ops), effect, None).await?;
        reply.read(|reader| outcome(ops, reply.zxid, reader))
    }

    /// Ends the session. ZooKeeper deletes its ephemeral nodes. All clones of this client fail from now on.
    ///
    /// # Errors
    /// As [`Client`] says. The session then ends after its timeout, if it has not ended.
    pub async fn close(&self) -> Result<(), BackendError> {
        let closed = self.ask(opcode::CLOSE_SESSION, Vec::new(), Effect::Unknown, None);
        let closed = closed.await;
        self.alive.lock().take();
        closed.map(drop)
    }

    /// Sends a change.
    async fn send(&self, op: &Op) -> Result<Reply, BackendError> {
        let body = op.write(Writer::default()).into_bytes();
        self.ask(op.opcode(), body, Effect::Unknown, None).await
    }

    /// Reads a node.
    async fn look<T>(
        &self,
        opcode: i32,
        path: &str,
        watch: Option<Registration>,
        decode: fn(&mut Reader<'_>) -> Read<T>,
    ) -> Result<T, BackendError> {
        let body = Writer::default().text(path).bool(watch.is_some()).into_bytes();
        self.ask(opcode, body, Effect::None, watch).await?.read(decode)
    }

    /// Sends a request. Fails if ZooKeeper refuses it. Without a reply it has this effect.
    async fn ask(
        &self,
        opcode: i32,
        body: Vec<u8>,
        effect: Effect,
        watch: Option<Registration>,
    ) -> Result<Reply, BackendError> {
        if body.len() > MAX_REQUEST - request(0, opcode, &[]).len() {
            return Err(too_large(MAX_REQUEST));
        }
        let (reply, answer) = oneshot::channel();
        let is_settled = Arc::new(AtomicBool::default());
        let order = Order {
            opcode,
            body,
            effect,
            watch,
            is_settled: is_settled.clone(),
            reply,
        };
        let answered = async {
            // Both fail if the task of the session has ended.
            self.orders.send(order).await.ok()?;
            answer.await.ok()
        };
        let answered = timeout(self.command_timeout, answered).await;
        // Otherwise the request may have been sent.
        let was_withdrawn = || !is_settled.swap(true, Ordering::AcqRel);
        match answered {
            Ok(Some(Ok(reply))) if reply.code != Code(0) => Err(refused(reply.code)),
            Ok(Some(reply)) => reply,
            Ok(None) if was_withdrawn() => Err(session_ended(Effect::None)),
            Ok(None) => Err(session_ended(effect)),
            Err(_) if was_withdrawn() => Err(unsent(self.command_timeout)),
            Err(_) => Err(unanswered(self.command_timeout, effect)),
        }
    }
}
