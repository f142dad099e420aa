//! A session of `psql` that stays open between statements.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A client with one connection. Dropping this ends the client.
pub(crate) struct Session {
    client: Child,
    statements: ChildStdin,
    rows: Receiver<String>,
}

impl Session {
    /// Connects to the server of a URL.
    pub(crate) fn open(url: &str) -> Session {
        let mut client = Command::new("psql")
            .args(["-AtXqf", "-", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let statements = client.stdin.take().unwrap();
        let lines = BufReader::new(client.stdout.take().unwrap()).lines();
        let (sender, rows) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // Fails if the test has dropped the session.
                let _ = sender.send(line);
            }
        });
        Session {
            client,
            statements,
            rows,
        }
    }

    /// Sends a statement.
    pub(crate) fn send(&mut self, statement: &str) {
        writeln!(self.statements, "{statement};").unwrap();
    }

    /// The next row, if the server sends it within this time.
    pub(crate) fn row(&self, within: Duration) -> Option<String> {
        self.rows.recv_timeout(within).ok()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}
