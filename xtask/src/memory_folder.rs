//! A folder in memory for the temporary files of all tests. Dozens of servers that sync a disk at the same time delay each
//! other, by more than a second on a slow one.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Linux has a file system in memory.
const PLACE: &str = "/dev/shm";

/// The beginning of the folder's name. The number of our process follows.
const NAME: &str = "tenure-test-";

/// The memory that must be free, in KiB.
const ROOM: u64 = 8 << 20;

/// The folder. Dropping this removes it.
#[derive(Debug)]
pub(crate) struct MemoryFolder(PathBuf);

impl MemoryFolder {
    /// Makes the folder. `None` if the user has chosen another one by `TMPDIR`, or if this machine has none that is large
    /// enough and in which programs can be started.
    pub(crate) fn make() -> Option<Self> {
        if std::env::var_os("TMPDIR").is_some() || room().is_none_or(|room| room < ROOM) {
            return None;
        }
        remove_abandoned(Path::new(PLACE));
        let folder = MemoryFolder(Path::new(PLACE).join(format!("{NAME}{}", std::process::id())));
        let is_usable = folder.prepare().unwrap_or(false);
        is_usable.then_some(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves the folder, with what failed tests have written, until the next run.
    pub(crate) fn keep(self) {
        println!("test: {} has what the failed tests left", self.0.display());
        std::mem::forget(self);
    }

    /// Makes the folder, which users of database servers must reach, and returns whether programs can be started in it.
    fn prepare(&self) -> io::Result<bool> {
        fs::create_dir(&self.0)?;
        fs::set_permissions(&self.0, Permissions::from_mode(0o755))?;
        let program = self.0.join("program");
        fs::write(&program, "#!/bin/sh\n")?;
        fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        let started = Command::new(&program)
            .status()
            .is_ok_and(|status| status.success());
        fs::remove_file(program)?;
        Ok(started)
    }
}

impl Drop for MemoryFolder {
    fn drop(&mut self) {
        // If a file stays, the next run removes it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the folders of processes that were killed.
fn remove_abandoned(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(NAME));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The room in the file system, or the memory that is available if that is less, in KiB.
fn room() -> Option<u64> {
    let df = Command::new("df").args(["--output=avail", PLACE]).output().ok()?;
    let free = last_number(&String::from_utf8(df.stdout).ok()?)?;
    let memory = fs::read_to_string("/proc/meminfo").ok()?;
    let available = memory.lines().find(|line| line.starts_with("MemAvailable:"))?;
    Some(free.min(last_number(available.strip_suffix("kB")?)?))
}

fn last_number(text: &str) -> Option<u64> {
    text.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_ended_processes_are_removed() {
        let place = std::env::temp_dir().join(format!("tenure-memory-{}", std::process::id()));
        let ours = format!("{NAME}{}", std::process::id());
        // No process has this number.
        let abandoned = format!("{NAME}{}", u32::MAX);
        for name in [&ours, &abandoned, "another"] {
            fs::create_dir_all(place.join(name).join("data")).unwrap();
        }
        remove_abandoned(&place);
        let left = [&ours, &abandoned, "another"].map(|name| place.join(name).exists());
        fs::remove_dir_all(place).unwrap();
        assert_eq!(left, [true, false, true]);
    }

    #[test]
    fn a_folder_is_reached_by_other_users_and_removed_with_its_files() {
        let path = std::env::temp_dir().join(format!("tenure-prepared-{}", std::process::id()));
        let folder = MemoryFolder(path.clone());
        assert!(folder.prepare().unwrap());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        fs::write(path.join("file"), "").unwrap();
        drop(folder);
        assert!(!path.exists());
    }
}
