//! The part of `cargo metadata` that the chores read.

use std::path::PathBuf;

use serde::Deserialize;

use crate::process::{Failure, cargo, output};

/// The packages of the workspace and of its lock file.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    workspace_members: Vec<String>,
}

/// One package: of this workspace, or one that it uses.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// The oldest compiler it builds with, where it says so.
    pub(crate) rust_version: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    #[serde(default)]
    pub(crate) features: std::collections::BTreeMap<String, Vec<String>>,
}

/// One line of a package's dependency tables.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Option<Kind>,
    /// The version asked for; `*` where none is written.
    pub(crate) req: String,
    /// The folder, for a dependency by path.
    pub(crate) path: Option<PathBuf>,
}

/// Which table a dependency stands in; `[dependencies]` itself has no kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Build,
    Dev,
}

impl Metadata {
    /// Asks cargo, with every feature on, so that optional dependencies are seen too.
    pub(crate) fn read() -> Result<Self, Failure> {
        let mut command = cargo();
        command.args(["metadata", "--format-version", "1", "--all-features"]);
        Self::parse(&output(command)?)
    }

    pub(crate) fn parse(json: &str) -> Result<Self, Failure> {
        serde_json::from_str(json)
            .map_err(|error| Failure::new(format!("cargo metadata cannot be read: {error}")))
    }

    /// The crates of this workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| self.workspace_members.contains(&package.id))
    }

    /// The crates that others publish.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| !self.workspace_members.contains(&package.id))
    }
}
