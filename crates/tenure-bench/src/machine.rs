//! On what a run was made: the machine and the versions, as far as they can be found out.
//! Not here: anything measured.

use std::process::Command;

/// Names and values, for a table.
pub(crate) fn describe() -> Vec<(&'static str, String)> {
    let cores = std::fs::read_to_string("/proc/cpuinfo").map_or_else(
        |_| std::thread::available_parallelism().map_or(0, usize::from),
        // Also those that this process keeps off.
        |text| text.lines().filter(|line| line.starts_with("processor")).count(),
    );
    let processor = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let system = std::fs::read_to_string("/proc/sys/kernel/osrelease").map_or_else(
        |_| std::env::consts::OS.to_owned(),
        |release| format!("Linux {}", version(&release)),
    );
    vec![
        ("processor", format!("{processor}, {cores} cores")),
        ("memory", memory().unwrap_or_else(unknown)),
        ("system", system),
        ("compiler", compiler().unwrap_or_else(unknown)),
        ("tenure", env!("CARGO_PKG_VERSION").to_owned()),
        ("SQLite", rusqlite::version().to_owned()),
        ("Redis", server().unwrap_or_else(unknown)),
    ]
}

/// The version that a kernel's release begins with; what follows is its distributor's.
fn version(release: &str) -> &str {
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.');
    release[..end.unwrap_or(release.len())].trim_end_matches('.')
}

/// The version of the installed Redis server.
fn server() -> Option<String> {
    let output = Command::new("redis-server").arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.split(' ').find_map(|word| word.strip_prefix("v="));
    version.map(str::to_owned)
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory() -> Option<String> {
    let total = field("/proc/meminfo", "MemTotal")?;
    let kib: f64 = total.strip_suffix(" kB")?.parse().ok()?;
    Some(format!("{:.0} GiB", kib / f64::from(1 << 20)))
}

fn compiler() -> Option<String> {
    let output = Command::new("rustc").arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (!text.is_empty()).then(|| text.trim().to_owned())
}
