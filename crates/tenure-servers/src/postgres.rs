//! A real PostgreSQL server for tests, and standbys that follow it.

use std::fs::Permissions;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::account::Account;
use crate::clock::SteppedClock;
use crate::needs::{cannot_start, program};
use crate::port::Port;
use crate::process::{Data, Process};

/// Settings for many short tests. Without `fsync`, a killed server loses nothing, but a machine without power may.
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

/// How to make the data of a new server. Small files of the log save time.
const INITDB: [&str; 6] = [
    "--username=postgres",
    "--auth=trust",
    "--encoding=UTF8",
    "--locale=C.UTF-8",
    "--wal-segsize=1",
    "--no-sync",
];

/// How to copy a server and follow it.
const COPY: [&str; 4] = [
    "--write-recovery-conf",
    "--checkpoint=fast",
    "--no-manifest",
    "--no-sync",
];

/// Lines of the file `postmaster.pid`, which a server writes about itself.
const PID: usize = 0;
const MEMORY: usize = 6;
const STATUS: usize = 7;

/// A PostgreSQL server on a free port. Dropping this ends the server.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    site: Site,
    port: Port,
}

/// What a restart needs to know.
#[derive(Debug)]
struct Site {
    folder: TempDir,
    account: Account,
    /// Lines of `postgresql.conf`.
    options: Vec<String>,
    /// Names and contents of further files of the data folder.
    files: Vec<(String, String)>,
    /// The server to copy; `None` for a server of its own.
    primary: Option<SocketAddr>,
    clock: Option<Arc<SteppedClock>>,
}

impl Postgres {
    /// Starts a server with the default options of this crate: without `fsync`.
    ///
    /// # Errors
    /// The system's error, or one with the server's output if the server does not start.
    pub fn start() -> io::Result<Postgres> {
        Self::start_with(&[], &[], None)
    }

    /// Starts a server. `options` are lines of `postgresql.conf`, such as `ssl = on`. `files` are names and contents of
    /// further files of the data folder, such as `server.key`, with the mode 0600. With `clock`, a test can step the
    /// server's wall clock.
    ///
    /// # Errors
    /// As [`start`](Postgres::start).
    pub fn start_with(
        options: &[&str],
        files: &[(&str, &str)],
        clock: Option<SteppedClock>,
    ) -> io::Result<Postgres> {
        let owned = |(name, content): &(&str, &str)| ((*name).to_owned(), (*content).to_owned());
        Self::start_at(Site {
            folder: tempfile::tempdir()?,
            account: Account::of_package("postgres")?,
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            files: files.iter().map(owned).collect(),
            primary: None,
            clock: clock.map(Arc::new),
        })
    }

    fn start_at(site: Site) -> io::Result<Postgres> {
        let port = Port::reserve()?;
        site.account.own(site.folder.path())?;
        site.make_data()?;
        let process = site.launch(port.address())?;
        Ok(Postgres { process, site, port })
    }

