//! A real Redis server for tests.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use crate::clock::SteppedClock;
use crate::port::Port;
use crate::process::{Data, Process};

/// The server's configuration, in its folder.
pub(crate) const CONFIGURATION: &str = "redis.conf";

/// What the server writes to its disk, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// No data, for speed.
    Nothing,
    /// A snapshot now and then, the default of Redis: a kill loses all writes since the last snapshot.
    Snapshots,
    /// Every write before it is answered: a kill loses nothing.
    EveryWrite,
}

impl Disk {
    /// The server's command-line options.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Disk::Nothing => &["--save", "", "--appendonly", "no"],
            Disk::Snapshots => &[],
            Disk::EveryWrite => &["--save", "", "--appendonly", "yes", "--appendfsync", "always"],
        }
    }
}

/// A Redis server on a free port. Dropping this ends the server.
#[derive(Debug)]
pub struct Redis {
    folder: TempDir,
    port: Port,
    options: Vec<String>,
    clock: Option<Arc<SteppedClock>>,
    process: Process,
}

impl Redis {
    /// Starts a server that writes nothing to disk.
    ///
    /// # Errors
    /// The system's error, or one with the server's output if the server does not answer.
    pub fn start() -> io::Result<Redis> {
        Self::start_on(Disk::Nothing, None)
    }

    /// Starts a server that writes to disk as `disk` says. With `clock`, a test can step the server's wall clock.
    ///
    /// # Errors
    /// As [`start`](Redis::start).
    pub fn start_on(disk: Disk, clock: Option<SteppedClock>) -> io::Result<Redis> {
        Self::start_with(disk.options(), clock)
    }

    /// Starts a server with these command-line options. With `clock`, a test can step the server's wall clock.
    ///
    /// # Errors
    /// As [`start`](Redis::start).
    pub fn start_with(options: &[&str], clock: Option<SteppedClock>) -> io::Result<Redis> {
        Self::start_in(tempfile::tempdir()?, options, clock.map(Arc::new))
    }

    /// Starts a server in a folder, with a clock that other servers may read too. If the folder has a file
    /// `redis.conf`, the server reads it first.
    pub(crate) fn start_in(
        folder: TempDir,
        options: &[&str],
        clock: Option<Arc<SteppedClock>>,
    ) -> io::Result<Redis> {
        Self::start_at(Port::reserve()?, folder, options, clock)
    }

    /// Starts a server on a port, in a folder that may hold its data.
    pub(crate) fn start_at(
        port: Port,
        folder: TempDir,
        options: &[&str],
        clock: Option<Arc<SteppedClock>>,
    ) -> io::Result<Redis> {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let process = launch(&folder, port.address(), &options, clock.as_deref())?;
        Ok(Redis {
            folder,
            port,
            options,
            clock,
            process,
        })
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The server's URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.port.address())
    }

    /// The server's process, to pause, continue or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Returns whether the server is paused or has ended, so that it answers nothing.
    pub(crate) fn is_still(&self) -> bool {
        self.process.is_still()
    }

    /// The server's clock, if the test can step it.
    pub fn clock(&self) -> Option<&SteppedClock> {
        self.clock.as_deref()
    }

    /// The command-line options, without those of address and folder.
    pub(crate) fn options(&self) -> Vec<&str> {
        self.options.iter().map(String::as_str).collect()
    }

    /// Lets the server read this clock after its next restart.
    pub fn set_clock(&mut self, clock: SteppedClock) {
        self.clock = Some(Arc::new(clock));
    }

    /// Kills the server if it runs, and starts it again on the same port.
    ///
    /// # Errors
    /// As [`start`](Redis::start).
    pub fn restart(&mut self, data: Data) -> io::Result<()> {
        self.process.kill();
        if data == Data::Lost {
            for entry in std::fs::read_dir(self.folder.path())? {
                let path = entry?.path();
                if path.is_dir() {
                    std::fs::remove_dir_all(&path)?;
                } else if path.extension().is_none_or(|kind| kind != "log") {
                    std::fs::remove_file(&path)?;
                }
            }
        }
        self.process = launch(
            &self.folder,
            self.port.address(),
            &self.options,
            self.clock.as_deref(),
        )?;
        Ok(())
    }

    /// Sends a command to the server. Returns the reply as `redis-cli` prints it: each text and number of a list on a line.
    ///
    /// # Errors
    /// The error of the system or the server.
    pub fn ask(&self, command: &[&str]) -> io::Result<String> {
        self.ask_in_turn(&[command])
    }

    /// Sends commands over one connection. Returns the reply to the last one, as [`ask`](Redis::ask) does.
    ///
    /// # Errors
    /// The error of the system, or the first error of the server.
    pub fn ask_in_turn(&self, commands: &[&[&str]]) -> io::Result<String> {
        let mut stream = BufReader::new(TcpStream::connect(self.address())?);
        let mut last = String::new();
        for command in commands {
            let words = command
                .iter()
                .map(|word| format!("${}\r\n{word}\r\n", word.len()));
            let request = format!("*{}\r\n{}", command.len(), words.collect::<String>());
            stream.get_mut().write_all(request.as_bytes())?;
            last = printed(&mut stream)?;
        }
        Ok(last.trim_end().to_owned())
    }
}

/// Reads a reply of a server.
fn printed(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let (kind, rest) = line.trim_end().split_at_checked(1).unwrap_or_default();
    let number = || rest.parse::<i64>().map_err(io::Error::other);
    match kind {
        "+" | ":" => Ok(rest.to_owned()),
        "-" => Err(io::Error::other(rest)),
        "$" => {
            // A value that is missing has the length -1, and no line of its own.
            let Ok(length) = usize::try_from(number()?) else {
                return Ok(String::new());
            };
            let mut text = vec![0; length + "\r\n".len()];
            from.read_exact(&mut text)?;
            Ok(String::from_utf8_lossy(&text[..length]).into_owned())
        }
        "*" => {
            let parts: io::Result<Vec<_>> = (0..number()?).map(|_| printed(from)).collect();
            Ok(parts?.join("\n"))
        }
        _ => Err(io::Error::other(format!("no reply of Redis: {line:?}"))),
    }
}

fn launch(
    folder: &TempDir,
    address: SocketAddr,
    options: &[String],
    clock: Option<&SteppedClock>,
) -> io::Result<Process> {
    let (port, folder) = (address.port().to_string(), folder.path());
    let configuration = folder.join(CONFIGURATION);
    let mut args: Vec<String> = Vec::new();
    if configuration.exists() {
        args.push(configuration.display().to_string());
    }
    args.extend(["--bind", "127.0.0.1", "--port", &port, "--dir"].map(str::to_owned));
    args.push(folder.display().to_string());
    args.extend_from_slice(options);
    let environment = clock.map(SteppedClock::environment).unwrap_or_default();
    let mut process = Process::start("redis-server", &args, &environment, &folder.join("redis.log"))?;
    let answered = |_: &mut Process| answers(address).unwrap_or(false);
    process.wait_until("redis-server does not answer", answered)?;
    Ok(process)
}

fn answers(address: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    // A server with a password answers `-NOAUTH`.
    Ok([b"+PONG", b"-NOAU"].contains(&&answer))
}
