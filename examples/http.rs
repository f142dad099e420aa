//! A minimal HTTP client for the servers of the examples, with one request per connection. Programs and tests include
//! this file as a module by its path.
#![allow(dead_code, reason = "each uses its own part of it")]

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A time limit that is reached only if something is wrong.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn read(text: &str) -> io::Result<Reply> {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok(Reply {
            status: status.ok_or_else(|| io::Error::other("this is no reply"))?,
            head: head.to_owned(),
            body: body.to_owned(),
        })
    }
}

/// Text of a request, as in `request("POST /orders", "idempotency-key: 7\r\n", "2 shoes")`.
pub(crate) fn request(what: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    // With HTTP 1.0, the server closes the connection after its reply.
    format!("{what} HTTP/1.0\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
}

/// Sends a request without waiting for the reply.
pub(crate) fn send(address: &str, what: &str, headers: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    let request = request(what, headers, body);
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

pub(crate) fn ask(address: &str, what: &str, headers: &str, body: &str) -> Reply {
    let mut reply = String::new();
    let mut stream = send(address, what, headers, body);
    stream.read_to_string(&mut reply).expect("it answers in UTF-8");
    Reply::read(&reply).expect("it answers")
}
