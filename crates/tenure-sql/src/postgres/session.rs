//! One connection: logging in, and statements that run one after the other.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use std::{io, mem};

use futures_util::TryStreamExt;
use tenure_backend::{BackendError, Clock, ServerClock};
use tenure_endpoint::first_to_accept;
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Row};
use tokio_util::either::Either;

use super::error::{failure, is_of_commit, is_of_preparing, refused_login, uncertain};
use crate::server::config::{Config, Place, TlsMode};
use crate::server::dial::{Session, look_up, user};
use crate::server::error::{Failure, not_writable, unreachable};
use crate::server::tls;
use crate::server::values::{Answer, Cells, Value};

#[cfg(feature = "tls")]
type Tls = tokio_postgres_rustls::MakeRustlsConnect;
#[cfg(not(feature = "tls"))]
type Tls = tokio_postgres::NoTls;

/// What the server says of itself at each connect.
const GREETING: &str =
    "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS read_only,
    (extract(epoch FROM {clock}) * 1000000)::bigint AS time, inet_client_port() AS client_port,
    current_setting('port')::int AS port, (SELECT (extract(epoch FROM clock_timestamp() - backend_start) * 1000000)::bigint
        FROM pg_stat_get_activity(pg_backend_pid())) AS age";

/// A stream of bytes to and from a server.
type Stream = Either<TcpStream, UnixStream>;

/// Our end of a connection, to find out whether the server process at the other end of it is ours alone.
struct End {
    /// The port of our end, or the number in the socket's name.
    port: u16,
    is_socket: bool,
    /// Time before we connected.
    began: Instant,
}

/// The statements that the server knows, with their texts. There are few, of different lengths, so comparing them takes less
/// time than hashing a text of a kilobyte.
pub(super) type Prepared = Vec<(String, tokio_postgres::Statement)>;

/// A connection to a server that accepts writes.
///
/// Dropping it closes the socket at once, even if a statement is under way. No statement is ever cancelled: a commit that waits
/// for a standby would then report success.
pub(crate) struct PgSession {
    link: Link,
    client: Client,
    server_clock: ServerClock,
    clock: Arc<dyn Clock>,
    /// False if a pooler stands between, which may send each statement to another server process: nothing is prepared.
    pub(super) prepares: bool,
    /// The statements that were prepared. They stay until the client has gone: dropping one before would close that of its
    /// name at whichever server process a pooler chooses, where it may be another client's.
    prepared: Prepared,
}

/// Moves bytes between the client and the socket.
///
/// The caller of a statement polls it, not a task of its own, so that a reply wakes only the caller. Between two statements,
/// nothing reads from the socket.
struct Link {
    /// `None` after the connection has ended.
    connection: Option<Connection<Stream, <Tls as MakeTlsConnect<Stream>>::Stream>>,
    /// The server has reported that a write may not be on its standbys.
    warned: bool,
}

impl Session for PgSession {
    type Tls = Tls;

    #[cfg(feature = "tls")]
    fn tls(config: &Config) -> Result<Tls, BackendError> {
        let read = tls::client_config(config)?;
        Ok(Tls::new(Arc::unwrap_or_clone(read)))
    }

    #[cfg(not(feature = "tls"))]
    fn tls(config: &Config) -> Result<Tls, BackendError> {
        tls::refuse(config)?;
        Ok(tokio_postgres::NoTls)
    }

    async fn connect(config: &Config, tls: &Tls, place: &Place) -> Result<Self, BackendError> {
        let (host, (stream, end)) = match place {
            Place::Host(host) => {
                let opened = open(&look_up(host).await?).await;
                (host.name(), opened.map_err(|error| unreachable(host, error))?)
            }
            Place::Socket(folder, port) => {
                let path = folder.join(format!(".s.PGSQL.{port}"));
                let began = Instant::now();
                let opened = UnixStream::connect(&path).await;
                let opened = opened.map_err(|error| unreachable(path.display(), error))?;
                let end = End {
                    port: *port,
                    is_socket: true,
                    began,
                };
                ("localhost", (Either::Right(opened), end))
            }
        };
        let connector = MakeTlsConnect::<Stream>::make_tls_connect(&mut tls.clone(), host);
        let connector = connector.map_err(|error| unreachable(host, error))?;
        let settings = settings(config, place).await?;
        let opened = settings.connect_raw(stream, connector).await;
        let (client, connection) = opened.map_err(|error| refused_login(&error, config))?;
        let mut link = Link {
            connection: Some(connection),
            warned: false,
        };
        let greeting = GREETING.replace("{clock}", &config.server_clock);
        let answer = link.drive(client.query_typed_one(&greeting, &[])).await;
        let answer = answer.map_err(|error| refused_login(&error, config))?;
        if answer.try_get::<_, bool>("read_only").unwrap_or(true) {
            let why = "each is a standby, or the role may only read; name the primary server, or see the role's \
                       `default_transaction_read_only`";
            return Err(not_writable(&config.address(), why));
        }
        let time: i64 = answer.try_get("time").unwrap_or_default();
        Ok(Self {
            server_clock: ServerClock::new(time.unsigned_abs(), config.clock.now()),
            clock: config.clock.clone(),
            prepares: end.is_direct(&answer),
            prepared: Prepared::new(),
            client,
            link,
        })
    }

    fn is_closed(&mut self) -> bool {
        // No waker stays behind: it would be that of a caller which has its reply.
        self.link.advance(&mut Context::from_waker(Waker::noop()));
        self.client.is_closed()
    }

    fn clock(&self) -> &ServerClock {
        &self.server_clock
    }

    fn learn(&self, time: i64) {
        self.server_clock.learn(time.unsigned_abs(), self.clock.now());
    }

