//! The tested clients, each pinned to a release, and the programs that drive them.

use std::process::Command;

use tenure_servers::needs;

use crate::build::Build;

/// A client of another project, in a small program that answers the requests of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Redisson's newest release.
    Redisson,
    /// Redisson 3.23.0. Unlike the newest release, it writes no `redisson_unlock_latch` keys, and it runs a watchdog for
    /// each lock. Its fair lock fails if the head of the queue has no score.
    RedissonOld,
    /// `RedisLockRegistry` of Spring Integration.
    Spring,
    /// `Lock` of redis-py.
    RedisPy,
    /// `Mutex` of redsync.
    Redsync,
    /// node-redlock.
    NodeRedlock,
    /// ShedLock's `JdbcTemplateLockProvider`.
    ShedLock,
    /// The textbook's SQL, on PostgreSQL.
    Psycopg,
    /// The textbook's SQL, on MariaDB.
    PyMySql,
    /// Processes of `etcdctl lock`.
    Etcdctl,
    /// The package `concurrency` of etcd's client for Go.
    GoEtcd,
    /// Curator's recipes for ZooKeeper.
    Curator,
    /// Kazoo's recipes for ZooKeeper.
    Kazoo,
}

/// A tool that a driver needs. Columns: name in `PATH`, Debian package.
type Tool = [&'static str; 2];

const JAVA: &[Tool] = &[["mvn", "maven"], ["javac", "default-jdk-headless"]];
const PYTHON: &[Tool] = &[["python3", "python3"], ["pip3", "python3-pip"]];
const GO: &[Tool] = &[["go", "golang-go"]];
const ETCDCTL: &[Tool] = &[["go", "golang-go"], ["etcdctl", "etcd-client"]];
const NODE: &[Tool] = &[["node", "nodejs"], ["npm", "npm"]];

impl Driver {
    /// The tested releases of Redisson.
    pub const REDISSON: [Driver; 2] = [Driver::Redisson, Driver::RedissonOld];

    /// Every driver, in the order of the variants.
    pub const ALL: [Driver; 13] = [
        Driver::Redisson,
        Driver::RedissonOld,
        Driver::Spring,
        Driver::RedisPy,
        Driver::Redsync,
        Driver::NodeRedlock,
        Driver::ShedLock,
        Driver::Psycopg,
        Driver::PyMySql,
        Driver::Etcdctl,
        Driver::GoEtcd,
        Driver::Curator,
        Driver::Kazoo,
    ];

    /// The client's name and release.
    pub fn name(self) -> &'static str {
        match self {
            Driver::Redisson => "Redisson 4.7.0",
            Driver::RedissonOld => "Redisson 3.23.0",
            Driver::Spring => "Spring Integration 7.1.0",
            Driver::RedisPy => "redis-py 8.1.0",
            Driver::Redsync => "redsync 4.9.4",
            Driver::NodeRedlock => "node-redlock 5.0.0-beta2",
            Driver::ShedLock => "ShedLock 7.10.1",
            Driver::Psycopg => "psycopg 3.3.9",
            Driver::PyMySql => "PyMySQL 1.2.4",
            Driver::Etcdctl => "etcdctl 3.4.23",
            Driver::GoEtcd => "client/v3 3.5.9",
            Driver::Curator => "Curator 5.9.0",
            Driver::Kazoo => "kazoo 2.11.0",
        }
    }

    /// The command that starts the driver, which is built first if it is missing or its sources changed. `None` if
    /// `TENURE_SKIP` names a tool that the driver needs.
    ///
    /// # Panics
    /// If a tool is missing, or cannot build the driver.
    pub(crate) fn command(self) -> Option<Command> {
        let (tools, build, run) = self.recipe();
        if !tools.iter().all(|[program, package]| needs(program, package)) {
            return None;
        }
        let [tool, package] = tools[0];
        let into = build.built().unwrap_or_else(|output| {
            panic!(
                "the driver of {} cannot be built with `{tool}`: it needs the versions of Debian 12 or newer; \
                 `apt-get install {package}` brings one, TENURE_SKIP={tool} does without\n{output}",
                self.name()
            )
        });
        let (program, args) = run.split_once(' ').unwrap_or((run, ""));
        let mut command = match program.strip_prefix("./") {
            Some(file) => Command::new(into.join(file)),
            None => Command::new(program),
        };
        command.args(args.split_whitespace()).current_dir(into);
        Some(command)
    }

    /// The command of a tenure-bench worker process that uses Redisson's newest release, without the arguments behind the lock
    /// client. `None` if `TENURE_SKIP` names a tool that the driver needs.
    ///
    /// # Panics
    /// If a tool is missing, or cannot build the driver.
    pub fn redisson_bench() -> Option<Command> {
        Driver::Redisson.jvm_bench("redisson")
    }

    /// As [`redisson_bench`](Driver::redisson_bench), with Curator.
    ///
    /// # Panics
    /// If a tool is missing, or cannot build the driver.
    pub fn curator_bench() -> Option<Command> {
        Driver::Curator.jvm_bench("curator")
    }

    /// A JVM with default settings.
    fn jvm_bench(self, client: &str) -> Option<Command> {
        let folder = self.command()?;
        let mut command = Command::new("java");
        command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"]);
        command.args(["target/classes:target/lib/*", "tenure.interop.Bench", client]);
        command.current_dir(folder.get_current_dir()?);
        Some(command)
    }

    /// The command, without arguments, of a tenure-bench worker process that uses etcd's client for Go. `None` if
    /// `TENURE_SKIP` names Go.
    ///
    /// # Panics
    /// If a tool is missing, or cannot build the driver.
    pub fn etcd_bench() -> Option<Command> {
        let mut command = Driver::GoEtcd.command()?;
        command.arg("bench");
        Some(command)
    }

    /// The tools of this driver, its build, and the command line that starts it in the folder of the build.
    fn recipe(self) -> (&'static [Tool], Build, &'static str) {
        match self {
            Driver::Redisson => {
                let maven = "mvn --quiet --batch-mode process-classes -Predisson -Dredisson=4.7.0";
                (JAVA, Build::new("java", "redisson-4.7.0", maven), REDISSON)
            }
            Driver::RedissonOld => {
                let maven = "mvn --quiet --batch-mode process-classes -Predisson -Dredisson=3.23.0";
                (JAVA, Build::new("java", "redisson-3.23.0", maven), REDISSON)
            }
            Driver::Spring => {
                let maven = "mvn --quiet --batch-mode process-classes -Pspring";
                (JAVA, Build::new("java", "spring", maven), SPRING)
            }
            Driver::ShedLock => {
                let maven = "mvn --quiet --batch-mode process-classes -Pshedlock";
                (JAVA, Build::new("java", "shedlock", maven), SHEDLOCK)
            }
            Driver::Curator => {
                let maven = "mvn --quiet --batch-mode process-classes -Pcurator";
                (JAVA, Build::new("java", "curator", maven), CURATOR)
            }
            Driver::RedisPy => (PYTHON, python(), "python3 driver.py redis_lock"),
            Driver::Psycopg | Driver::PyMySql => (PYTHON, python(), "python3 driver.py textbook"),
            Driver::Kazoo => (PYTHON, python(), "python3 driver.py kazoo_lock"),
            Driver::Redsync | Driver::GoEtcd => (GO, go(), "./driver"),
            Driver::Etcdctl => (ETCDCTL, go(), "./driver"),
            Driver::NodeRedlock => {
                let npm = "npm ci --silent --prefer-offline --no-audit --no-fund";
                (NODE, Build::new("node", "driver", npm), "node driver.mjs")
            }
        }
    }
}

/// The driver needs no C, and no debugger reads it: without both, its build takes a quarter less time.
fn go() -> Build {
    let go = "env CGO_ENABLED=0 GOGC=400 go build -ldflags=-w -o driver .";
    Build::new("go", "driver", go)
}

fn python() -> Build {
    let pip = "python3 -m pip --quiet --disable-pip-version-check install --require-hashes \
               --target lib --requirement requirements.txt";
    Build::new("python", "driver", pip)
}

/// The command line of a JVM driver. Its last word chooses the client. The JVM's time zone is not that of any server. It
/// starts quickly, and so verifies no code.
macro_rules! jvm {
    ($client:literal) => {
        concat!(
            "java -Duser.timezone=GMT+05:30 -Xmx64m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC \
             -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
             -cp target/classes:target/lib/* tenure.interop.Worker ",
            $client
        )
    };
}

const REDISSON: &str = jvm!("redisson");
const SPRING: &str = jvm!("spring");
const SHEDLOCK: &str = jvm!("shedlock");
const CURATOR: &str = jvm!("curator");
