//! Whose turn it is at the terminal: hands it to the command's process group, and takes it back.

use std::os::fd::AsFd;

use rustix::process::{Pid, getpgrp, getppid, getsid, setpgid};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

use super::kin::{self, Stat};

/// Whether the command may ever have the terminal: its input and its output are one, and it is ours.
pub(super) fn is_shared_with_the_command() -> bool {
    let device = |fd: rustix::fd::BorrowedFd<'_>| rustix::fs::fstat(fd).ok().map(|stat| stat.st_rdev);
    isatty(stdin()) && isatty(stdout()) && device(stdin()) == device(stdout()) && tcgetpgrp(stdin()).is_ok()
}

/// Whether this process could be stopped from a terminal at all.
pub(super) fn exists() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Whether our own process group is in the foreground.
pub(super) fn is_ours_to_give() -> bool {
    tcgetpgrp(stdin()) == Ok(getpgrp())
}

/// Hands the terminal to `group` if it is ours to give.
pub(super) fn hand_to(group: Pid) {
    if is_ours_to_give() {
        // The group ended meanwhile: then its end takes the terminal back as well.
        let _ = tcsetpgrp(stdin(), group);
    }
}

/// Returns the terminal to `owner` if `leader`'s group, or another below this process, has it.
///
/// A process outside the foreground group that sets it is stopped by TTOU, and only `unsafe` code can
/// ignore that. So this process joins the foreground group for the length of one call. Not for session
/// leaders: they cannot.
pub(super) fn take_back(leader: Pid, owner: Pid) {
    let terminal = stdin();
    let Ok(foreground) = tcgetpgrp(terminal.as_fd()) else {
        return;
    };
    let home = getpgrp();
    if foreground == owner || !is_below(foreground, leader) || setpgid(None, Some(foreground)).is_err() {
        return;
    }
    // Refused only if the owner's group is gone, and then nobody misses it.
    let _ = tcsetpgrp(terminal, owner);
    // Home is a group that this process led, or one that its shell keeps.
    let _ = setpgid(None, Some(home));
}

fn is_below(group: Pid, leader: Pid) -> bool {
    group == leader || kin::all_below().any(|kin| kin.group() == Some(group))
}

/// Whether someone would see that our process group was stopped, and could continue it.
///
/// The kernel's rule: some process of the group has its parent in another group of the same session. Judged
/// along our own line of ancestors, which is where a shell with job control would be.
pub(super) fn someone_can_continue_us() -> bool {
    let (Ok(session), group) = (getsid(None), getpgrp()) else {
        return false;
    };
    let mut ancestor = getppid();
    while let Some(pid) = ancestor {
        let Some(stat) = Stat::of(pid) else { return false };
        if stat.session != Some(session) {
            return false;
        }
        if stat.group != Some(group) {
            return true;
        }
        ancestor = stat.parent;
    }
    false
}