    /// Starts a standby, and returns once it receives the log of this server. It has the options of this server and
    /// then `options`: the last line for a setting wins. It reads the same clock.
    ///
    /// # Errors
    /// As [`start`](Postgres::start), or the error of the copy.
    pub fn standby(&self, options: &[&str]) -> io::Result<Postgres> {
        let own = options.iter().map(|option| (*option).to_owned());
        let mut standby = Self::start_at(Site {
            folder: tempfile::tempdir()?,
            account: Account::of_package("postgres")?,
            options: self.site.options.iter().cloned().chain(own).collect(),
            files: self.site.files.clone(),
            primary: Some(self.address()),
            clock: self.site.clock.clone(),
        })?;
        let (folder, port) = (standby.site.folder.path(), standby.port.address().port());
        standby.process.wait_until("the standby receives no log", |_| {
            let status = ask(folder, port, "SELECT status FROM pg_stat_wal_receiver");
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
        self.site.folder.path()
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
        self.site.clock.as_deref()
    }

    /// Kills the server if it runs, and starts it again on the same port. A standby that has lost its data copies its
    /// primary again.
    ///
    /// # Errors
    /// As [`start`](Postgres::start).
    pub fn restart(&mut self, data: Data) -> io::Result<()> {
        self.process.kill();
        if data == Data::Lost {
            self.site.free_memory();
            std::fs::remove_dir_all(self.site.data())?;
            self.site.make_data()?;
        }
        self.process = self.site.launch(self.port.address())?;
        Ok(())
    }

    /// Runs SQL statements as the superuser, one after the other, and returns the rows: a line for each, with `|`
    /// between the columns.
    ///
    /// # Errors
    /// The error of the system, or of the first statement that fails.
    pub fn ask(&self, sql: &str) -> io::Result<String> {
        ask(self.socket_folder(), self.address().port(), sql)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.process.kill();
        self.site.free_memory();
    }
}

impl Site {
    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Makes the data folder: that of a new server, or a copy of the primary's.
    fn make_data(&self) -> io::Result<()> {
        let data = self.data();
        let path = data.display().to_string();
        match self.primary {
            None => self
                .account
                .run("initdb", &[&INITDB[..], &["-D", &path]].concat())?,
            Some(primary) => {
                let url = format!("postgres://postgres@{primary}");
                let args = ["--dbname", &url, "--pgdata", &path];
                self.account.run("pg_basebackup", &[&COPY[..], &args].concat())?;
            }
        }
        self.write(
            "postgresql.conf",
            &(SETTINGS.to_owned() + &self.options.join("\n")),
        )?;
        self.write("pg_hba.conf", LOGINS)?;
        for (name, content) in &self.files {
            self.write(name, content)?;
        }
        Ok(())
    }

    /// Writes a file of the data folder that only the server's user can read.
    fn write(&self, name: &str, content: &str) -> io::Result<()> {
        let path = self.data().join(name);
        std::fs::write(&path, content)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        self.account.own(&path)
    }

    /// Starts the server, and returns once it accepts connections.
    fn launch(&self, address: SocketAddr) -> io::Result<Process> {
        let (folder, data) = (self.folder.path(), self.data());
        let port = address.port().to_string();
        let [socket, path] = [folder, &data].map(|path| path.display().to_string());
        let args = ["-D", &path, "-p", &port, "-k", &socket].map(str::to_owned);
        let environment = self
            .clock
            .as_deref()
            .map(SteppedClock::environment)
            .unwrap_or_default();
        let log = folder.join("postgres.log");
        let process = Process::start_as(Some(&self.account), "postgres", &args, &environment, &log)?;
        // SIGINT cuts the clients' connections; after SIGTERM, the server waits until the clients close them.
        let mut process = process.with_stop_signal(Signal::INT);
        process.wait_until("postgres does not start", |process| {
            let is = |line, value: &str| own_line(&data, line).is_some_and(|text| text == value);
            is(PID, &process.pid().to_string()) && is(STATUS, "ready")
        })?;
        Ok(process)
    }

    /// Frees the block of System V memory that a killed server leaves behind. The system has only 4,096 such blocks.
    fn free_memory(&self) {
        let memory = own_line(&self.data(), MEMORY).unwrap_or_default();
        // The line has the block's key and its ID.
        if let Some(id) = memory.split_whitespace().nth(1) {
            // Fails if the server has freed the block itself.
            let _ = Command::new("ipcrm").args(["-m", id]).output();
        }
    }
}

/// A line of what the server has written about itself.
fn own_line(data: &Path, number: usize) -> Option<String> {
    let lines = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
    lines.lines().nth(number).map(|line| line.trim().to_owned())
}

fn ask(folder: &Path, port: u16, sql: &str) -> io::Result<String> {
    let mut client = Command::new(program("psql"))
        .args(["-U", "postgres", "-d", "postgres", "-p", &port.to_string(), "-h"])
        .arg(folder)
        .args(["-v", "ON_ERROR_STOP=1", "-AtXqf", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| cannot_start("psql", error))?;
    if let Some(mut input) = client.stdin.take() {
        // Fails if the client has ended, whose output says why.
        let _ = input.write_all(sql.as_bytes());
    }
    let output = client.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(io::Error::other(text(&output.stderr))),
    }
}
