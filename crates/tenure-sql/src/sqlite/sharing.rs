//! Messages about a file or directory that this user cannot use: its owner, its mode, and the commands that share it.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;
use tenure_backend::escape_control;

use super::names::{display_path, group_name, is_member, user_name};
use super::siblings::with_siblings;

/// Stands in a command for a group that the reader must choose.
const SOME_GROUP: &str = "GROUP";

/// What this user cannot do in a directory.
#[derive(Clone, Copy)]
pub(super) enum Need<'a> {
    /// Reach a file below it.
    Enter,
    /// Create this file.
    Create(&'a Path),
}

/// Message about `file`, which is the lock file at `path` or one of SQLite's files beside it. `None` if the system does
/// not show its owner.
pub(super) fn file(path: &Path, file: &Path, writes: bool) -> Option<String> {
    let (main, denied) = (fs::metadata(path).ok()?, fs::metadata(file).ok()?);
    let (verb, bits) = if writes {
        ("write to it", 6)
    } else {
        ("read it", 4)
    };
    Some(format!(
        "{}, so this user cannot {verb}: {}",
        state(&display_path(file), &denied),
        share_files(path, &main, &denied, bits)
    ))
}

/// Message about a directory. `None` if the system does not show its owner.
pub(super) fn directory(directory: &Path, need: Need<'_>) -> Option<String> {
    let denied = fs::metadata(directory).ok()?;
    let (verb, bits, letters) = match need {
        Need::Enter => ("enter it".to_owned(), 1, "x"),
        // With the set-group-ID bit, new files get the group of the directory.
        Need::Create(file) => (format!("create {} in it", name(file)), 3, "rwxs"),
    };
    let quoted = quoted(&directory.to_string_lossy());
    let remedy = match remedy(&denied, bits) {
        Remedy::ByOwner => format!("run `chmod u+rwx {quoted}`"),
        Remedy::Join(group) => join(&group),
        Remedy::Grant => format!("{}, run `chmod g+{letters} {quoted}`", by(&denied)),
        Remedy::ChangeGroup => format!(
            "{}, run `chgrp {SOME_GROUP} {quoted} && chmod g+{letters} {quoted}`, where {SOME_GROUP} is a group of \
             all users of the lock file",
            by(&denied)
        ),
    };
    Some(format!(
        "the directory {}, so this user cannot {verb}: choose a lock file in another directory, or {remedy}",
        state(&display_path(directory), &denied)
    ))
}

/// The commands that give the lock file and the files beside it this mode.
pub(super) fn chmod(path: &Path, mode: u32) -> String {
    let (directory, files) = place(path);
    format!("cd {directory} && chmod {mode:04o} {files}")
}

/// The ID of the group `nogroup` or `nobody`, which no file should be shared with.
const NO_GROUP: u32 = 65_534;

/// What gives this user access.
enum Remedy {
    /// This user owns the file and can change its mode.
    ByOwner,
    /// The group named here has access, and this user is not in it.
    Join(String),
    /// This user is in the group, which needs access.
    Grant,
    /// The group must be one of all users.
    ChangeGroup,
}

/// `bits` are the permissions that are needed, as for others: 4 reads, 2 writes, 1 enters.
fn remedy(denied: &Metadata, bits: u32) -> Remedy {
    if denied.uid() == geteuid().as_raw() {
        return Remedy::ByOwner;
    }
    if is_member(denied.gid()) {
        return Remedy::Grant;
    }
    let is_open_to_group = denied.mode() >> 3 & bits == bits;
    match shared_group(denied).filter(|_| is_open_to_group) {
        Some(group) => Remedy::Join(group),
        None => Remedy::ChangeGroup,
    }
}

/// The name of the group, unless it is root's, the owner's own, or that of no user.
fn shared_group(of: &Metadata) -> Option<String> {
    let name = group_name(of.gid()).filter(|_| ![0, NO_GROUP].contains(&of.gid()))?;
    (Some(&name) != user_name(of.uid()).as_ref()).then_some(name)
}

