//! `cargo xtask setup`: looks for the programs that the tests need, and installs missing ones, except with `--check`.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::Failure;

/// The programs that tests need. Columns: name, Debian package, purpose.
const NEEDS: &str = "\
cc           | build-essential      | compiles the bundled SQLite
bash         | bash                 | tries its completions
zsh          | zsh                  | tries its completions
fish         | fish                 | tries its completions
flock        | util-linux           | is compared with `tenure run` in a guide
setsid       | util-linux           | starts processes that try to escape from `tenure run`
setpriv      | util-linux           | starts servers so that none outlives the tests
chrt         | util-linux           | runs the simulations on cores that no other test wants
prlimit      | util-linux           | limits the threads of a command
mandoc       | mandoc               | checks the manual pages
redis-server | redis-server         | is a server that the tests start
postgres     | postgresql           | is a server that the tests start
pgbouncer    | pgbouncer            | shares that server's connections among clients
mariadbd     | mariadb-server       | is a server that the tests start
mariadb      | mariadb-client       | reads what is in that server
etcd         | etcd-server          | is a server that the tests start
etcdctl      | etcd-client          | reads what is in that server, and locks there next to Tenure
zookeeper    | zookeeper            | is a server that the tests start
openssl      | openssl              | makes the certificates of a server with TLS
python3      | python3              | starts commands with unusual signal masks, and drives redis-py, psycopg, PyMySQL and kazoo
pip3         | python3-pip          | fetches redis-py, psycopg, PyMySQL and kazoo
javac        | default-jdk-headless | compiles the drivers of Redisson, Spring, ShedLock and Curator, and brings their Java
mvn          | maven                | fetches Redisson, Spring, ShedLock and Curator
go           | golang-go            | fetches redsync and etcd's client, and builds their driver
node         | nodejs               | drives node-redlock
npm          | npm                  | fetches node-redlock
prometheus   | prometheus           | reads the metrics that the example exports
promtool     | prometheus           | checks the alert rules";

type Need = [&'static str; 3];

/// The environment variable that names programs, separated by commas. Tests that need them are skipped.
const SKIP: &str = "TENURE_SKIP";

/// Installs packages as root, or as a user that needs no password for `sudo`. The package of a server also starts a
/// service: `SYSTEMD_OFFLINE` makes `systemctl` ignore that, and `RUNLEVEL` does the same on a system without systemd.
const INSTALL: &str = r#"
if [ "$(id -u)" = 0 ]; then sudo=; elif sudo -n true; then sudo='sudo -n'; else exit 1; fi
$sudo apt-get update &&
    $sudo env DEBIAN_FRONTEND=noninteractive SYSTEMD_OFFLINE=1 RUNLEVEL=1 \
        apt-get install --yes --no-install-recommends "$@"
"#;

/// Looks for the programs in `NEEDS`, and installs missing ones if `installs` is true. Fails if one is still missing.
/// Returns a line of text for each program that `TENURE_SKIP` names.
pub(crate) fn run(installs: bool) -> Result<Vec<String>, Failure> {
    let skip = std::env::var(SKIP).unwrap_or_default();
    let [skipped, mut missing] = look(&skip, is_installed)?;
    if installs && !missing.is_empty() && is_installed("apt-get") {
        let mut shell = Command::new("sh");
        shell.args(["-c", INSTALL, "setup"]).args(packages(&missing));
        // If the installation fails, the next `look` finds the programs that are still missing.
        let _ = shell.stdin(Stdio::null()).status();
        [_, missing] = look(&skip, is_installed)?;
    }
    if !missing.is_empty() {
        return Err(advice(&missing).into());
    }
    println!("setup: nothing is missing");
    let line = |[program, _, does]: Need| format!("without `{program}`, which {does}: {SKIP} names it");
    Ok(skipped.into_iter().map(line).collect())
}

/// Returns the programs to skip, and those of the others that are missing. `skip` is the value of `TENURE_SKIP`.
/// Fails if it names a program that is not in `NEEDS`.
fn look(skip: &str, is_installed: fn(&str) -> bool) -> Result<[Vec<Need>; 2], Failure> {
    let mut names: Vec<&str> = skip.split(',').map(str::trim).collect();
    names.retain(|name| !name.is_empty());
    let cells = |line: &'static str| line.split('|').map(str::trim).collect::<Vec<_>>();
    let all: Vec<Need> = NEEDS
        .lines()
        .filter_map(|line| cells(line).try_into().ok())
        .collect();
    let known: Vec<_> = all.iter().map(|[program, ..]| *program).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        let known = known.join(", ");
        return Err(format!("{SKIP} names `{unknown}`; it may name: {known}").into());
    }
    let (skipped, mut needs): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|[program, ..]| names.contains(program));
    needs.retain(|[program, ..]| !is_installed(program));
    Ok([skipped, needs])
}

fn advice(missing: &[Need]) -> String {
    let lines = missing
        .iter()
        .map(|[program, _, does]| format!("`{program}` is missing: it {does}\n"));
    let programs: Vec<_> = missing.iter().map(|[program, ..]| *program).collect();
    format!(
        "{}  on Debian or Ubuntu:  sudo apt-get install {}\n  or do without:        {SKIP}={}",
        lines.collect::<String>(),
        packages(missing).join(" "),
        programs.join(",")
    )
}

fn packages(missing: &[Need]) -> Vec<&'static str> {
    let mut packages: Vec<_> = missing.iter().map(|[_, package, _]| *package).collect();
    packages.dedup();
    packages
}

/// Returns whether the program is in `PATH`, in another folder where the tests look for servers, or a jar among Java's
/// libraries.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let postgres = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let postgres = postgres.flatten().map(|version| version.path().join("bin"));
    let mut folders = std::env::split_paths(&path)
        .chain(postgres)
        .chain(["/usr/sbin".into()]);
    let jar = format!("/usr/share/java/{program}.jar");
    folders.any(|folder| folder.join(program).is_file()) || Path::new(&jar).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_packages_of_missing_programs() {
        let [skipped, missing] = look("mvn , cc,", |program| !program.starts_with("prom")).unwrap();
        assert_eq!(skipped.len(), 2);
        assert_eq!(
            advice(&missing),
            "`prometheus` is missing: it reads the metrics that the example exports\n\
             `promtool` is missing: it checks the alert rules\n  \
             on Debian or Ubuntu:  sudo apt-get install prometheus\n  \
             or do without:        TENURE_SKIP=prometheus,promtool",
        );
    }

    #[test]
    fn only_known_programs_are_skipped() {
        let failure = look("cc,reddis", |_| true).unwrap_err().to_string();
        assert!(
            failure.starts_with("TENURE_SKIP names `reddis`; it may name: cc, bash,"),
            "{failure}"
        );
    }
}
