//! A Redis server.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::clock::SteppedClock;
use crate::needs::cannot_start;
use crate::process::Process;

/// How long a server may take to answer its first call.
const PATIENCE: Duration = Duration::from_secs(30);

/// Below the ports that the system gives to outgoing connections: a client that tries a server which is down could
/// otherwise be given that very port, and connect to itself, and the server could not come back.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// How many ports are tried.
const TRIES: u32 = 20;

/// Whether a server that is started again still has what it knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// As far as it had written it.
    Kept,
    /// Nothing is left.
    Lost,
}

/// How much of what a server was told is on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Nothing: as fast as can be.
    Nothing,
    /// What Redis keeps unless it is told otherwise, a snapshot now and then: a kill loses all since the last.
    Snapshots,
    /// Every write, before it is answered: a kill loses nothing.
    EveryWrite,
}

impl Disk {
    fn options(self) -> &'static [&'static str] {
        match self {
            Disk::Nothing => &["--save", "", "--appendonly", "no"],
            Disk::Snapshots => &[],
            Disk::EveryWrite => &["--save", "", "--appendonly", "yes", "--appendfsync", "always"],
        }
    }
}

/// A Redis server of its own, on a free port; ended when this is dropped.
#[derive(Debug)]
pub struct Redis {
    folder: TempDir,
    address: SocketAddr,
    options: Vec<String>,
    clock: Option<SteppedClock>,
    process: Process,
}

impl Redis {
    /// A server that writes nothing to disk, as fast as can be.
    ///
    /// # Errors
    /// What the system says if it cannot be started, with what the server printed.
    pub fn start() -> io::Result<Redis> {
        Self::start_on(Disk::Nothing, None)
    }

    /// A server that writes so much to disk, with a clock that steps if there is one.
    ///
    /// # Errors
    /// As [`start`](Redis::start).
    pub fn start_on(disk: Disk, clock: Option<SteppedClock>) -> io::Result<Redis> {
        Self::start_with(disk.options(), clock)
    }

    /// A server with the command-line options that are given, and a clock that steps if there is one.
    ///
    /// # Errors
    /// As [`start`](Redis::start).
    pub fn start_with(options: &[&str], clock: Option<SteppedClock>) -> io::Result<Redis> {
        let folder = tempfile::tempdir()?;
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let mut last = io::Error::other("no port was tried");
        for _ in 0..TRIES {
            let chance = RandomState::new().hash_one(0) % u64::from(PORTS.end - PORTS.start);
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORTS.start + chance as u16));
            // Another process may take the port between our look and the server's start: then another is tried.
            let free = TcpListener::bind(address).map(drop);
            match free.and_then(|()| launch(&folder, address, &options, clock.as_ref())) {
                Ok(process) => {
                    return Ok(Redis {
                        folder,
                        address,
                        options,
                        clock,
                        process,
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Its process, to be paused, continued or killed.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its clock, if it has one that steps.
    pub fn clock(&self) -> Option<&SteppedClock> {
        self.clock.as_ref()
    }

    /// Kills it if it runs, and starts it again on the same port.
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
        self.process = launch(&self.folder, self.address, &self.options, self.clock.as_ref())?;
        Ok(())
    }

    /// What the server answers to a command, as `redis-cli` prints it.
    ///
    /// # Errors
    /// What the system or the server says.
    pub fn ask(&self, command: &[&str]) -> io::Result<String> {
        let output = Command::new("redis-cli")
            .args(["-e", "-u", &self.url()])
            .args(command)
            .output()
            .map_err(|error| cannot_start("redis-cli", error))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(io::Error::other(text(&output.stdout) + &text(&output.stderr)))
        }
    }
}

fn launch(
    folder: &TempDir,
    address: SocketAddr,
    options: &[String],
    clock: Option<&SteppedClock>,
) -> io::Result<Process> {
    let (port, folder) = (address.port().to_string(), folder.path());
    let mut args = ["--bind", "127.0.0.1", "--port", &port, "--dir"]
        .map(str::to_owned)
        .to_vec();
    args.push(folder.display().to_string());
    args.extend_from_slice(options);
    let environment = clock.map(SteppedClock::environment).unwrap_or_default();
    let mut process = Process::start("redis-server", &args, &environment, &folder.join("redis.log"))?;
    let end = Instant::now() + PATIENCE;
    while !answers(address).unwrap_or(false) {
        if !process.is_running() || Instant::now() >= end {
            let said = process.log();
            return Err(io::Error::other(format!("redis-server does not answer:\n{said}")));
        }
        // sleep: a server that starts says nothing to wait for.
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(process)
}

/// Whether a server there answers a ping.
fn answers(address: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    Ok(&answer == b"+PONG")
}
