//! The part of the output of `cargo metadata` that the tasks use.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::process::{Failure, cargo, output};

/// The packages of the workspace, and all packages that they depend on.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    workspace_members: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// The oldest Rust version that builds the package, if it declares one.
    pub(crate) rust_version: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    /// The registries to which the package may be published; `None` for all, and empty for none.
    #[serde(default)]
    publish: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

impl Package {
    pub(crate) fn is_published(&self) -> bool {
        self.publish.is_none()
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// The table of `Cargo.toml`: `build` or `dev`; `None` for `[dependencies]` itself.
    pub(crate) kind: Option<String>,
    /// The required version; `*` if `Cargo.toml` gives none.
    pub(crate) req: String,
    /// The folder of a dependency by path.
    pub(crate) path: Option<String>,
}

impl Metadata {
    /// Runs `cargo metadata` with every feature, so that it includes optional dependencies.
    pub(crate) fn read() -> Result<Self, Failure> {
        let json = output(cargo("metadata --format-version 1 --all-features"))?;
        Ok(serde_json::from_str(&json)?)
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.is_member(package))
    }

    pub(crate) fn is_member(&self, package: &Package) -> bool {
        self.workspace_members.contains(&package.id)
    }
}
