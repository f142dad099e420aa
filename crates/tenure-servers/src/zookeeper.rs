//! A real ZooKeeper for tests: one server, and what each server of an ensemble has.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::needs::JAVA_LIBRARIES;
use crate::port::Port;
use crate::process::{Data, Process};

/// Jars with the server, what it needs to speak TLS, and a logger that writes to the standard error.
const JARS: [&str; 5] = [
    "zookeeper",
    "slf4j-simple",
    "netty-codec",
    "netty-resolver",
    "netty-transport-native-unix-common",
];

/// Options of Java for a small server that starts quickly: it does not verify the code of Debian's packages.
const JAVA_OPTIONS: [&str; 7] = [
    "-Xmx128m",
    "-Xms16m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
];

const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// Time limit for one answer of a server.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// What a server of an ensemble has besides.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) number: usize,
    pub(crate) environment: Vec<(String, String)>,
}

/// A ZooKeeper server on free ports. Dropping this ends the server.
#[derive(Debug)]
pub struct ZooKeeper {
    folder: TempDir,
    clients: Port,
    secure: Option<Port>,
    /// The content of `zoo.cfg`.
    settings: String,
    member: Option<Member>,
    process: Process,
}

impl ZooKeeper {
    /// Starts a lone server. It negotiates session timeouts of 2 to 20 times `tick_time`.
    ///
    /// # Errors
    /// The system's error, or one with the server's output if it does not serve requests within 30 s.
    pub fn start(tick_time: Duration) -> io::Result<ZooKeeper> {
        Self::start_with(tick_time, "")
    }

    /// Starts a lone server. `settings` are further lines of its file `zoo.cfg`, such as those that limit sessions.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(tick_time: Duration, settings: &str) -> io::Result<ZooKeeper> {
        let mut server = Self::launch_with(tick_time, settings, None, None)?;
        server.wait_until_it_serves()?;
        Ok(server)
    }

    /// Starts a lone server that also talks TLS, at [`secure_address`](Self::secure_address). `settings` are further
    /// lines of its file `zoo.cfg`, such as those that name its certificate.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_secured(tick_time: Duration, settings: &str) -> io::Result<ZooKeeper> {
        let port = Port::reserve()?;
        let factory = "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory";
        let address = port.address();
        let settings = format!(
            "{factory}\nsecureClientPortAddress={}\nsecureClientPort={}\n{settings}\n",
            address.ip(),
            address.port()
        );
        let mut server = Self::launch_with(tick_time, &settings, Some(port), None)?;
        server.wait_until_it_serves()?;
        // The server listens for clients with TLS last.
        server
            .process
            .wait_until("ZooKeeper does not listen for TLS", |_| {
                TcpStream::connect_timeout(&address, ANSWER_LIMIT).is_ok()
            })?;
        Ok(server)
    }

    /// Starts a server with further lines of `zoo.cfg`, and does not wait until it serves requests.
    pub(crate) fn launch_with(
        tick_time: Duration,
        settings: &str,
        secure: Option<Port>,
        member: Option<Member>,
    ) -> io::Result<ZooKeeper> {
        let folder = tempfile::tempdir()?;
        let clients = Port::reserve()?;
        let data = folder.path().join("data").display().to_string();
        let mut all = format!(
            "tickTime={}\ndataDir={data}\nclientPortAddress={}\nclientPort={}\n",
            tick_time.as_millis(),
            clients.address().ip(),
            clients.address().port()
        );
        all += "admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n";
        all += settings;
        let process = launch(&folder, &all, member.as_ref())?;
        Ok(ZooKeeper {
            folder,
            clients,
            secure,
            settings: all,
            member,
            process,
        })
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.clients.address()
    }

    /// The address for clients that talk TLS.
    ///
    /// # Panics
    /// If the server was not started by [`start_secured`](Self::start_secured).
    pub fn secure_address(&self) -> SocketAddr {
        self.secure.as_ref().expect("the server talks TLS").address()
    }

    /// The URL of a store on this server alone.
    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.address())
    }

    /// The server's process, to pause, continue or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Kills the server if it runs, starts it again on the same ports, and waits until it serves requests.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn restart(&mut self, data: Data) -> io::Result<()> {
        self.launch_again(data)?;
        self.wait_until_it_serves()
    }

    /// Kills the server if it runs, and starts it again on the same ports.
    pub(crate) fn launch_again(&mut self, data: Data) -> io::Result<()> {
        self.process.kill();
        if data == Data::Lost {
            std::fs::remove_dir_all(self.folder.path().join("data"))?;
        }
        remove_unbegun_logs(&self.folder.path().join("data/version-2"))?;
        self.process = launch(&self.folder, &self.settings, self.member.as_ref())?;
        Ok(())
    }

    /// The server's answer to a command of four letters, such as `srvr` and `cons`.
    ///
    /// # Errors
    /// The system's error if the server does not answer within a second.
    pub fn ask(&self, command: &str) -> io::Result<String> {
        ask(self.address(), command)
    }

    /// What the server is: `standalone`, `leader`, `follower`, or `None` if it serves no requests at present.
    pub fn mode(&self) -> Option<String> {
        let answer = self.ask("srvr").ok()?;
        let mut lines = answer.lines();
        lines.find_map(|line| line.strip_prefix("Mode: ").map(str::to_owned))
    }

    /// Waits until the server serves requests. One of an ensemble needs a leader for that.
    pub(crate) fn wait_until_it_serves(&mut self) -> io::Result<()> {
        let address = self.address();
        self.process.wait_until("ZooKeeper serves no requests", |_| {
            ask(address, "srvr").is_ok_and(|answer| answer.contains("Mode: "))
        })
    }
}

