//! A real PgBouncer for tests: many clients share few connections to a PostgreSQL server.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use crate::installation::{Installation, ask};
use crate::needs::program;
use crate::port::Port;
use crate::postgres::{Postgres, USER};
use crate::process::Process;

/// The file with the settings.
const SETTINGS: &str = "pgbouncer.ini";

/// Connections to the server for each role: few, so that clients have to share them.
const POOL: u32 = 4;

/// As in [`Postgres`], the superuser needs no password, every other role does.
const LOGINS: &str = "\
host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
local all all scram-sha-256
";

/// The superuser, without a password. PgBouncer reads the passwords of other roles from the server.
const ROLES: &str = "\"postgres\" \"\"\n";

/// A PgBouncer on a free port, in transaction mode. Dropping this ends it.
#[derive(Debug)]
pub struct PgBouncer {
    process: Process,
    installation: Installation,
    port: Port,
}

impl PgBouncer {
    /// Starts a PgBouncer for all databases and roles of a server. A client may get another connection to the server
    /// for each transaction, of at most 4 for each role. After a login at the server has failed, PgBouncer refuses clients
    /// for one second, not for its default of 15.
    ///
    /// # Errors
    /// The system's error, or one with the output of PgBouncer if it does not start.
    pub fn start(server: &Postgres) -> io::Result<PgBouncer> {
        PgBouncer::start_to(server, "127.0.0.1")
    }

    /// Starts a PgBouncer that connects to the server by its Unix socket.
    ///
    /// # Errors
    /// As [`start`](PgBouncer::start).
    pub fn start_by_socket(server: &Postgres) -> io::Result<PgBouncer> {
        PgBouncer::start_to(server, &server.socket_folder().display().to_string())
    }

    /// `host`: the server's, or the folder of its socket.
    fn start_to(server: &Postgres, host: &str) -> io::Result<PgBouncer> {
        let installation = Installation::new(USER, &[], &[], None)?;
        let port = Port::reserve()?;
        write_settings(&installation, port.address(), host, server.address().port())?;
        let process = launch(&installation, port.address())?;
        Ok(PgBouncer {
            process,
            installation,
            port,
        })
    }

    /// Kills PgBouncer if it runs, and starts it again on the same port.
    ///
    /// # Errors
    /// As [`start`](PgBouncer::start).
    pub fn restart(&mut self) -> io::Result<()> {
        self.process.kill();
        self.process = launch(&self.installation, self.port.address())?;
        Ok(())
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The folder with PgBouncer's Unix socket.
    pub fn socket_folder(&self) -> &Path {
        self.installation.folder()
    }

    /// The URL for clients, with the server's superuser, who needs no password.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }

    /// The process, to pause, continue or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Runs a command of the admin console, such as `SHOW POOLS`, and returns the rows: a line for each, with `|`
    /// between the columns.
    ///
    /// # Errors
    /// The error of the system or of PgBouncer.
    pub fn ask(&self, command: &str) -> io::Result<String> {
        let url = format!("postgres://postgres@{}/pgbouncer", self.address());
        let mut client = Command::new(program("psql"));
        client.args(["-v", "ON_ERROR_STOP=1", "-AtXqf", "-", &url]);
        ask("psql", &mut client, command)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        // Ends the process before its folder is removed.
        self.process.kill();
    }
}

fn write_settings(installation: &Installation, address: SocketAddr, host: &str, port: u16) -> io::Result<()> {
    let [settings, logins, roles] =
        [SETTINGS, "logins", "roles"].map(|name| installation.folder().join(name));
    let text = format!(
        "[databases]\n\
         * = host={host} port={port}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {}\n\
         unix_socket_dir = {}\n\
         pool_mode = transaction\n\
         default_pool_size = {POOL}\n\
         max_client_conn = 1000\n\
         server_login_retry = 1\n\
         auth_type = hba\n\
         auth_hba_file = {}\n\
         auth_file = {}\n\
         auth_user = postgres\n\
         admin_users = postgres\n",
        address.port(),
        installation.folder().display(),
        logins.display(),
        roles.display(),
    );
    installation.write(&settings, &text)?;
    installation.write(&logins, LOGINS)?;
    installation.write(&roles, ROLES)
}

/// Starts PgBouncer, and returns once it accepts connections.
fn launch(installation: &Installation, address: SocketAddr) -> io::Result<Process> {
    let settings = installation.folder().join(SETTINGS).display().to_string();
    let mut process = installation.start("pgbouncer", &[settings])?;
    process.wait_until("pgbouncer does not start", |_| {
        TcpStream::connect(address).is_ok()
    })?;
    Ok(process)
}
