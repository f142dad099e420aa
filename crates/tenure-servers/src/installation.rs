//! The folder of a database server, and what a restart of the server needs to know.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;

use crate::account::Account;
use crate::clock::SteppedClock;
use crate::kept_data;
use crate::needs::{self, cannot_start};
use crate::process::Process;

/// A temporary folder with the server's data, and the server's settings.
#[derive(Debug)]
pub(crate) struct Installation {
    folder: TempDir,
    pub(crate) account: Account,
    pub(crate) options: Vec<String>,
    /// Names and contents of further files of the data folder.
    files: Vec<(String, String)>,
    clock: Option<Arc<SteppedClock>>,
}

impl Installation {
    /// Makes the folder for a server that runs as the user of the package `user` if the tests run as root.
    pub(crate) fn new(
        user: &'static str,
        options: &[&str],
        files: &[(&str, &str)],
        clock: Option<SteppedClock>,
    ) -> io::Result<Installation> {
        let owned = |(name, content): &(&str, &str)| ((*name).to_owned(), (*content).to_owned());
        Ok(Installation {
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            files: files.iter().map(owned).collect(),
            clock: clock.map(Arc::new),
            ..Self::empty(Account::of_package(user)?)?
        })
    }

    /// Makes the folder for a server with the same user, files and clock, and with more options.
    pub(crate) fn copy(&self, options: &[&str]) -> io::Result<Installation> {
        let more = options.iter().map(|option| (*option).to_owned());
        Ok(Installation {
            options: self.options.iter().cloned().chain(more).collect(),
            files: self.files.clone(),
            clock: self.clock.clone(),
            ..Self::empty(self.account.clone())?
        })
    }

    fn empty(account: Account) -> io::Result<Installation> {
        let folder = tempfile::tempdir()?;
        account.own(folder.path())?;
        Ok(Installation {
            folder,
            account,
            options: Vec::new(),
            files: Vec::new(),
            clock: None,
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The folder with the server's data.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn clock(&self) -> Option<&SteppedClock> {
        self.clock.as_deref()
    }

    /// Makes the data folder of a new server with this program of the database, or copies what an earlier run of it made.
    /// `options` decide about its content, `places` only name folders.
    pub(crate) fn make_data(&self, program: &str, options: &[&str], places: &[&str]) -> io::Result<()> {
        let kept = kept_data::place(&needs::program(program), options)?;
        if kept.is_dir() {
            return kept_data::copy(&kept, &self.data(), &|path| self.account.own(path));
        }
        self.account.run(program, &[options, places].concat())?;
        kept_data::keep(&self.data(), &kept)
    }

    /// Writes the further files of the data folder.
    pub(crate) fn write_files(&self) -> io::Result<()> {
        for (name, content) in &self.files {
            self.write(&self.data().join(name), content)?;
        }
        Ok(())
    }

    /// Writes a file that only the server's user can read.
    pub(crate) fn write(&self, path: &Path, content: &str) -> io::Result<()> {
        std::fs::write(path, content)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        self.account.own(path)
    }

    /// Starts the server. Its output goes to a file in its folder.
    pub(crate) fn start(&self, program: &str, args: &[String]) -> io::Result<Process> {
        let environment = self.clock().map(SteppedClock::environment).unwrap_or_default();
        let log = self.folder().join("server.log");
        Process::start_as(Some(&self.account), program, args, &environment, &log)
    }
}

/// Runs a client of a database server with `sql` as its input, and returns its output.
pub(crate) fn ask(name: &str, client: &mut Command, sql: &str) -> io::Result<String> {
    let mut client = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| cannot_start(name, error))?;
    if let Some(mut input) = client.stdin.take() {
        // Fails if the client has ended. Its output says why.
        let _ = input.write_all(sql.as_bytes());
    }
    let output = client.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(io::Error::other(text(&output.stderr))),
    }
}
