//! What the tests need besides a Rust toolchain: one table.
//! Not here: installing it (`setup`).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use crate::process::Failure;

/// A program that some tests cannot do without.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// What must be found in `PATH`.
    pub(crate) program: &'static str,
    /// The Debian package that brings it.
    pub(crate) package: &'static str,
    /// What cannot be tested without it.
    pub(crate) why: &'static str,
}

/// Everything the tests need.
pub(crate) const NEEDS: &[Need] = &[
    Need {
        program: "cc",
        package: "build-essential",
        why: "compiles the bundled SQLite",
    },
    Need {
        program: "bash",
        package: "bash",
        why: "tries its completions",
    },
    Need {
        program: "zsh",
        package: "zsh",
        why: "tries its completions",
    },
    Need {
        program: "fish",
        package: "fish",
        why: "tries its completions",
    },
    Need {
        program: "flock",
        package: "util-linux",
        why: "is what the guide for its users compares with",
    },
    Need {
        program: "setsid",
        package: "util-linux",
        why: "starts what tries to get away from `tenure run`",
    },
    Need {
        program: "setpriv",
        package: "util-linux",
        why: "starts every server, so that none outlives the tests",
    },
    Need {
        program: "mandoc",
        package: "mandoc",
        why: "checks the manual page",
    },
    Need {
        program: "redis-server",
        package: "redis-server",
        why: "is a server that the tests start",
    },
    Need {
        program: "redis-cli",
        package: "redis-tools",
        why: "asks that server what is in it",
    },
    Need {
        program: "openssl",
        package: "openssl",
        why: "makes the certificates of a server with TLS",
    },
    Need {
        program: "python3",
        package: "python3",
        why: "is the caller whose signal masks a command inherits",
    },
    Need {
        program: "javac",
        package: "default-jdk-headless",
        why: "compiles the worker that drives Redisson, and brings the Java that runs it",
    },
    Need {
        program: "mvn",
        package: "maven",
        why: "fetches Redisson and builds the worker that drives it",
    },
    Need {
        program: "prometheus",
        package: "prometheus",
        why: "reads the metrics that the example exports",
    },
    Need {
        program: "promtool",
        package: "prometheus",
        why: "checks the alert rules",
    },
];

/// The environment variable that names needs, by program and separated by commas, to do without.
pub(crate) const SKIP: &str = "TENURE_SKIP";

/// The needs, split by whether `TENURE_SKIP` names them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) needs: Vec<&'static Need>,
    pub(crate) skipped: Vec<&'static Need>,
}

impl Wanted {
    /// Reads `TENURE_SKIP`.
    pub(crate) fn read() -> Result<Self, Failure> {
        Self::parse(&std::env::var(SKIP).unwrap_or_default(), NEEDS)
    }

    fn parse(skip: &str, table: &'static [Need]) -> Result<Self, Failure> {
        let mut skip: BTreeSet<&str> = skip
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .collect();
        let (skipped, needs) = table.iter().partition(|need| skip.remove(need.program));
        match skip.first() {
            None => Ok(Self { needs, skipped }),
            Some(unknown) => {
                let known: Vec<_> = table.iter().map(|need| need.program).collect();
                Err(Failure::new(format!(
                    "{SKIP} names `{unknown}`; it may name: {}",
                    known.join(", ")
                )))
            }
        }
    }

    /// The needs that are not in this machine's `PATH`.
    pub(crate) fn missing(&self) -> Vec<&'static Need> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        self.needs
            .iter()
            .filter(|need| !is_in(&path, need.program))
            .copied()
            .collect()
    }
}

/// Whether a folder of `path` has an executable file of this name.
pub(crate) fn is_in(path: &OsStr, program: &str) -> bool {
    std::env::split_paths(path).any(|folder| is_executable(&folder.join(program)))
}

#[cfg(unix)]
fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(file: &Path) -> bool {
    file.is_file() || file.with_extension("exe").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Need] = &[
        Need {
            program: "cc",
            package: "gcc",
            why: "compiles",
        },
        Need {
            program: "redis-server",
            package: "redis-server",
            why: "is the store",
        },
    ];

    #[test]
    fn a_need_is_skipped_only_by_its_name() {
        assert_eq!(Wanted::parse("", TABLE).unwrap().needs.len(), 2);
        let wanted = Wanted::parse(" redis-server ,", TABLE).unwrap();
        assert_eq!((wanted.needs, wanted.skipped), (vec![&TABLE[0]], vec![&TABLE[1]]));
    }

    #[test]
    fn skipping_what_nobody_needs_is_an_error() {
        let failure = Wanted::parse("redis-server,reddis", TABLE).unwrap_err();
        assert_eq!(
            failure.to_string(),
            "TENURE_SKIP names `reddis`; it may name: cc, redis-server"
        );
    }

    #[test]
    fn the_program_that_built_this_test_is_found_and_an_unheard_one_is_not() {
        let path = std::env::var_os("PATH").unwrap();
        assert!(is_in(&path, "cargo"));
        assert!(!is_in(&path, "no-such-program"));
        assert!(!is_in(OsStr::new(""), "cargo"));
    }
}
