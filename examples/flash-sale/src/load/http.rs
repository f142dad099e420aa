//! A request to a shop, on a connection of its own, as from a buyer of its own.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Reached only where something is wrong.
const LIMIT: Duration = Duration::from_secs(60);

/// The headers of a request, by name.
pub(crate) type Headers = &'static [(&'static str, &'static str)];

/// What a shop replied.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Reply {
    /// The time after which to come back, where the shop says one.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut hints = lines.filter(|(name, _)| name.eq_ignore_ascii_case("retry-after"));
        hints.next()?.1.trim().parse().ok().map(Duration::from_secs)
    }

    /// The number in the line of the body that begins with that name.
    pub(crate) fn number(&self, name: &str) -> io::Result<i64> {
        let lines = self.body.lines().filter_map(|line| line.split_once(' '));
        let mut numbers = lines.filter(|(line, _)| *line == name);
        let number = numbers.next().and_then(|(_, number)| number.parse().ok());
        number.ok_or_else(|| io::Error::other(format!("no {name:?} in {:?}", self.body)))
    }
}

/// Asks a shop, as in `ask("127.0.0.1:8081", "GET /books", &[])`.
pub(crate) async fn ask(shop: &str, what: &str, headers: Headers) -> io::Result<Reply> {
    let asked = timeout(LIMIT, exchange(shop, what, headers));
    let reply = asked.await.unwrap_or_else(|late| Err(late.into()));
    reply.map_err(|error| io::Error::new(error.kind(), format!("{what} at {shop}: {error}")))
}

async fn exchange(shop: &str, what: &str, headers: Headers) -> io::Result<Reply> {
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let request =
        format!("{what} HTTP/1.1\r\nhost: {shop}\r\nconnection: close\r\ncontent-length: 0\r\n{headers}\r\n");
    let mut stream = TcpStream::connect(shop).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await?;
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_default();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok(Reply {
        status: status.ok_or_else(|| io::Error::other("this is no reply"))?,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}
