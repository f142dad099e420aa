//! A real etcd for tests: one member, or a cluster of three.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::links::Links;
use crate::needs::{cannot_start, program};
use crate::port::Port;
use crate::process::{Data, Process};

/// Settings for many short tests: passwords are hashed quickly, and a member that lost its data can be replaced at once.
const SETTINGS: [&str; 9] = [
    "--logger",
    "zap",
    "--log-outputs",
    "stderr",
    "--bcrypt-cost",
    "4",
    "--initial-cluster-token",
    "tests",
    "--strict-reconfig-check=false",
];

/// A lone member elects itself sooner with these settings, and grants leases from 1 s on. Members of a cluster keep the
/// defaults of etcd: on a busy machine they would often elect another leader.
const QUICK: [&str; 4] = ["--heartbeat-interval", "30", "--election-timeout", "300"];

/// Time limit for members to elect a leader.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time limit for one answer of a member.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// A member of etcd on free ports. Dropping this ends the member.
#[derive(Debug)]
pub struct Etcd {
    folder: TempDir,
    ports: Ports,
    name: String,
    options: Vec<String>,
    process: Process,
}

#[derive(Debug)]
struct Ports {
    clients: Port,
    members: Port,
    /// The address that the other members know.
    known: SocketAddr,
    /// Serves health and metrics in plain text, also if the clients need TLS.
    metrics: Port,
}

impl Ports {
    fn reserve() -> io::Result<Ports> {
        let members = Port::reserve()?;
        Ok(Ports {
            clients: Port::reserve()?,
            known: members.address(),
            members,
            metrics: Port::reserve()?,
        })
    }
}

impl Etcd {
    /// Starts a lone member.
    ///
    /// # Errors
    /// The system's error, or one with the server's output if the server does not become healthy.
    pub fn start() -> io::Result<Etcd> {
        Self::start_with(&[])
    }

    /// Starts a lone member with these command-line options. With `--cert-file`, it talks TLS to its clients.
    ///
    /// # Errors
    /// As [`start`](Etcd::start).
    pub fn start_with(options: &[&str]) -> io::Result<Etcd> {
        let ports = Ports::reserve()?;
        let members = member_of("m0", &ports);
        let mut member = Self::start_as("m0", ports, &members, &[&QUICK, options].concat())?;
        member.wait_until_healthy()?;
        Ok(member)
    }

    /// Starts a member of the cluster `members`, and does not wait until it answers.
    fn start_as(name: &str, ports: Ports, members: &str, options: &[&str]) -> io::Result<Etcd> {
        let options = [&SETTINGS, options].concat();
        let options: Vec<String> = options.into_iter().map(str::to_owned).collect();
        let folder = tempfile::tempdir()?;
        let process = launch(name, &folder, &ports, &["--initial-cluster", members], &options)?;
        Ok(Etcd {
            folder,
            ports,
            name: name.to_owned(),
            options,
            process,
        })
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.ports.clients.address()
    }

    /// The URL of a store on this member alone.
    pub fn url(&self) -> String {
        format!("etcd://{}", self.address())
    }

    /// The member's process, to pause, continue or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Kills the lone member if it runs, and starts it again on the same ports.
    ///
    /// # Errors
    /// As [`start`](Etcd::start).
    pub fn restart(&mut self, data: Data) -> io::Result<()> {
        self.process.kill();
        if data == Data::Lost {
            std::fs::remove_dir_all(self.data())?;
        }
        let members = member_of(&self.name, &self.ports);
        self.launch(&["--initial-cluster", &members])?;
        self.wait_until_healthy()
    }

    /// Runs `etcdctl` with these arguments on this member, and returns what it prints.
    ///
    /// # Errors
    /// The error of the system or the server.
    pub fn ask(&self, args: &[&str]) -> io::Result<String> {
        self.ask_with(args, "")
    }

