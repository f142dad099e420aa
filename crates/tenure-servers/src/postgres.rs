//! A real PostgreSQL server for tests, and standbys that follow it.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::clock::SteppedClock;
use crate::installation::{self, Installation};
use crate::needs::program;
use crate::port::Port;
use crate::process::{Data, Process};

/// Settings for many short tests. Without `fsync`, a killed server loses nothing, but a power failure may lose data.
/// Shared memory lies in files, so that a killed server leaves none behind.
const SETTINGS: &str = "\
listen_addresses = '127.0.0.1'
max_connections = 200
shared_buffers = 16MB
dynamic_shared_memory_type = mmap
fsync = off
wal_keep_size = 64MB
lc_messages = C
timezone = UTC
";

/// The superuser needs no password, every other role does.
const LOGINS: &str = "\
local all,replication postgres trust
host all,replication postgres 127.0.0.1/32 trust
local all,replication all scram-sha-256
host all,replication all 127.0.0.1/32 scram-sha-256
";

/// Options for the data of a new server. Small log files save time.
const INITDB: [&str; 6] = [
    "--username=postgres",
    "--auth=trust",
    "--encoding=UTF8",
    "--locale=C.UTF-8",
    "--wal-segsize=1",
    "--no-sync",
];

/// Options for a copy of a server that follows the original.
const COPY: [&str; 4] = [
    "--write-recovery-conf",
    "--checkpoint=fast",
    "--no-manifest",
    "--no-sync",
];

/// The user that the server's Debian package has made.
pub(crate) const USER: &str = "postgres";

/// Numbers of lines of the file `postmaster.pid`, which a server writes about itself.
const PID: usize = 0;
const MEMORY: usize = 6;
const STATUS: usize = 7;

/// A PostgreSQL server on a free port. Dropping this ends the server.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    installation: Installation,
    port: Port,
    /// The server to copy if this one loses its data; `None` if this one is not a standby.
    primary: Option<SocketAddr>,
}

impl Postgres {
    /// Starts a server with the default options of this crate: without `fsync`.
    ///
    /// # Errors
    /// The system's error, or one with the server's output if the server does not start.
    pub fn start() -> io::Result<Postgres> {
        Self::start_with(&[], &[], None)
    }

    /// Starts a server. `options` are lines of `postgresql.conf`, such as `ssl = on` or `fsync = on`. `files` are names
    /// and contents of further files of the data folder, such as `server.key`, with the mode 0600. A file `pg_hba.conf`
    /// replaces the rules for logins. With `clock`, a test can step the server's wall clock.
    ///
    /// # Errors
    /// As [`start`](Postgres::start).
    pub fn start_with(
        options: &[&str],
        files: &[(&str, &str)],
        clock: Option<SteppedClock>,
    ) -> io::Result<Postgres> {
        Self::start_in(Installation::new(USER, options, files, clock)?, None)
    }

    fn start_in(installation: Installation, primary: Option<SocketAddr>) -> io::Result<Postgres> {
        let port = Port::reserve()?;
        make_data(&installation, primary)?;
        let process = launch(&installation, port.address())?;
        Ok(Postgres {
            process,
            installation,
            port,
            primary,
        })
    }

    /// Starts a standby, and returns once it receives the log of this server. The standby has the options of this server
    /// and then `options`: the last line for a setting wins. It reads the same clock.
    ///
    /// # Errors
    /// As [`start`](Postgres::start), or the error of the copy.
    pub fn standby(&self, options: &[&str]) -> io::Result<Postgres> {
        let installation = self.installation.copy(options)?;
        let mut standby = Self::start_in(installation, Some(self.address()))?;
        let (folder, address) = (standby.installation.folder(), standby.port.address());
        standby.process.wait_until("the standby receives no log", |_| {
            let status = ask(folder, address, "SELECT status FROM pg_stat_wal_receiver");
            status.is_ok_and(|status| status == "streaming")
        })?;
        Ok(standby)
    }

