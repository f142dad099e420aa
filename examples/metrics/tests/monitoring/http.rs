//! As much of HTTP as it takes to ask Prometheus.
//! Not here: what is asked.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::scene::LIMIT;

/// What a path of Prometheus's API answers as `data`.
pub(crate) fn api(address: &str, path: &str) -> Value {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    write!(stream, "GET /api/v1/{path} HTTP/1.0\r\nHost: {address}\r\n\r\n").expect("it reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("it answers in UTF-8");
    let (_, body) = reply.split_once("\r\n\r\n").expect("a body");
    let mut answer: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {reply}"));
    assert_eq!(answer["status"], "success", "{path}: {answer}");
    answer["data"].take()
}

/// The samples that an expression has at this moment.
pub(crate) fn query(address: &str, expression: &str) -> Vec<Value> {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let mut data = api(address, &format!("query?query={encoded}"));
    match data["result"].take() {
        Value::Array(samples) => samples,
        other => panic!("{expression}: {other}"),
    }
}