    /// As [`ask`](Etcd::ask), with a text that `etcdctl` reads, as the transactions of `etcdctl txn`.
    ///
    /// # Errors
    /// The error of the system or the server.
    pub fn ask_with(&self, args: &[&str], input: &str) -> io::Result<String> {
        let mut child = Command::new(program("etcdctl"))
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &client_url(&self.ports, &self.options)])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| cannot_start("etcdctl", error))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(io::Error::other(text(&output.stdout) + &text(&output.stderr))),
        }
    }

    /// The keys that are on no lease, so that they stay until they are deleted.
    ///
    /// # Errors
    /// As [`ask`](Etcd::ask).
    pub fn keys_without_lease(&self) -> io::Result<Vec<String>> {
        // A lease that ends meanwhile takes its keys with it, so the keys are listed last.
        let leases = self.ask(&["lease", "list"])?;
        let of_lease = |lease| self.ask(&["lease", "timetolive", "--keys", lease]);
        let leased: io::Result<String> = leases.lines().skip(1).map(of_lease).collect();
        let (leased, all) = (leased?, self.ask(&["get", "", "--prefix", "--keys-only"])?);
        let mut kept: Vec<String> = all
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect();
        kept.retain(|key| !leased.contains(key.as_str()));
        Ok(kept)
    }

    /// The value of one of the member's metrics, such as `etcd_server_is_leader`.
    ///
    /// # Errors
    /// The system's error if the member does not answer within a second, or an error if it has no such metric.
    pub fn metric(&self, name: &str) -> io::Result<f64> {
        let page = get(self.ports.metrics.address(), "/metrics")?;
        let value = page
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = value.and_then(|value| value.trim().parse().ok());
        value.ok_or_else(|| io::Error::other(format!("the member has no metric {name}")))
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    fn launch(&mut self, cluster: &[&str]) -> io::Result<()> {
        self.process = launch(&self.name, &self.folder, &self.ports, cluster, &self.options)?;
        Ok(())
    }

    /// Waits until the member can serve requests, which needs a leader.
    fn wait_until_healthy(&mut self) -> io::Result<()> {
        let address = self.ports.metrics.address();
        self.process.wait_until("etcd has no leader", |_| {
            get(address, "/health").is_ok_and(|answer| answer.contains(r#""health":"true""#))
        })
    }

    /// Waits until the member answers, with or without a leader.
    fn wait_until_it_answers(&mut self) -> io::Result<()> {
        let address = self.ports.metrics.address();
        self.process
            .wait_until("etcd does not answer", |_| get(address, "/metrics").is_ok())
    }
}

/// A cluster of three members. Dropping this ends them.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Etcd>,
    links: Option<Links>,
}

impl EtcdCluster {
    /// Starts three members with these command-line options, and waits until they have a leader.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub fn start(options: &[&str]) -> io::Result<EtcdCluster> {
        let ports: io::Result<Vec<Ports>> = (0..3).map(|_| Ports::reserve()).collect();
        Self::start_on(ports?, None, options)
    }

    /// Starts three members whose network a test can cut.
    ///
    /// # Cancel safety
    /// Dropping the future starts no member.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    ///
    /// # Panics
    /// On a runtime with one thread: this blocks until the members have a leader, and another thread must serve their
    /// network.
    pub async fn start_divisible(options: &[&str]) -> io::Result<EtcdCluster> {
        let ports: io::Result<Vec<Ports>> = (0..3).map(|_| Ports::reserve()).collect();
        let mut ports = ports?;
        let listening: Vec<SocketAddr> = ports.iter().map(|ports| ports.members.address()).collect();
        let (links, known) = Links::start(&listening).await?;
        for (ports, known) in ports.iter_mut().zip(known) {
            ports.known = known;
        }
        tokio::task::block_in_place(|| Self::start_on(ports, Some(links), options))
    }

    fn start_on(ports: Vec<Ports>, links: Option<Links>, options: &[&str]) -> io::Result<EtcdCluster> {
        let named = ports.into_iter().enumerate();
        let named: Vec<_> = named
            .map(|(number, ports)| (format!("m{number}"), ports))
            .collect();
        let all: Vec<String> = named.iter().map(|(name, ports)| member_of(name, ports)).collect();
        let start = |(name, ports): (String, Ports)| Etcd::start_as(&name, ports, &all.join(","), options);
        let members: io::Result<Vec<Etcd>> = named.into_iter().map(start).collect();
        let mut cluster = EtcdCluster {
            members: members?,
            links,
        };
        (0..3).for_each(|number| cluster.link(number));
        for member in &mut cluster.members {
            member.wait_until_healthy()?;
        }
        Ok(cluster)
    }

    /// Lets a member that was started reach the others.
    fn link(&self, number: usize) {
        if let Some(links) = &self.links {
            links.set_process(number, self.members[number].process.pid());
        }
    }

    /// Cuts a member off from the other members, in both directions, until [`heal`](EtcdCluster::heal). What they send to
    /// each other is kept back. Clients still reach all of them.
    ///
    /// # Panics
    /// If the cluster was not started by [`start_divisible`](EtcdCluster::start_divisible).
    pub fn cut_off(&self, number: usize) {
        self.links
            .as_ref()
            .expect("the cluster is divisible")
            .cut_off(number);
    }

    /// Ends all cuts, and delivers what was kept back.
    pub fn heal(&self) {
        self.links.iter().for_each(Links::heal);
    }

    /// The URL of a store, which names all members.
    pub fn url(&self) -> String {
        let hosts = self.members.iter().map(|member| member.address().to_string());
        format!("etcd://{}", hosts.collect::<Vec<_>>().join(","))
    }

    /// The members.
    pub fn members(&self) -> &[Etcd] {
        &self.members
    }

    /// A member, to pause, continue or kill it.
    pub fn member_mut(&mut self, number: usize) -> &mut Etcd {
        &mut self.members[number]
    }

    /// Whether all members run, know a leader, and agree on it.
    pub fn is_settled(&self) -> bool {
        let count = |name| {
            let is_set = |member: &&Etcd| member.metric(name).is_ok_and(|value| value > 0.0);
            self.members.iter().filter(is_set).count()
        };
        count("etcd_server_has_leader") == self.members.len() && count("etcd_server_is_leader") == 1
    }

    /// Number of the first member that takes itself for the leader, once two members know a leader. Members that do not
    /// answer within a second do not count.
    ///
    /// # Errors
    /// An error if there is no such member within 30 s.
    pub fn leader(&self) -> io::Result<usize> {
        let is_set = |member: &Etcd, name| member.metric(name).is_ok_and(|value| value > 0.0);
        let follows = |member: &&Etcd| is_set(member, "etcd_server_has_leader");
        let leads = |member: &Etcd| is_set(member, "etcd_server_is_leader");
        let end = Instant::now() + PATIENCE;
        loop {
            let has_majority = self.members.iter().filter(follows).count() >= 2;
            let leader = self.members.iter().position(leads);
            if let (true, Some(leader)) = (has_majority, leader) {
                return Ok(leader);
            }
            if Instant::now() >= end {
                return Err(io::Error::other("no member is the leader"));
            }
            // sleep: a member sends no event when it becomes the leader.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills a member if it runs, starts it again on the same ports, and waits until it answers. It may still lack a
    /// leader. A member that has lost its data is removed from the cluster and added as a new one, which needs a
    /// majority of the others.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub fn restart(&mut self, number: usize, data: Data) -> io::Result<()> {
        self.members[number].process.kill();
        let all: Vec<String> = self
            .members
            .iter()
            .map(|member| member_of(&member.name, &member.ports))
            .collect();
        let all = all.join(",");
        if data == Data::Lost {
            let member = &self.members[number];
            let (other, url) = (&self.members[(number + 1) % 3], peer_url(&member.ports));
            let list = other.ask(&["member", "list"])?;
            let line = list.lines().find(|line| line.contains(&url));
            let id = line.and_then(|line| line.split(',').next());
            let id = id.ok_or_else(|| io::Error::other("the others do not know the member"))?;
            other.ask(&["member", "remove", id])?;
            other.ask(&["member", "add", &member.name, "--peer-urls", &url])?;
            std::fs::remove_dir_all(member.data())?;
        }
        self.members[number].launch(&["--initial-cluster-state", "existing", "--initial-cluster", &all])?;
        self.link(number);
        self.members[number].wait_until_it_answers()
    }
}

/// A member in the text that lists the members of a cluster.
fn member_of(name: &str, ports: &Ports) -> String {
    format!("{name}={}", peer_url(ports))
}

fn peer_url(ports: &Ports) -> String {
    format!("http://{}", ports.known)
}

fn client_url(ports: &Ports, options: &[String]) -> String {
    let is_secure = options.iter().any(|option| option.starts_with("--cert-file"));
    let scheme = if is_secure { "https" } else { "http" };
    format!("{scheme}://{}", ports.clients.address())
}

fn launch(
    name: &str,
    folder: &TempDir,
    ports: &Ports,
    cluster: &[&str],
    options: &[String],
) -> io::Result<Process> {
    let folder = folder.path();
    let data = folder.join("data").display().to_string();
    let (clients, known) = (client_url(ports, options), peer_url(ports));
    let members = format!("http://{}", ports.members.address());
    let metrics = format!("http://{}", ports.metrics.address());
    let own = [
        ["--name", name],
        ["--data-dir", &data],
        ["--listen-client-urls", &clients],
        ["--advertise-client-urls", &clients],
        ["--listen-peer-urls", &members],
        ["--initial-advertise-peer-urls", &known],
        ["--listen-metrics-urls", &metrics],
    ];
    let own = own.as_flattened().iter().chain(cluster);
    let args: Vec<String> = own
        .map(|arg| (*arg).to_owned())
        .chain(options.iter().cloned())
        .collect();
    Process::start("etcd", &args, &[], &folder.join("etcd.log"))
}

/// The answer to a request of HTTP.
fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
