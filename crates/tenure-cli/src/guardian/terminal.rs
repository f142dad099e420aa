//! Gives the terminal to the command's process group, and takes it back.

use std::os::fd::AsFd;

use rustix::process::{Pid, getpgrp, getppid, getsid, setpgid};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

use super::process_tree::{self, Stat};

/// Returns whether the command may get the terminal: standard input and output are the controlling terminal of this
/// process.
pub(super) fn is_shared_with_the_command() -> bool {
    let device = |fd: rustix::fd::BorrowedFd<'_>| rustix::fs::fstat(fd).ok().map(|stat| stat.st_rdev);
    isatty(stdin()) && isatty(stdout()) && device(stdin()) == device(stdout()) && tcgetpgrp(stdin()).is_ok()
}

/// Returns whether this process has a controlling terminal, from which it could be stopped.
pub(super) fn exists() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Returns whether the process group of this process is in the foreground.
pub(super) fn is_ours_to_give() -> bool {
    tcgetpgrp(stdin()) == Ok(getpgrp())
}

/// Gives the terminal to `group` if the process group of this process has it.
pub(super) fn hand_to(group: Pid) {
    if is_ours_to_give() {
        // An error means that the group has ended. This process then keeps the terminal.
        let _ = tcsetpgrp(stdin(), group);
    }
}

/// Gives the terminal back to the process group `owner`, if it is with the group of `leader` or of another descendant
/// of this process.
///
/// The kernel stops (TTOU) a background process that sets the foreground group, and only `unsafe` code could ignore
/// that signal. So this process joins the foreground group for the length of one call. A session leader cannot join
/// another group, and then the terminal is not given back.
pub(super) fn take_back(leader: Pid, owner: Pid) {
    let terminal = stdin();
    let Ok(foreground) = tcgetpgrp(terminal.as_fd()) else {
        return;
    };
    let home = getpgrp();
    if foreground == owner || !is_below(foreground, leader) || setpgid(None, Some(foreground)).is_err() {
        return;
    }
    // Fails only if the owner's group has ended, and then no process needs the terminal.
    let _ = tcsetpgrp(terminal, owner);
    // This process leads its old group, or a shell keeps that group alive, so this process can join it again.
    let _ = setpgid(None, Some(home));
}

fn is_below(group: Pid, leader: Pid) -> bool {
    group == leader || process_tree::all_below().any(|descendant| descendant.group() == Some(group))
}

/// Returns whether a shell would notice that this process group has stopped, and could continue it.
///
/// The kernel's rule: a group can be stopped from a terminal only if some member has a parent in another group of the
/// same session. This function checks only this process and its ancestors, because a shell with job control is an
/// ancestor.
pub(super) fn shell_can_continue_us() -> bool {
    let (Ok(session), group) = (getsid(None), getpgrp()) else {
        return false;
    };
    let mut ancestor = getppid();
    while let Some(pid) = ancestor {
        let Ok(Some(stat)) = Stat::of(pid) else {
            return false;
        };
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
