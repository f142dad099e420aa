//! The tested releases of Redisson, and the build of their worker with Maven into `java/target`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tested release of Redisson. All changes to its locks that matter to other clients came between `Old` and `Newest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The newest release.
    Newest,
    /// Five years old: no unlock latch, a watchdog for each lock, and a fair lock that fails on a queue head without a score.
    Old,
}

impl Version {
    /// Both releases.
    pub const ALL: [Version; 2] = [Version::Newest, Version::Old];

    /// The release's version number in Maven.
    pub fn number(self) -> &'static str {
        match self {
            Version::Newest => "4.7.0",
            Version::Old => "3.16.8",
        }
    }

    /// The class path of the Java worker with this release. Builds the worker if it is missing or its sources changed.
    pub(crate) fn class_path(self) -> String {
        let java = Path::new(env!("CARGO_MANIFEST_DIR")).join("java");
        let target = java.join("target");
        let into = target.join(format!("redisson-{}", self.number()));
        fs::create_dir_all(&into).expect("the folder for the build can be created");
        // Test processes run in parallel, and Maven's local repository does not support two builds at once.
        let building = File::create(target.join("building")).expect("the build's lock file can be created");
        building.lock().expect("the build's lock file can be locked");
        let stamp = into.join("built-from");
        let sources = sources(&java);
        if fs::read_to_string(&stamp).ok().as_ref() != Some(&sources) {
            self.build(&java);
            fs::write(&stamp, sources).expect("the build can be marked as done");
        }
        format!("{0}/classes:{0}/lib/*", into.display())
    }

    /// Builds the worker with Maven, without the network if Maven has all dependencies already.
    fn build(self, java: &Path) {
        let maven = |options: &[&str]| {
            let mut maven = Command::new("mvn");
            maven
                .args(["--quiet", "--batch-mode", "process-classes"])
                .arg(format!("-Dredisson={}", self.number()))
                .args(options)
                .current_dir(java);
            maven.output().expect("mvn can be run")
        };
        if maven(&["--offline"]).status.success() {
            return;
        }
        let online = maven(&[]);
        assert!(
            online.status.success(),
            "the worker with Redisson {} cannot be built:\n{}{}",
            self.number(),
            String::from_utf8_lossy(&online.stdout),
            String::from_utf8_lossy(&online.stderr)
        );
    }
}

/// The texts of the worker's source files and its `pom.xml`, concatenated.
fn sources(java: &Path) -> String {
    let folder = java.join("src/main/java/tenure/interop");
    let entries = fs::read_dir(folder).expect("the worker's sources are there");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the worker's sources can be listed").path())
        .collect();
    files.sort();
    files.push(java.join("pom.xml"));
    let read = |file: &PathBuf| fs::read_to_string(file).expect("the worker's sources can be read");
    files.iter().map(read).collect()
}
