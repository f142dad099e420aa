//! Which of a lock's contenders holds it: decided from the names of their nodes alone, in the order of their numbers.

use tenure_backend::{Kind, Mode};

/// The words before the number in a contender's name, of all layouts, with the mode of the contender and the kind of its lock. A
/// `lease-` is a permit. kazoo's mutexes and its write locks have the same word.
const WORDS: [(&str, Option<Mode>, Option<Kind>); 7] = [
    ("lock-", Some(Mode::Exclusive), Some(Kind::Mutex)),
    ("latch-", Some(Mode::Exclusive), Some(Kind::Mutex)),
    ("__READ__", Some(Mode::Read), Some(Kind::ReadWrite)),
    ("__WRIT__", Some(Mode::Write), Some(Kind::ReadWrite)),
    ("__rlock__", Some(Mode::Read), Some(Kind::ReadWrite)),
    ("__lock__", Some(Mode::Exclusive), None),
    ("lease-", None, None),
];

/// What the name of a contender's node says. Names of all layouts are read, so that no foreign contender is overlooked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// The UUID at its beginning.
    pub(super) uuid: Option<u128>,
    /// `None` for a permit.
    pub(super) mode: Option<Mode>,
    /// The kind of the lock, if the name says it.
    kind: Option<Kind>,
    /// The number that ZooKeeper has appended. It wraps around.
    pub(super) number: i32,
}

impl Name {
    /// Reads a name; `None` for a node that is no contender.
    pub(super) fn read(name: &str) -> Option<Self> {
        let split = |(word, mode, kind)| Some((name.rsplit_once(word)?, mode, kind));
        let ((before, number), mode, kind) = WORDS.into_iter().find_map(split)?;
        let digits = number.strip_prefix('-').unwrap_or(number);
        let is_number = digits.len() >= 10 && digits.bytes().all(|digit| digit.is_ascii_digit());
        let uuid = match before {
            "" => None,
            before => Some(uuid(before)?),
        };
        Some(Name {
            uuid,
            mode,
            kind,
            number: number.parse().ok().filter(|_| is_number)?,
        })
    }
}

/// Reads the UUID before the word, as Curator (`_c_UUID-`) or kazoo (32 digits) write it.
fn uuid(text: &str) -> Option<u128> {
    let digits = match text.strip_prefix("_c_") {
        Some(text) => text.strip_suffix('-')?.replace('-', ""),
        None => text.strip_suffix('-').unwrap_or(text).to_owned(),
    };
    let is_hex = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u128::from_str_radix(&digits, 16).ok().filter(|_| is_hex)
}

/// A contender of a lock: a holder or a waiter, or a permit.
#[derive(Clone, Debug)]
pub(super) struct Contender {
    pub(super) path: String,
    pub(super) name: Name,
}

/// The state of a contender, with the path of the one before it. Without one, it waits until more permits are given back.
pub(super) type Standing = tenure_contenders::Standing<String>;

/// What a waiting claim waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A change among the children of this node, which may be missing.
    Folder(String),
    /// The deletion of a contender's node.
    Node(String),
}

/// Reads the contenders below a node, the oldest first.
pub(super) fn contenders(folder: &str, children: Vec<String>) -> Vec<Contender> {
    let read = |child: String| {
        let name = Name::read(&child)?;
        let path = format!("{folder}/{child}");
        Some(Contender { path, name })
    };
    let mut contenders: Vec<Contender> = children.into_iter().filter_map(read).collect();
    // All are numbered by one counter, and far less than 2^31 of them exist at a time.
    let base = contenders.first().map_or(0, |first| first.name.number);
    contenders.sort_by_key(|contender| contender.name.number.wrapping_sub(base));
    contenders
}

