//! Opens connections to servers, and takes the session over on them.

use std::time::Duration;

use tenure_backend::{BackendError, Effect};
use tenure_endpoint::{Host, addresses};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::frames::{FrameReader, FrameWriter, Stream, frames};
use super::messages::{ConnectReply, ReplyHeader, connect, digest, opcode, request, xid};
use crate::config::Config;
use crate::error::{
    Code, broken, colon_in_user, malformed, not_connected, not_greeted, refused, session_ended, unknown_host,
    unreachable,
};

/// A connection on which the session goes on.
pub(super) struct Connection {
    pub(super) reader: FrameReader,
    pub(super) writer: FrameWriter,
}

/// Why there is no connection.
pub(super) enum Failure {
    /// The host does not serve the session. Another one may.
    Host(BackendError),
    /// The session has ended, or ZooKeeper refuses the credentials.
    Session(BackendError),
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Failure::Host(error)
    }
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
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsConnector>,
}

impl Connector {
    /// Reads the certificates if TLS is configured. Fails if they are invalid.
    pub(super) fn new(config: Config, asked: Duration) -> Result<Self, BackendError> {
        #[cfg(not(feature = "tls"))]
        if config.tls.is_some() {
            return Err(BackendError::unsupported(
                "TLS was left out of this build: enable the feature `tls`, or write `zookeeper://`",
            ));
        }
        Ok(Connector {
            #[cfg(feature = "tls")]
            tls: match &config.tls {
                Some(tls) => Some(tls.client_config()?.into()),
                None => None,
            },
            config,
            asked,
            next_host: 0,
            id: 0,
            password: vec![0; 16],
            timeout: Duration::MAX,
            last_zxid: 0,
        })
    }

    /// Tries each host once, until one serves the session. Returns its name with the connection.
    pub(super) async fn round(&mut self) -> Result<(String, Connection), Failure> {
        let mut left = self.config.hosts.len();
        loop {
            left -= 1;
            match self.try_next().await {
                Err(Failure::Host(_)) if left > 0 => {}
                ended => return ended,
            }
        }
    }

    async fn try_next(&mut self) -> Result<(String, Connection), Failure> {
        let hosts = self.config.hosts.len();
        let host = self.config.hosts[self.next_host].clone();
        self.next_host = (self.next_host + 1) % hosts;
        let round = self.config.connect_timeout.min(self.timeout);
        let limit = round / u32::try_from(hosts).unwrap_or(u32::MAX);
        let opened = timeout(limit, self.open(&host)).await;
        let opened = opened.unwrap_or_else(|_| Err(not_connected(&host, limit).into()))?;
        Ok((host.to_string(), opened))
    }

    async fn open(&mut self, host: &Host) -> Result<Connection, Failure> {
        let (reader, writer) = frames(self.dial(host).await?);
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
            return Err(Failure::Session(session_ended(Effect::None)));
        }
        self.id = reply.session;
        self.password = reply.password;
        self.timeout = Duration::from_millis(reply.timeout_ms.unsigned_abs().into());
        self.log_in(&mut connection).await?;
        Ok(connection)
    }

    /// Connects to a host, and sends nothing but the handshake of TLS.
    pub(super) async fn dial(&self, host: &Host) -> Result<Box<dyn Stream>, BackendError> {
        let found = addresses(host).await;
        let found = found.map_err(|error| unknown_host(host, &error))?;
        let opened = TcpStream::connect(&*found).await;
        let opened = opened.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        let opened = opened.map_err(|error| unreachable(host, &error))?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return Ok(Box::new(crate::tls::secure(tls, host, opened).await?));
        }
        Ok(Box::new(opened))
    }

    /// Sends the credentials, if there are some, and waits for the answer.
    async fn log_in(&self, connection: &mut Connection) -> Result<(), Failure> {
        let credentials = self.config.login.credentials().await?;
        let Some(user) = credentials.user_name() else {
            return Ok(());
        };
        if user.contains(':') {
            return Err(Failure::Session(colon_in_user()));
        }
        let password = credentials.secret().map_or("", |secret| secret.expose());
        let message = request(xid::AUTH, opcode::AUTH, &digest(user, password));
        let answer = connection.exchange(&message).await;
        let answer = answer.map_err(|error| broken(Effect::None, &error.to_string()))?;
        match ReplyHeader::read(&answer) {
            Ok((header, _)) if header.code == Code(0) => Ok(()),
            Ok((header, _)) => Err(Failure::Session(refused(header.code))),
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
