//! Builds a driver, the program that lets a test control another project's lock client, with the package manager of
//! its language. The build is in a folder that git ignores.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A build of a driver: its sources, and the command that fetches its packages and compiles it.
pub(crate) struct Build {
    sources: PathBuf,
    into: PathBuf,
    command: &'static str,
}

impl Build {
    /// A build of `interop/LANGUAGE` in its folder `target/NAME`.
    pub(crate) fn new(language: &str, name: &str, command: &'static str) -> Build {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join(language);
        let into = sources.join("target").join(name);
        Build {
            sources,
            into,
            command,
        }
    }

    /// The folder of the finished build. Builds if the folder is missing, or the command or a source changed.
    ///
    /// # Errors
    /// What the failed command printed.
    pub(crate) fn built(&self) -> Result<PathBuf, String> {
        let target = self.sources.join("target");
        fs::create_dir_all(&target).expect("the folder for builds can be created");
        // Test processes run in parallel, and package managers do not support two builds at once.
        let building = File::create(target.join("building")).expect("the build's lock file can be created");
        building.lock().expect("the build's lock file can be locked");
        let sources = texts(&self.sources).expect("the driver's sources can be read");
        let mut made_of = self.command.to_owned();
        made_of.extend(sources.iter().map(|(_, text)| text.as_str()));
        let stamp = self.into.join("made-of");
        if fs::read_to_string(&stamp).ok().as_ref() != Some(&made_of) {
            self.make(&sources)?;
            fs::write(&stamp, made_of).expect("the build can be marked as done");
        }
        Ok(self.into.clone())
    }

    fn make(&self, sources: &[(PathBuf, String)]) -> Result<(), String> {
        let _ = fs::remove_dir_all(&self.into);
        for (file, text) in sources {
            let copy = self.into.join(file);
            let folder = copy.parent().expect("a file is in a folder");
            fs::create_dir_all(folder)
                .and_then(|()| fs::write(&copy, text))
                .expect("sources can be copied");
        }
        // A compiler takes only the time that the tests of other programs leave.
        let mut command = Command::new("nice");
        command.args(["-n", "10"]).args(self.command.split_whitespace());
        let output = command.current_dir(&self.into).output();
        let output = output.map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err([output.stdout, output.stderr]
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .concat())
    }
}

/// The files below a folder with their texts, in the order of their paths, without the folder `target`.
fn texts(folder: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let (mut texts, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(folder.join(&inner))? {
            let entry = entry?;
            let path = inner.join(entry.file_name());
            if !entry.file_type()?.is_dir() {
                texts.push((path, fs::read_to_string(entry.path())?));
            } else if !path.ends_with("target") {
                folders.push(path);
            }
        }
    }
    texts.sort();
    Ok(texts)
}
