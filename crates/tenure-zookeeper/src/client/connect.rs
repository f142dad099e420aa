//! Opens connections to servers, and takes the session over on them.

use std::time::Duration;

use tenure_backend::{BackendError, Effect};
use tenure_endpoint::{Dialer, Host, Refused, ServerKind, first_to_serve};

use super::frames::{FrameReader, FrameWriter, frames};
use super::messages::{ConnectReply, ReplyHeader, connect, digest, opcode, request, xid};
use crate::config::Config;
use crate::error::{
    Code, broken, colon_in_user, malformed, not_connected, not_greeted, refused, session_ended,
};

const ZOOKEEPER: ServerKind = ServerKind {
    name: "ZooKeeper",
    scheme: "zookeeper",
    tls_hint: "whether that is its `secureClientPort`",
    tls_protocol: None,
    greets: false,
};

/// Reads the certificates if TLS is configured. Fails if they are invalid.
pub(super) fn dialer(config: &Config) -> Result<Dialer, BackendError> {
    Dialer::new(&ZOOKEEPER, config.tls.as_ref())
}

/// A connection on which the session goes on.
pub(super) struct Connection {
    pub(super) reader: FrameReader,
    pub(super) writer: FrameWriter,
}

/// Opens connections, all with the same settings and for the same session. It is not printed: the password takes the session
/// over.
pub(super) struct Connector {
    config: Config,
    /// The session timeout to ask for.
    asked: Duration,
    next_host: usize,
    /// The number of the session; 0 before the first connect.
    pub(super) id: i64,
    password: Vec<u8>,
    /// Time without a sign of life after which ZooKeeper ends the session. Before a server has granted one, it limits no connect.
    pub(super) timeout: Duration,
    /// Number of the newest change that the client has seen.
    pub(super) last_zxid: i64,
    dialer: Dialer,
}

impl Connector {
    pub(super) fn new(config: Config, asked: Duration) -> Result<Self, BackendError> {
        Ok(Connector {
            dialer: dialer(&config)?,
            config,
            asked,
            next_host: 0,
            id: 0,
            password: vec![0; 16],
            timeout: Duration::MAX,
            last_zxid: 0,
        })
    }

    /// Tries each host once, until one serves the session. Returns its name with the connection. An error that holds everywhere
    /// ends the session.
    pub(super) async fn round(&mut self) -> Result<(String, Connection), Refused> {
        let hosts = &self.config.hosts;
        let first = self.next_host;
        let turns = (0..hosts.len()).map(|turn| (first + turn) % hosts.len());
        let limit = self.config.connect_timeout.min(self.timeout);
        let open = async |at: usize| self.open(&hosts[at]).await.map(|opened| (at, opened));
        let unanswered = |at: usize, limit| not_connected(&hosts[at], limit);
        let (at, (reply, connection)) = first_to_serve(turns, limit, open, unanswered).await?;
        self.next_host = (at + 1) % hosts.len();
        self.id = reply.session;
        self.password = reply.password;
        self.timeout = Duration::from_millis(reply.timeout_ms.unsigned_abs().into());
        Ok((hosts[at].to_string(), connection))
    }

    async fn open(&self, host: &Host) -> Result<(ConnectReply, Connection), Refused> {
        let (reader, writer) = frames(self.dialer.dial(host).await?);
        let mut connection = Connection { reader, writer };
        let is_secure = self.config.tls.is_some();
        let timeout_ms = i32::try_from(self.asked.as_millis()).unwrap_or(i32::MAX);
        let message = connect(self.last_zxid, timeout_ms, self.id, &self.password);
        let answer = connection.exchange(&message).await;
        let answer = answer.map_err(|error| not_greeted(host, is_secure, &error))?;
        let answer = ConnectReply::read(&answer);
        let reply = answer.map_err(|_| not_greeted(host, is_secure, &"it sends something else"))?;
        let is_other = self.id != 0 && reply.session != self.id;
        if reply.timeout_ms <= 0 || reply.session == 0 || is_other {
            return Err(Refused::Everywhere(session_ended(Effect::None)));
        }
        self.log_in(&mut connection).await?;
        Ok((reply, connection))
    }

    /// Sends the credentials, if there are some, and waits for the answer.
    async fn log_in(&self, connection: &mut Connection) -> Result<(), Refused> {
        // A callback that fails may succeed later.
        let credentials = self.config.login.credentials().await.map_err(Refused::Here)?;
        let Some(user) = credentials.user_name() else {
            return Ok(());
        };
        if user.contains(':') {
            return Err(Refused::Everywhere(colon_in_user()));
        }
        let password = credentials.secret().map_or("", |secret| secret.expose());
        let message = request(xid::AUTH, opcode::AUTH, &digest(user, password));
        let answer = connection.exchange(&message).await;
        let answer = answer.map_err(|error| broken(Effect::None, &error.to_string()))?;
        match ReplyHeader::read(&answer) {
            Ok((header, _)) if header.code == Code(0) => Ok(()),
            Ok((header, _)) => Err(Refused::Everywhere(refused(header.code))),
            Err(_) => Err(malformed(Effect::None).into()),
        }
    }
}

impl Connection {
    /// Sends a message and waits for the next one.
    async fn exchange(&mut self, message: &[u8]) -> std::io::Result<Vec<u8>> {
        self.writer.push(message);
        while !self.writer.is_idle() {
            self.writer.advance().await?;
        }
        self.reader.next().await
    }
}