/// Returns the state of a contender of this mode behind those in `earlier`, the oldest first. Not for permits.
pub(super) fn standing(mode: Mode, earlier: &[Contender]) -> Standing {
    let modes = || earlier.iter().filter_map(|one| one.name.mode);
    match earlier.iter().find_map(|one| one.name.kind) {
        Some(first) if first != mode.kind() => return Standing::OtherKind(first),
        _ if mode.admits(modes()) => return Standing::Granted,
        _ => {}
    }
    let excludes = |one: &&Contender| {
        one.name
            .mode
            .is_some_and(|other| !mode.admits([other]) || !other.admits([mode]))
    };
    match earlier.iter().rfind(excludes) {
        Some(one) => Standing::Waits {
            behind: Some(one.path.clone()),
        },
        None => Standing::Granted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contenders with these names, in this order.
    fn queue(names: &[&str]) -> Vec<Contender> {
        let names = names.iter().zip(1..);
        contenders("/k", names.map(|(name, at)| format!("{name}{at:010}")).collect())
    }

    fn behind(path: &str) -> Standing {
        let behind = Some(path.to_owned());
        Standing::Waits { behind }
    }

    #[test]
    fn names_of_every_layout_are_read() {
        let (dashed, plain) = (
            "07070707-0707-4707-8707-070707070707",
            "07070707070747078707070707070707",
        );
        for (name, mode, number, has_uuid) in [
            (
                format!("_c_{dashed}-lock-0000000012"),
                Some(Mode::Exclusive),
                12,
                true,
            ),
            (
                format!("_c_{plain}-lock-2147483647"),
                Some(Mode::Exclusive),
                i32::MAX,
                true,
            ),
            (
                format!("_c_{dashed}-lock--2147483648"),
                Some(Mode::Exclusive),
                i32::MIN,
                true,
            ),
            (
                format!("_c_{dashed}-__READ__0000000000"),
                Some(Mode::Read),
                0,
                true,
            ),
            (
                format!("_c_{dashed}-__WRIT__0000000001"),
                Some(Mode::Write),
                1,
                true,
            ),
            (
                format!("_c_{dashed}-latch-0000000001"),
                Some(Mode::Exclusive),
                1,
                true,
            ),
            (format!("_c_{dashed}-lease-0000000001"), None, 1, true),
            (
                format!("{plain}__lock__0000000001"),
                Some(Mode::Exclusive),
                1,
                true,
            ),
            (format!("{plain}__rlock__0000000001"), Some(Mode::Read), 1, true),
            ("lock-0000000001".to_owned(), Some(Mode::Exclusive), 1, false),
        ] {
            let read = Name::read(&name).expect(&name);
            assert_eq!(
                (read.mode, read.number, read.uuid.is_some()),
                (mode, number, has_uuid),
                "{name}"
            );
        }
    }

    #[test]
    fn other_nodes_are_no_contenders() {
        for name in [
            "locks",
            "leases",
            "lock-",
            "lock-1",
            "lock-99999999999",
            "lock-+000000001",
            "block-0000000001",
            "_c_07070707-lock-0000000001",
            "__lock__000000000x",
            "",
        ] {
            assert_eq!(Name::read(name), None, "{name}");
        }
    }

    /// R18: after the largest number ZooKeeper goes on with the smallest.
    #[test]
    fn numbers_that_wrap_around_keep_their_order() {
        let numbers = [i32::MIN, i32::MAX, i32::MIN + 1, i32::MAX - 1];
        let children = numbers.map(|number| format!("lock-{number:010}")).to_vec();
        let sorted: Vec<i32> = contenders("/k", children)
            .iter()
            .map(|one| one.name.number)
            .collect();
        assert_eq!(sorted, [i32::MAX - 1, i32::MAX, i32::MIN, i32::MIN + 1]);
    }

    #[test]
    fn a_mutex_is_granted_to_the_first_contender() {
        let mutex = Mode::Exclusive;
        assert_eq!(standing(mutex, &[]), Standing::Granted);
        assert_eq!(standing(mutex, &queue(&["lock-"])), behind("/k/lock-0000000001"));
        let mixed = queue(&["lock-", "latch-", "__lock__"]);
        assert_eq!(standing(mutex, &mixed), behind("/k/__lock__0000000003"));
    }

    #[test]
    fn readers_wait_for_the_last_writer_before_them() {
        let (read, write) = ("__READ__", "__WRIT__");
        assert_eq!(standing(Mode::Read, &queue(&[read, read])), Standing::Granted);
        let [second, third] = [2, 3].map(|at| queue(&[read, write, read][..at]));
        assert_eq!(standing(Mode::Read, &second), behind("/k/__WRIT__0000000002"));
        assert_eq!(standing(Mode::Read, &third), behind("/k/__WRIT__0000000002"));
        assert_eq!(standing(Mode::Write, &third), behind("/k/__READ__0000000003"));
        assert_eq!(
            standing(Mode::Read, &queue(&["__lock__", read])),
            behind("/k/__lock__0000000001")
        );
    }

    #[test]
    fn the_first_contender_decides_the_kind() {
        let mutex = Standing::OtherKind(Kind::Mutex);
        assert_eq!(standing(Mode::Read, &queue(&["lock-"])), mutex);
        assert_eq!(
            standing(Mode::Exclusive, &queue(&["__READ__"])),
            Standing::OtherKind(Kind::ReadWrite)
        );
        // The second contender is about to find out that it has the wrong kind.
        assert_eq!(
            standing(Mode::Exclusive, &queue(&["lock-", "__READ__"])),
            behind("/k/__READ__0000000002")
        );
    }
}
