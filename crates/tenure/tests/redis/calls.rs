//! Counts the commands that a Redis server has run.

use tenure_servers::Redis;

/// Number of times that the server has run this command, since its start or since its statistics were reset.
pub(crate) fn calls(server: &Redis, command: &str) -> usize {
    let stats = server.ask(&["INFO", "commandstats"]).expect("the server answers");
    let name = format!("cmdstat_{command}:calls=");
    let of_command = stats.lines().find_map(|line| line.strip_prefix(&*name));
    let calls = of_command.and_then(|counts| counts.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}
