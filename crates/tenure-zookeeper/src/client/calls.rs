//! The requests of a client.
//!
//! # Cancel safety
//! Dropping the future of a request withdraws it if it was not sent. Otherwise ZooKeeper carries it out, and nobody reads
//! the reply.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::BackendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::connect::{Connector, Failure, Identity};
use super::jute::Read;
use super::messages::*;
use super::order::{Order, Progress, Reply, effect};
use super::session::{Driver, SessionInfo, State};
use super::watch::{Registration, Registry, Subject, Watch};
use crate::config::Config;
use crate::error::{Code, malformed, refused, session_ended, too_large, unanswered, unsent};

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
    /// refuses the credentials, and the error of the last host if none served the client.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn connect(config: Config, session_timeout: Duration) -> Result<Self, BackendError> {
        let command_timeout = config.command_timeout;
        let mut connector = Connector::new(config, session_timeout)?;
        let mut identity = Identity {
            id: 0,
            password: vec![0; 16],
            // No server has granted one yet, so it limits no connect.
            timeout: Duration::MAX,
            last_zxid: 0,
        };
        let mut left = connector.hosts();
        let (server, connection) = loop {
            left -= 1;
            match connector.try_next(&mut identity).await {
                Ok(opened) => break opened,
                Err(Failure::Host(_)) if left > 0 => {}
                Err(Failure::Host(error) | Failure::Session(error)) => return Err(error),
            }
        };
        let (orders, ordered) = mpsc::channel(ORDERS);
        let (alive, is_alive) = mpsc::channel(1);
        let info = watch::Sender::new(SessionInfo {
            id: identity.id,
            timeout: identity.timeout,
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
            identity,
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
        let body = create(path, data, mode, acl);
        let reply = self.ask(opcode::CREATE_2, body, true, None).await?;
        created(&reply)
    }

    /// Creates a node that ZooKeeper deletes some time after its last child.
    ///
    /// # Errors
    /// As [`create`](Client::create).
    pub async fn create_container(&self, path: &str, acl: Acl) -> Result<Created, BackendError> {
        let body = create_container(path, acl);
        let reply = self.ask(opcode::CREATE_CONTAINER, body, true, None).await?;
        created(&reply)
    }

    /// Deletes a node if it has the version; `None` stands for any.
    ///
    /// # Errors
    /// As [`Client`] says. Codes: `NO_NODE`, `BAD_VERSION`, `NOT_EMPTY`.
    pub async fn delete(&self, path: &str, version: Option<i32>) -> Result<(), BackendError> {
        let body = delete(path, version);
        self.ask(opcode::DELETE, body, true, None).await.map(drop)
    }

    /// Returns what ZooKeeper knows of a node, or `None` if it does not exist.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn exists(&self, path: &str) -> Result<Option<Stat>, BackendError> {
        let reply = self
            .call(opcode::EXISTS, watched(path, false), false, None)
            .await?;
        stat_if_present(&reply)
    }

    /// As [`exists`](Client::exists), and watches the node, also if it does not exist: until it is created, deleted or
    /// its data are replaced.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn exists_watched(&self, path: &str) -> Result<(Option<Stat>, Watch), BackendError> {
        let (registration, watch) = register(Subject::Node, path);
        let body = watched(path, true);
        let reply = self.call(opcode::EXISTS, body, false, Some(registration)).await?;
        Ok((stat_if_present(&reply)?, watch))
    }

    /// Reads the data of a node.
    ///
    /// # Errors
    /// As [`Client`] says. Code: `NO_NODE`.
    pub async fn get_data(&self, path: &str) -> Result<(Vec<u8>, Stat), BackendError> {
        let body = watched(path, false);
        read(&self.ask(opcode::GET_DATA, body, false, None).await?, data)
    }

    /// As [`get_data`](Client::get_data), and watches the node until it is deleted or its data are replaced. A call that
    /// fails leaves no watch.
    ///
    /// # Errors
    /// As [`get_data`](Client::get_data).
    pub async fn get_data_watched(&self, path: &str) -> Result<(Vec<u8>, Stat, Watch), BackendError> {
        let (registration, watch) = register(Subject::Node, path);
        let body = watched(path, true);
        let reply = self
            .ask(opcode::GET_DATA, body, false, Some(registration))
            .await?;
        read(&reply, data).map(|(data, stat)| (data, stat, watch))
    }

    /// Returns the names of a node's children, in no order.
    ///
    /// # Errors
    /// As [`get_data`](Client::get_data).
    pub async fn get_children(&self, path: &str) -> Result<(Vec<String>, Stat), BackendError> {
        let body = watched(path, false);
        read(
            &self.ask(opcode::GET_CHILDREN, body, false, None).await?,
            children,
        )
    }

    /// As [`get_children`](Client::get_children), and watches the node until it is deleted, or a child is created or
    /// deleted. A call that fails leaves no watch.
    ///
    /// # Errors
    /// As [`get_data`](Client::get_data).
    pub async fn get_children_watched(&self, path: &str) -> Result<(Vec<String>, Stat, Watch), BackendError> {
        let (registration, watch) = register(Subject::Children, path);
        let body = watched(path, true);
        let reply = self
            .ask(opcode::GET_CHILDREN, body, false, Some(registration))
            .await?;
        read(&reply, children).map(|(children, stat)| (children, stat, watch))
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
        let body = set_data(path, data, version);
        read(&self.ask(opcode::SET_DATA, body, true, None).await?, stat)
    }

    /// Waits until the server of this client has all changes that the leader has proposed. Reads that are sent later
    /// see them.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn sync(&self, at: &str) -> Result<(), BackendError> {
        let reply = self.ask(opcode::SYNC, path(at), false, None).await?;
        read(&reply, text).map(drop)
    }

    /// Carries out all operations, or none of them. The leader decides, so a transaction of checks alone shows the
    /// newest state.
    ///
    /// # Errors
    /// As [`Client`] says. An operation that fails is no error, but an [`Outcome::Refused`].
    pub async fn multi(&self, ops: &[Op]) -> Result<Outcome, BackendError> {
        let changes = ops.iter().any(|op| !matches!(op, Op::Check(..)));
        let reply = self.ask(opcode::MULTI, multi(ops), changes, None).await?;
        outcome(reply.zxid, &reply.body).map_err(|_| malformed(reply.effect))
    }

    /// Ends the session. ZooKeeper deletes its ephemeral nodes. All clones of this client fail from now on.
    ///
    /// # Errors
    /// As [`Client`] says. The session then ends after its timeout, if it has not ended.
    pub async fn close(&self) -> Result<(), BackendError> {
        let closed = self.ask(opcode::CLOSE_SESSION, Vec::new(), true, None).await;
        self.alive.lock().take();
        closed.map(drop)
    }

    /// Sends a request. Fails if ZooKeeper refuses it.
    async fn ask(
        &self,
        opcode: i32,
        body: Vec<u8>,
        changes: bool,
        watch: Option<Registration>,
    ) -> Result<Reply, BackendError> {
        let reply = self.call(opcode, body, changes, watch).await?;
        match reply.code {
            Code(0) => Ok(reply),
            code => Err(refused(code)),
        }
    }

    /// Sends a request, and returns the reply, which may be a refusal.
    async fn call(
        &self,
        opcode: i32,
        body: Vec<u8>,
        changes: bool,
        watch: Option<Registration>,
    ) -> Result<Reply, BackendError> {
        if body.len() > MAX_REQUEST - request(0, opcode, &[]).len() {
            return Err(too_large(MAX_REQUEST));
        }
        let (reply, answer) = oneshot::channel();
        let progress = Arc::new(Progress::default());
        let order = Order {
            opcode,
            body,
            changes,
            watch,
            progress: progress.clone(),
            reply,
        };
        let answered = async {
            // Both fail if the task of the session has ended.
            self.orders.send(order).await.ok()?;
            answer.await.ok()
        };
        let answered = timeout(self.command_timeout, answered).await;
        match answered {
            Ok(Some(reply)) => reply,
            _ if progress.withdraw() => match answered {
                Ok(_) => Err(session_ended(effect(false))),
                Err(_) => Err(unsent(self.command_timeout)),
            },
            Ok(None) => Err(session_ended(effect(changes))),
            Err(_) => Err(unanswered(self.command_timeout, effect(changes))),
        }
    }
}

fn register(subject: Subject, path: &str) -> (Registration, Watch) {
    let (waiter, watch) = Watch::new();
    let registration = Registration {
        subject,
        path: path.to_owned(),
        waiter,
    };
    (registration, watch)
}

fn read<T>(reply: &Reply, decode: fn(&[u8]) -> Read<T>) -> Result<T, BackendError> {
    decode(&reply.body).map_err(|_| malformed(reply.effect))
}

/// The number of the change in the header is that of the creation.
fn created(reply: &Reply) -> Result<Created, BackendError> {
    let (path, czxid) = (read(reply, text)?, reply.zxid);
    Ok(Created { path, czxid })
}

fn stat_if_present(reply: &Reply) -> Result<Option<Stat>, BackendError> {
    match reply.code {
        Code(0) => read(reply, stat).map(Some),
        Code::NO_NODE => Ok(None),
        code => Err(refused(code)),
    }
}