    async fn run(&mut self, sql: &str, params: &[Value<'_>]) -> Result<Answer, Failure> {
        let mut answer = self.query(sql, params).await;
        if self.prepares && answer.as_ref().is_err_and(is_of_preparing) {
            // A pooler whose port happens to be ours, or that forgets what its clients have prepared.
            self.prepares = false;
            answer = self.query(sql, params).await;
        }
        let answer = answer.map_err(|error| failure(&error))?;
        match mem::take(&mut self.link.warned) {
            true => Err(uncertain().into()),
            false => Ok(answer),
        }
    }

    async fn script(&mut self, script: &str) -> Result<(), Failure> {
        let ran = self.link.drive(self.client.batch_execute(script)).await;
        ran.map_err(|error| failure(&error))
    }
}

impl End {
    /// Returns whether nothing stands between the client and the server. A pooler is recognized by the port that the server
    /// sees, or its lack for a socket, and by a server process that is older than our connection.
    fn is_direct(&self, greeting: &Row) -> bool {
        let port = |column| greeting.try_get::<_, Option<i32>>(column).ok().flatten();
        let expected = Some(i32::from(self.port));
        let is_our_port = match self.is_socket {
            true => port("client_port").is_none() && port("port") == expected,
            false => port("client_port") == expected,
        };
        // The server does not tell the age to a role that has taken another's place.
        let age = greeting.try_get::<_, Option<i64>>("age").ok().flatten();
        let is_older = |age: i64| {
            u64::try_from(age).map_or(true, |age| Duration::from_micros(age) > self.began.elapsed())
        };
        is_our_port && !age.is_some_and(is_older)
    }
}

impl PgSession {
    async fn query(&mut self, sql: &str, params: &[Value<'_>]) -> Result<Answer, tokio_postgres::Error> {
        let prepared = self.prepares.then_some(&mut self.prepared);
        let query = query(&self.client, prepared, sql, params);
        self.link.drive(query).await
    }
}

impl Link {
    /// Does what can be done without waiting. Notes warnings about commits: each comes before the answer to its statement.
    fn advance(&mut self, context: &mut Context<'_>) {
        while let Some(connection) = &mut self.connection
            && let Poll::Ready(message) = connection.poll_message(context)
        {
            match message {
                Some(Ok(AsyncMessage::Notice(notice))) => self.warned |= is_of_commit(&notice),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => self.connection = None,
            }
        }
    }

    /// Runs work that waits for this connection only. So nothing else needs to wake it.
    async fn drive<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut poll_work = || work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        poll_fn(|context| match poll_work() {
            Poll::Pending => {
                self.advance(context);
                poll_work()
            }
            done => done,
        })
        .await
    }
}

/// Runs a statement. `prepared`: those that the server knows; `None` if it must not prepare any.
async fn query(
    client: &Client,
    prepared: Option<&mut Prepared>,
    sql: &str,
    params: &[Value<'_>],
) -> Result<Answer, tokio_postgres::Error> {
    let stream = match prepared {
        None => client.query_typed_raw(sql, params.iter().map(typed)).await?,
        Some(prepared) => {
            let known = prepared.iter().position(|(text, _)| text == sql);
            let index = known.unwrap_or(prepared.len());
            if known.is_none() {
                prepared.push((sql.to_owned(), client.prepare(sql).await?));
            }
            let values = params.iter().map(|value| typed(value).0);
            client.query_raw(&prepared[index].1, values).await?
        }
    };
    let mut stream = pin!(stream);
    let mut rows = Vec::new();
    while let Some(row) = stream.as_mut().try_next().await? {
        let cells = (0..row.len()).map(|index| cell(&row, index));
        rows.push(Cells(cells.collect::<Result<Vec<_>, _>>()?.into_iter()));
    }
    let changed = stream.rows_affected().unwrap_or_default();
    Ok(Answer { rows, changed })
}

fn typed<'a>(value: &'a Value<'_>) -> (&'a (dyn ToSql + Sync), Type) {
    match value {
        Value::Text(text) => (text, Type::TEXT),
        Value::Number(number) => (number, Type::INT8),
    }
}

/// A value of a row. Our statements answer texts, large integers and truth only.
fn cell(row: &Row, index: usize) -> Result<Option<String>, tokio_postgres::Error> {
    let number = match *row.columns()[index].type_() {
        Type::BOOL => row.try_get::<_, Option<bool>>(index)?.map(i64::from),
        Type::INT8 => row.try_get(index)?,
        _ => return row.try_get(index),
    };
    Ok(number.map(|number| number.to_string()))
}

async fn open(addresses: &[SocketAddr]) -> io::Result<(Stream, End)> {
    let began = Instant::now();
    let stream = first_to_accept(addresses).await?;
    let port = stream.local_addr()?.port();
    let end = End {
        port,
        is_socket: false,
        began,
    };
    Ok((Either::Left(stream), end))
}

async fn settings(config: &Config, place: &Place) -> Result<tokio_postgres::Config, BackendError> {
    let credentials = config.login.credentials().await?;
    let user = user(config, &credentials)?;
    let mut settings = tokio_postgres::Config::new();
    settings.dbname(config.dbname.as_deref().unwrap_or(&user));
    settings.user(user);
    if let Some(password) = credentials.secret() {
        settings.password(password.expose());
    }
    settings.application_name(&config.application_name);
    if let Some(options) = &config.options {
        settings.options(options);
    }
    settings.ssl_mode(match (place, config.tls) {
        (Place::Socket(..), _) | (_, TlsMode::Disable) => SslMode::Disable,
        (_, TlsMode::Prefer) => SslMode::Prefer,
        (_, TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull) => SslMode::Require,
    });
    Ok(settings)
}
