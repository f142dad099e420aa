//! Describes the machine of a run and the versions of its programs, as far as they can be found out.

use std::process::Command;

use tenure_servers::JAVA_LIBRARIES;

/// Names and values of the machine's and the programs' properties, for a table.
pub(crate) fn describe() -> Vec<(&'static str, String)> {
    // All cores, even one that is reserved for the server.
    let cores = fields("/proc/cpuinfo", "processor").len();
    let processor = fields("/proc/cpuinfo", "model name").pop();
    let processor = processor.unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let memory = fields("/proc/meminfo", "MemTotal").pop();
    let zookeeper =
        format!("-cp {JAVA_LIBRARIES}/zookeeper.jar org.apache.zookeeper.version.VersionInfoMain");
    vec![
        ("processor", format!("{processor}, {cores} cores")),
        ("memory", memory.unwrap_or_else(|| "unknown".to_owned())),
        ("system", format!("Linux {}", version("uname", "-r"))),
        ("compiler", version("rustc", "--version")),
        ("tenure", env!("CARGO_PKG_VERSION").to_owned()),
        ("SQLite", rusqlite::version().to_owned()),
        ("Redis", version("redis-server", "--version")),
        ("PostgreSQL", version("psql", "--version")),
        ("etcd", version("etcd", "--version")),
        ("ZooKeeper", version("java", &zookeeper)),
    ]
}

/// Every value of the field `name` in a file in `/proc`: `processor`, for example, has one for each core.
fn fields(file: &str, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let named = lines.filter(|(field, _)| field.trim() == name);
    named.map(|(_, value)| value.trim().to_owned()).collect()
}

/// The first version number that a program prints for these options, without a distribution's suffix.
fn version(program: &str, options: &str) -> String {
    let output = Command::new(program).args(options.split(' ')).output();
    let text = output.map_or_else(|_| Vec::new(), |output| output.stdout);
    let text = String::from_utf8_lossy(&text);
    let mut numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    numbers
        .find(|number| !number.is_empty())
        .unwrap_or("unknown")
        .to_owned()
}
