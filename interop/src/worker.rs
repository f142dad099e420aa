//! The process of a driver: a program that uses another project's client as the tests request. Many requests may be
//! unanswered at the same time.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::pin::Pin;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::driver::Driver;

/// An exception or error of the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Deserialize)]
#[error("{name}: {message}")]
pub struct Thrown {
    /// The name of the error's class, without the package.
    #[serde(rename = "error")]
    pub name: String,
    /// The error's message.
    pub message: String,
}

/// A process of a driver. It ends when the last clone of this value is dropped, or when the tests end.
#[derive(Clone, Debug)]
pub struct Worker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    driver: Driver,
    child: Mutex<Child>,
    input: Mutex<ChildStdin>,
    asked: Arc<Mutex<HashMap<u64, oneshot::Sender<Line>>>>,
    next: AtomicU64,
}

/// The answer to one request.
#[derive(Debug, Deserialize)]
struct Line {
    id: u64,
    #[serde(default)]
    value: Value,
    #[serde(flatten)]
    thrown: Option<Thrown>,
}

impl Worker {
    /// The driver's process that all tests of this program share, started by the first call. `None` if `TENURE_SKIP`
    /// names a tool that the driver needs.
    pub fn shared(driver: Driver) -> Option<Worker> {
        static SHARED: [OnceLock<Option<Worker>>; Driver::ALL.len()] =
            [const { OnceLock::new() }; Driver::ALL.len()];
        SHARED[driver as usize]
            .get_or_init(|| Worker::start(driver))
            .clone()
    }

    /// A separate process, which the test may pause or kill. `None` if `TENURE_SKIP` names a tool that the driver
    /// needs.
    ///
    /// # Panics
    /// If the process cannot be built or started.
    pub fn start(driver: Driver) -> Option<Worker> {
        let mut command = driver.command()?;
        let folder = command.get_current_dir().expect("the driver runs in its folder");
        let log = File::options().create(true).append(true).open(folder.join("log"));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.expect("the log of the worker can be opened"))
            .spawn()
            .expect("the driver can be started");
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are piped");
        };
        let asked = Arc::default();
        let answering = Arc::clone(&asked);
        std::thread::spawn(move || answer(output, &answering));
        let shared = Shared {
            driver,
            child: Mutex::new(child),
            input: Mutex::new(input),
            asked,
            next: AtomicU64::new(0),
        };
        Some(Worker {
            shared: Arc::new(shared),
        })
    }

    /// The client in the process.
    pub fn driver(&self) -> Driver {
        self.shared.driver
    }

    /// Pauses the process, like a very long garbage collection.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues the process.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the process, which releases no lock.
    pub fn kill(&self) {
        self.shared.kill();
    }

    /// Sends a request at once, even if its reply is never awaited.
    pub(crate) fn ask<T: DeserializeOwned>(&self, words: &[&str]) -> Reply<T> {
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let (answer, line) = oneshot::channel();
        lock(&self.shared.asked).insert(id, answer);
        let request = format!("{id} {}\n", words.join(" "));
        let sent = lock(&self.shared.input).write_all(request.as_bytes());
        if sent.is_err() {
            // The process has ended. Dropping the sender of the answer makes the reply fail.
            lock(&self.shared.asked).remove(&id);
        }
        Box::pin(async move {
            let line = line.await.map_err(|_| Thrown {
                name: "Killed".to_owned(),
                message: "the driver's process has ended".to_owned(),
            })?;
            let value = || serde_json::from_value(line.value).expect("the worker answers what was asked");
            line.thrown.map_or_else(|| Ok(value()), Err)
        })
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&lock(&self.shared.child)), signal);
    }
}

impl Shared {
    fn kill(&self) {
        let mut child = lock(&self.child);
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends each answer to the caller that waits for it. At the end of the output, the remaining requests fail.
fn answer(output: ChildStdout, asked: &Mutex<HashMap<u64, oneshot::Sender<Line>>>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let line: Line = serde_json::from_str(&line).expect("the worker prints one answer a line");
        if let Some(answer) = lock(asked).remove(&line.id) {
            let _ = answer.send(line);
        }
    }
    lock(asked).clear();
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The answer to a request in flight: a value, or an error of the client. Dropping it does not cancel the request.
pub type Reply<T> = Pin<Box<dyn Future<Output = Result<T, Thrown>> + Send>>;
