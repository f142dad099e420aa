//! A real MariaDB server for tests.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::clock::SteppedClock;
use crate::installation::{Installation, ask};
use crate::needs::program;
use crate::port::Port;
use crate::process::{Data, Process};

/// Settings that make both the installation and the server fast. Without `fsync`, a killed server loses nothing, but a
/// power failure may lose data.
const FAST: [&str; 4] = [
    "--no-defaults",
    "--debug-no-sync",
    "--innodb-flush-method=nosync",
    "--innodb-log-file-size=16M",
];

/// Further settings of the installation: `root` needs no password.
const NEW_DATA: [&str; 3] = [
    "--auth-root-authentication-method=normal",
    "--skip-name-resolve",
    "--skip-test-db",
];

/// Further settings of the server.
const SERVER: [&str; 6] = [
    "--bind-address=127.0.0.1",
    "--character-set-server=utf8mb4",
    "--innodb-buffer-pool-size=16M",
    "--max-connections=200",
    "--skip-log-bin",
    "--skip-name-resolve",
];

/// A MariaDB server on a free port. Dropping this ends the server.
#[derive(Debug)]
pub struct MariaDb {
    process: Process,
    installation: Installation,
    port: Port,
}

impl MariaDb {
    /// Starts a server with the default options of this crate: without `fsync`.
    ///
    /// # Errors
    /// The system's error, or one with the server's output if the server does not start.
    pub fn start() -> io::Result<MariaDb> {
        Self::start_with(&[], &[], None)
    }

    /// Starts a server with these command-line options. `--skip-debug-no-sync --innodb-flush-method=fsync` makes it
    /// call `fsync`. `files` are names and contents of further files of the data folder, such as `server.key`, with the
    /// mode 0600. With `clock`, a test can step the server's wall clock.
    ///
    /// # Errors
    /// As [`start`](MariaDb::start).
    pub fn start_with(
        options: &[&str],
        files: &[(&str, &str)],
        clock: Option<SteppedClock>,
    ) -> io::Result<MariaDb> {
        let installation = Installation::new("mysql", options, files, clock)?;
        let port = Port::reserve()?;
        make_data(&installation)?;
        let process = launch(&installation, port.address())?;
        Ok(MariaDb {
            process,
            installation,
            port,
        })
    }

    /// The server's address.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The server's Unix socket.
    pub fn socket(&self) -> PathBuf {
        socket(self.installation.folder())
    }

    /// The server's URL, with the superuser, who needs no password.
    pub fn url(&self) -> String {
        format!("mysql://root@{}/", self.address())
    }

    /// The server's process, to pause, continue, stop or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The server's clock, if the test can step it.
    pub fn clock(&self) -> Option<&SteppedClock> {
        self.installation.clock()
    }

    /// Kills the server if it runs, and starts it again on the same port.
    ///
    /// # Errors
    /// As [`start`](MariaDb::start).
    pub fn restart(&mut self, data: Data) -> io::Result<()> {
        self.process.kill();
        if data == Data::Lost {
            std::fs::remove_dir_all(self.installation.data())?;
            make_data(&self.installation)?;
        }
        self.process = launch(&self.installation, self.port.address())?;
        Ok(())
    }

    /// Runs SQL statements as the superuser, one after the other, and returns the rows: a line for each, with tabs
    /// between the columns.
    ///
    /// # Errors
    /// The error of the system, or of the first statement that fails.
    pub fn ask(&self, sql: &str) -> io::Result<String> {
        let mut client = Command::new(program("mariadb"));
        client
            .args(["--no-defaults", "--user=root", "--default-character-set=utf8mb4"])
            .args(["--batch", "--skip-column-names", "--socket"])
            .arg(self.socket());
        ask("mariadb", &mut client, sql)
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        // Ends the server before its folder is removed.
        self.process.kill();
    }
}

/// Makes the data folder of a new server.
fn make_data(installation: &Installation) -> io::Result<()> {
    let [data, temporary] = folders(installation);
    let options = [&FAST[..], &NEW_DATA].concat();
    installation.make_data("mariadb-install-db", &options, &[&data, &temporary])?;
    installation.write_files()
}

/// Starts the server, and returns once it accepts connections.
fn launch(installation: &Installation, address: SocketAddr) -> io::Result<Process> {
    let folder = installation.folder();
    let settings = FAST.iter().chain(&SERVER).map(|setting| (*setting).to_owned());
    let mut args: Vec<String> = settings.chain(folders(installation)).collect();
    args.extend([
        format!("--port={}", address.port()),
        format!("--socket={}", socket(folder).display()),
        format!("--pid-file={}", folder.join("server.pid").display()),
    ]);
    args.extend_from_slice(&installation.options);
    let mut process = installation.start("mariadbd", &args)?;
    process.wait_until("mariadbd does not answer", |_| greets(address).unwrap_or(false))?;
    Ok(process)
}

/// Options with the folders for data and for temporary files.
fn folders(installation: &Installation) -> [String; 2] {
    let (data, temporary) = (installation.data(), installation.folder());
    [
        format!("--datadir={}", data.display()),
        format!("--tmpdir={}", temporary.display()),
    ]
}

/// Returns whether the server greets a client: it does so once it has started.
fn greets(address: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut greeting = [0; 5];
    stream.read_exact(&mut greeting)?;
    // The version of the protocol, after the length and number of the packet.
    Ok(greeting[4] == 10)
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("server.sock")
}