fn share_files(path: &Path, main: &Metadata, denied: &Metadata, bits: u32) -> String {
    let mode = main.mode() & 0o777 | 0o600 | bits << 3;
    let chmod = chmod(path, mode);
    // Permissions of others apply to users of every group.
    let needs_no_group = mode & bits == bits;
    // SQLite creates its files with the group of the process, unless the directory has the set-group-ID bit.
    let right_group = group_name(main.gid()).filter(|_| denied.gid() != main.gid() && is_member(main.gid()));
    let remedy = match (remedy(denied, bits), &right_group) {
        (Remedy::Join(_), Some(_)) => Remedy::ChangeGroup,
        (remedy, _) => remedy,
    };
    match remedy {
        Remedy::ByOwner => {
            let (directory, files) = place(path);
            format!("run `cd {directory} && chmod u+rw {files}`")
        }
        Remedy::Join(group) => join(&group),
        Remedy::Grant => format!("{}, run `{chmod}`", by(denied)),
        Remedy::ChangeGroup if needs_no_group => format!("{}, run `{chmod}`", by(denied)),
        Remedy::ChangeGroup => {
            let (directory, files) = place(path);
            let (group, more) = match right_group {
                Some(group) => (
                    group,
                    "; `chmod g+s` on its directory gives new files the right group".to_owned(),
                ),
                None => (
                    SOME_GROUP.to_owned(),
                    format!(
                        ", where {SOME_GROUP} is a group of all its users; a new lock file gets this mode by \
                         `?mode={mode:04o}` in its URL"
                    ),
                ),
            };
            let chgrp = format!("cd {directory} && chgrp {group} {files}");
            let chmod = format!("chmod {mode:04o} {files}");
            format!("{}, run `{chgrp} && {chmod}`{more}", by(denied))
        }
    }
}

fn join(group: &str) -> String {
    let user = user_name(geteuid().as_raw()).unwrap_or_else(|| "USER".to_owned());
    format!("as root, run `usermod -aG {group} {user}` to add this user to the group, and log in again")
}

/// The user who can run the commands: `as root`, or `as ann or root`.
fn by(denied: &Metadata) -> String {
    match denied.uid() {
        0 => "as root".to_owned(),
        owner => format!("as {} or root", user(owner)),
    }
}

/// The owner, the group if it says more than the owner, and the mode: `l.db belongs to root and has mode 0600`.
fn state(name: &str, of: &Metadata) -> String {
    let group = shared_group(of).map_or_else(String::new, |group| format!(" and group {group},"));
    let (owner, mode) = (user(of.uid()), of.mode() & 0o7777);
    format!("{name} belongs to {owner}{group} and has mode {mode:04o}")
}

fn user(id: u32) -> String {
    user_name(id).unwrap_or_else(|| format!("user {id}"))
}

/// The directory of a lock file, and the names of the lock file and those beside it that exist, for a shell.
fn place(path: &Path) -> (String, String) {
    let existing = with_siblings(path).into_iter().filter(|file| file.exists());
    let names: Vec<String> = existing.map(|file| quoted(&name(&file))).collect();
    let directory = path.parent().unwrap_or(Path::new("/"));
    (quoted(&directory.to_string_lossy()), names.join(" "))
}

fn name(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    escape_control(&name).into_owned()
}

/// Quotes a word for a shell if it has special characters.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/-_.+,@%:".contains(c);
    match word.chars().all(is_plain) && !word.starts_with('-') {
        true => word.to_owned(),
        false => format!("'{}'", escape_control(&word.replace('\'', r"'\''"))),
    }
}

/// Finds the lock file and SQLite's files beside it that lack permissions of the mode `wanted`, and says how to add them.
/// Skips empty files, whose mode another process may be about to set.
pub(super) fn lacking_mode(path: &Path, wanted: u32) -> Option<String> {
    let lacks = |file: &std::path::PathBuf| {
        let found = fs::metadata(file).ok().filter(|found| found.len() > 0)?;
        let mode = found.mode() & 0o777;
        (wanted & !mode != 0).then(|| (display_path(file), mode, mode | wanted))
    };
    let (name, mode, complete) = with_siblings(path).iter().find_map(lacks)?;
    Some(format!(
        "{name} has mode {mode:04o}, although {wanted:04o} is asked for: run `{}`",
        chmod(path, complete)
    ))
}