    /// Makes a standby accept writes. Returns once it does.
    ///
    /// # Errors
    /// The error of the system or the server, or an error if the standby is not promoted within a minute.
    pub fn promote(&self) -> io::Result<()> {
        match self.ask("SELECT pg_promote(true, 60)")?.as_str() {
            "t" => Ok(()),
            _ => Err(io::Error::other("the standby was not promoted within 60 s")),
        }
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The folder with the server's Unix socket.
    pub fn socket_folder(&self) -> &Path {
        self.installation.folder()
    }

    /// The server's URL, with the superuser, who needs no password.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }

    /// The server's process, to pause, continue, stop or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The server's clock, if the test can step it.
    pub fn clock(&self) -> Option<&SteppedClock> {
        self.installation.clock()
    }

    /// Kills the server if it runs, and starts it again on the same port. A standby that has lost its data copies its
    /// primary again.
    ///
    /// # Errors
    /// As [`start`](Postgres::start).
    pub fn restart(&mut self, data: Data) -> io::Result<()> {
        self.process.kill();
        if data == Data::Lost {
            free_memory(&self.installation.data());
            std::fs::remove_dir_all(self.installation.data())?;
            make_data(&self.installation, self.primary)?;
        }
        self.process = launch(&self.installation, self.port.address())?;
        Ok(())
    }

    /// Runs SQL statements as the superuser, one after the other, and returns the rows: a line for each, with `|`
    /// between the columns.
    ///
    /// # Errors
    /// The error of the system, or of the first statement that fails.
    pub fn ask(&self, sql: &str) -> io::Result<String> {
        ask(self.socket_folder(), self.address(), sql)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.process.kill();
        free_memory(&self.installation.data());
    }
}

/// Makes the data folder: that of a new server, or a copy of the primary's.
fn make_data(installation: &Installation, primary: Option<SocketAddr>) -> io::Result<()> {
    let data = installation.data();
    let path = format!("--pgdata={}", data.display());
    match primary {
        None => installation.make_data("initdb", &INITDB, &[&path])?,
        Some(primary) => {
            let primary = format!("--dbname=postgres://postgres@{primary}");
            let args = [&COPY[..], &[&primary, &path]].concat();
            installation.account.run("pg_basebackup", &args)?;
        }
    }
    let options = SETTINGS.to_owned() + &installation.options.join("\n");
    installation.write(&data.join("postgresql.conf"), &options)?;
    installation.write(&data.join("pg_hba.conf"), LOGINS)?;
    installation.write_files()
}

/// Starts the server, and returns once it accepts connections.
fn launch(installation: &Installation, address: SocketAddr) -> io::Result<Process> {
    let (folder, data) = (installation.folder(), installation.data());
    let port = address.port().to_string();
    let [socket, path] = [folder, &data].map(|path| path.display().to_string());
    let args = ["-D", &path, "-p", &port, "-k", &socket].map(str::to_owned);
    // SIGINT cuts the clients' connections; after SIGTERM, the server waits until the clients close them.
    let process = installation.start("postgres", &args)?;
    let mut process = process.with_stop_signal(Signal::INT);
    process.wait_until("postgres does not start", |process| {
        let is = |line, value: &str| own_line(&data, line).is_some_and(|text| text == value);
        is(PID, &process.pid().to_string()) && is(STATUS, "ready")
    })?;
    Ok(process)
}

/// Frees the block of System V memory that a killed server leaves behind. The system has only 4,096 such blocks.
fn free_memory(data: &Path) {
    let memory = own_line(data, MEMORY).unwrap_or_default();
    // The line has the block's key and its ID.
    if let Some(id) = memory.split_whitespace().nth(1) {
        // Fails if the server has freed the block itself.
        let _ = Command::new("ipcrm").args(["-m", id]).output();
    }
}

/// A line of what the server has written about itself.
fn own_line(data: &Path, number: usize) -> Option<String> {
    let lines = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
    lines.lines().nth(number).map(|line| line.trim().to_owned())
}

fn ask(folder: &Path, address: SocketAddr, sql: &str) -> io::Result<String> {
    let mut client = Command::new(program("psql"));
    client
        .args([
            "-U",
            "postgres",
            "-d",
            "postgres",
            "-p",
            &address.port().to_string(),
        ])
        .args(["-v", "ON_ERROR_STOP=1", "-AtXqf", "-", "-h"])
        .arg(folder);
    installation::ask("psql", &mut client, sql)
}
