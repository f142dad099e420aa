//! Names of users, groups and files, for errors, the findings of `doctor`, and log events.

use std::fs;
use std::path::Path;

use tenure_backend::escape_control;

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// The path as text, with control characters escaped.
pub(super) fn display_path(path: &Path) -> String {
    escape_control(&path.to_string_lossy()).into_owned()
}

/// The name of a user, or `None` if `/etc/passwd` does not list the ID.
pub(super) fn user_name(id: u32) -> Option<String> {
    name_in_file(USERS, id)
}

/// The name of a group, or `None` if `/etc/group` does not list the ID.
pub(super) fn group_name(id: u32) -> Option<String> {
    name_in_file(GROUPS, id)
}

/// Returns whether this process is in the group.
pub(super) fn is_member(group: u32) -> bool {
    use rustix::process::{getegid, getgroups};
    let others = getgroups().unwrap_or_default();
    getegid().as_raw() == group || others.iter().any(|other| other.as_raw() == group)
}

fn name_in_file(file: &str, id: u32) -> Option<String> {
    name_in(&fs::read_to_string(file).ok()?, id)
}

/// Finds a name in a table in the format of `/etc/passwd` or `/etc/group`: the name is the first field of a line, the ID
/// the third.
fn name_in(table: &str, id: u32) -> Option<String> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let listed: u32 = fields.nth(1)?.parse().ok()?;
        (listed == id).then(|| escape_control(name).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_id() {
        let groups = "root:x:0:\nlocks:x:990:ann,bob\n:x:7:\nbad:x:no:\n";
        assert_eq!(name_in(groups, 990).as_deref(), Some("locks"));
        assert_eq!(name_in(groups, 0).as_deref(), Some("root"));
        assert_eq!(name_in(groups, 7), None);
        assert_eq!(name_in("garbage", 0), None);
    }
}
