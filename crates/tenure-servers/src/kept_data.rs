//! The data folders of new database servers. The database's own program needs more than a second to make one. So the first
//! one is kept in the folder of the test program, where `cargo clean` removes it, and copied for every later server.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The place of the data that this version of the program makes with these options.
pub(crate) fn place(program: &Path, options: &[&str]) -> io::Result<PathBuf> {
    let mut version = DefaultHasher::new();
    if let Ok(file) = fs::metadata(program) {
        (file.len(), file.modified()?).hash(&mut version);
    }
    options.hash(&mut version);
    let name = program.file_name().unwrap_or_default().display();
    let kept = format!("{name}-{:016x}", version.finish());
    Ok(std::env::current_exe()?.with_file_name(kept))
}

/// Keeps a copy of the data. If another process has kept one meanwhile, that one stays.
pub(crate) fn keep(data: &Path, place: &Path) -> io::Result<()> {
    let unfinished = TempDir::with_prefix_in("data-", place.parent().unwrap_or(place))?;
    copy(data, unfinished.path(), &|_| Ok(()))?;
    match fs::rename(unfinished.path(), place) {
        Ok(()) => _ = unfinished.keep(),
        Err(_) if place.is_dir() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Copies a folder with its files and permissions, and gives each copy to `own`.
pub(crate) fn copy(from: &Path, to: &Path, own: &impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    fs::create_dir_all(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    own(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let copied = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &copied, own)?;
        } else {
            fs::copy(entry.path(), &copied)?;
            own(&copied)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_copy_has_all_files_with_their_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        fs::create_dir_all(from.join("base/1")).unwrap();
        fs::write(from.join("base/1/file"), "text").unwrap();
        fs::set_permissions(from.join("base/1/file"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&from, fs::Permissions::from_mode(0o700)).unwrap();
        let owned = RefCell::new(Vec::new());
        let own = |path: &Path| {
            owned
                .borrow_mut()
                .push(path.strip_prefix(&to).unwrap().to_owned());
            Ok(())
        };
        copy(&from, &to, &own).unwrap();
        let expected = ["", "base", "base/1", "base/1/file"].map(PathBuf::from);
        assert_eq!(owned.into_inner(), expected);
        assert_eq!(fs::read_to_string(to.join("base/1/file")).unwrap(), "text");
        for (path, mode) in [("", 0o700), ("base/1/file", 0o600)] {
            let found = fs::metadata(to.join(path)).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode, "{path}");
        }
    }

    #[test]
    fn data_are_kept_once_for_each_program_and_its_options() {
        let folder = tempfile::tempdir().unwrap();
        let [program, data, kept] = ["program", "data", "kept"].map(|name| folder.path().join(name));
        fs::write(&program, "version 1").unwrap();
        let first = place(&program, &["--a"]).unwrap();
        assert_eq!(place(&program, &["--a"]).unwrap(), first);
        assert_ne!(place(&program, &["--b"]).unwrap(), first);
        fs::write(&program, "version 10").unwrap();
        assert_ne!(place(&program, &["--a"]).unwrap(), first);
        fs::create_dir(&data).unwrap();
        for text in ["first", "second"] {
            fs::write(data.join("file"), text).unwrap();
            keep(&data, &kept).unwrap();
            assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "first");
        }
    }
}