/// Writes the settings, and starts a server on them.
fn launch(folder: &TempDir, settings: &str, member: Option<&Member>) -> io::Result<Process> {
    let folder = folder.path();
    std::fs::create_dir_all(folder.join("data"))?;
    if let Some(member) = member {
        std::fs::write(folder.join("data/myid"), member.number.to_string())?;
    }
    let file = folder.join("zoo.cfg");
    std::fs::write(&file, settings)?;
    let mut jars = String::new();
    for jar in JARS {
        // Writing to a string cannot fail.
        let _ = write!(jars, "{JAVA_LIBRARIES}/{jar}.jar:");
    }
    let options = JAVA_OPTIONS.map(str::to_owned);
    let file = file.display().to_string();
    let args = ["-cp".to_owned(), jars, MAIN.to_owned(), file];
    let args = [&options[..], &args].concat();
    let environment = member.map_or(&[][..], |member| &member.environment);
    Process::start("java", &args, environment, &folder.join("zookeeper.log"))
}

/// The length of the header of a transaction log, in bytes.
const HEADER: u64 = 16;

/// Removes logs without a whole header. A server that is killed while it begins a log leaves one, and then refuses to start
/// until an operator has removed it.
fn remove_unbegun_logs(folder: &Path) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for file in std::fs::read_dir(folder)? {
        let file = file?;
        let is_log = file.file_name().to_string_lossy().starts_with("log.");
        if is_log && file.metadata()?.len() < HEADER {
            std::fs::remove_file(file.path())?;
        }
    }
    Ok(())
}

/// The server's answer to a command of four letters.
fn ask(server: SocketAddr, command: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&server, ANSWER_LIMIT)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.write_all(command.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_logs_without_a_header_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for (name, length) in [("log.1", 0), ("log.2", 15), ("log.3", 16), ("snapshot.0", 0)] {
            std::fs::write(folder.path().join(name), vec![0; length]).unwrap();
        }
        remove_unbegun_logs(folder.path()).unwrap();
        remove_unbegun_logs(&folder.path().join("none")).unwrap();
        let left = std::fs::read_dir(folder.path()).unwrap();
        let mut left: Vec<_> = left.map(|file| file.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["log.3", "snapshot.0"]);
    }
}
