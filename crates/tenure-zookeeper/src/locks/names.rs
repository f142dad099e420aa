//! The paths of nodes: of locks, of their contenders as Curator and kazoo name them, and of the nodes of sessions.

use tenure_backend::{ClaimId, ClientId, Kind, LockKey, Mode};
use tenure_contenders::unescape;

use super::contenders::Name;
use crate::config::Layout;

/// The folder of the session nodes, below the node of all locks. No lock has this path, because a `%` in a name is escaped.
const SESSIONS: &str = "%tenure";

/// The folders of a semaphore in Curator's layout: contenders queue in the first, and permits that are taken lie in the other.
pub(super) const LOCKS: &str = "locks";
pub(super) const LEASES: &str = "leases";

/// The paths of the locks below one node.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The path of that node; empty for the root.
    pub(super) root: String,
    layout: Layout,
}

impl Names {
    pub(super) fn new(path: &str, layout: Layout) -> Self {
        let root = match path {
            "" => String::new(),
            path => format!("/{path}"),
        };
        Names { root, layout }
    }

    /// The path of a lock.
    pub(super) fn lock(&self, key: &LockKey) -> String {
        format!("{}/{}", self.root, escape(key.as_str()))
    }

    /// The node whose children queue for a lock of this kind.
    pub(super) fn folder(&self, key: &LockKey, kind: Kind) -> String {
        match (self.layout, kind) {
            (Layout::Curator, Kind::Semaphore { .. }) => format!("{}/{LOCKS}", self.lock(key)),
            _ => self.lock(key),
        }
    }

    /// The node below which the permits of a semaphore lie that are taken.
    pub(super) fn permits(&self, key: &LockKey) -> String {
        format!("{}/{LEASES}", self.lock(key))
    }

    /// The lock with this path; `None` if it is none that Tenure can name.
    pub(super) fn key_of(&self, path: &str) -> Option<LockKey> {
        let name = path.strip_prefix(&*self.root)?.strip_prefix('/')?;
        LockKey::new(unescape(name, escape)?).ok()
    }

    /// The node above all locks whose names begin with `prefix`.
    pub(super) fn listing(&self, prefix: &str) -> String {
        let is_plain = |c: char| c == '/' || escape(c.encode_utf8(&mut [0; 4])).len() == c.len_utf8();
        let plain = prefix.find(|c| !is_plain(c)).unwrap_or(prefix.len());
        match prefix[..plain].rsplit_once('/') {
            Some((folders, _)) if escape(folders) == folders => format!("{}/{folders}", self.root),
            _ => self.root.clone(),
        }
    }

    /// Whether a node above others stays without children. kazoo creates the node of a lock once, and counts on it from then
    /// on, as a program with one ephemeral node does on the node above it. Curator creates what is missing each time.
    pub(super) fn stays(&self, path: &str) -> bool {
        match self.layout {
            Layout::Curator => false,
            Layout::Kazoo => true,
            Layout::Ephemeral => self.root.starts_with(path),
        }
    }

    /// The node of a session: it is ephemeral, and names the claims of the session which were evicted.
    pub(super) fn session_node(&self, session: i64) -> String {
        format!("{}/{SESSIONS}/{session:x}", self.root)
    }

    /// The own node of a claim of the layout `ephemeral`. It is created and deleted with the lock's node, which another claim may
    /// have later.
    pub(super) fn own(&self, id: ClaimId) -> String {
        format!("{}/{SESSIONS}/{}", self.root, uuid(id))
    }

    /// The beginning of the name of a claim's node. With the number that ZooKeeper appends, it is the whole name.
    pub(super) fn contender(&self, id: ClaimId, mode: Mode) -> String {
        let uuid = uuid(id);
        match (self.layout, mode) {
            (Layout::Kazoo, Mode::Read) => format!("{}__rlock__", plain(uuid)),
            (Layout::Kazoo, _) => format!("{}__lock__", plain(uuid)),
            (_, Mode::Read) => format!("_c_{uuid}-__READ__"),
            (_, Mode::Write) => format!("_c_{uuid}-__WRIT__"),
            _ => format!("_c_{uuid}-lock-"),
        }
    }

    /// The beginning of the names of the nodes of a claim's permits.
    pub(super) fn lease(id: ClaimId) -> String {
        format!("_c_{}-lease-", uuid(id))
    }
}

/// The UUID in the names of a claim's nodes: that of its client, with the claim's number in its last bits.
fn uuid(id: ClaimId) -> ClientId {
    let number = u128::from(id.number()) & (u128::MAX >> 66);
    let bytes = u128::from_be_bytes(*id.client().as_bytes()) ^ number;
    ClientId::from_bytes(bytes.to_be_bytes())
}

fn plain(uuid: ClientId) -> String {
    uuid.to_string().replace('-', "")
}

/// The UUID in the names of a claim's nodes, as a number.
pub(super) fn uuid_of(id: ClaimId) -> u128 {
    u128::from_be_bytes(*uuid(id).as_bytes())
}

/// The path of a node's parent; empty for a node below the root.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// The name of a node.
pub(super) fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Escapes what a path cannot carry, what would be invisible in it, and slashes that would make an empty part of it.
fn escape(name: &str) -> String {
    tenure_contenders::escape(name, |character| {
        let part = name[character.at..].split('/').next().unwrap_or_default();
        let is_refused = matches!(character.is, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..);
        is_refused || character.begins_part && is_special(part, character.at == 0)
    })
}

/// Whether a part of a path would not be the node of a lock.
fn is_special(part: &str, is_first: bool) -> bool {
    let is_server = is_first && part == "zookeeper";
    is_server || matches!(part, "." | "..") || Name::read(part).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> LockKey {
        LockKey::new(name).expect("a name")
    }

    fn names(path: &str) -> Names {
        Names::new(path, Layout::Curator)
    }

    #[test]
    fn nodes_stay_where_foreign_clients_count_on_them() {
        let folders = ["/locks", "/locks/a", "/locks/a/b"];
        for (layout, expected) in [
            (Layout::Curator, [false, false, false]),
            (Layout::Kazoo, [true, true, true]),
            (Layout::Ephemeral, [true, false, false]),
        ] {
            let names = Names::new("locks", layout);
            assert_eq!(folders.map(|path| names.stays(path)), expected, "{layout:?}");
        }
    }

    #[test]
    fn a_name_is_read_from_its_path() {
        for (name, path) in [
            ("order:42", "/locks/order:42"),
            ("a/b", "/locks/a/b"),
            ("50%", "/locks/50%25"),
            ("/", "/locks/%2F"),
            ("//x//y/", "/locks/%2F/x/%2Fy%2F"),
            ("..", "/locks/%2E."),
            ("a/./b", "/locks/a/%2E/b"),
            ("..x/..", "/locks/..x/%2E."),
            ("ключ 🔒", "/locks/ключ %F0%9F%94%92"),
            ("\u{202e}x", "/locks/%E2%80%AEx"),
            ("zookeeper/zookeeper", "/locks/%7Aookeeper/zookeeper"),
            ("a/lock-0000000001", "/locks/a/%6Cock-0000000001"),
        ] {
            let (names, name) = (names("locks"), key(name));
            assert_eq!(names.lock(&name), path);
            assert_eq!(names.key_of(path), Some(name));
        }
        assert_eq!(names("").lock(&key("a")), "/a");
    }

    #[test]
    fn foreign_nodes_are_no_locks() {
        for foreign in [
            "/other/a",
            "/locks/a%2fb",
            "/locks/%",
            "/locks/%tenure",
            "/locks/%tenure/1f",
            "/locks",
        ] {
            assert_eq!(names("locks").key_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_listing_covers_all_names_with_its_prefix() {
        for (prefix, name, listing) in [
            ("a/", "a/b", "/p/a"),
            ("a/b", "a/bc/d", "/p/a"),
            ("a", "a%", "/p"),
            ("50%/x", "50%/xy", "/p"),
            ("", "/", "/p"),
            ("x//", "x//y", "/p"),
            ("../x", "../xy", "/p"),
        ] {
            let names = names("p");
            assert!(name.starts_with(prefix));
            assert_eq!(names.listing(prefix), listing);
            assert!(names.lock(&key(name)).starts_with(listing), "{prefix}");
        }
    }

    #[test]
    fn the_name_of_a_node_says_whose_it_is() {
        let claim = |number| ClaimId::new(ClientId::from_random([7; 16]), number);
        for (layout, mode, text) in [
            (
                Layout::Curator,
                Mode::Exclusive,
                "_c_07070707-0707-4707-8707-070707070704-lock-",
            ),
            (
                Layout::Curator,
                Mode::Write,
                "_c_07070707-0707-4707-8707-070707070704-__WRIT__",
            ),
            (
                Layout::Kazoo,
                Mode::Read,
                "07070707070747078707070707070704__rlock__",
            ),
        ] {
            assert_eq!(Names::new("", layout).contender(claim(3), mode), text);
            let read = Name::read(&format!("{text}0000000007")).expect("a contender");
            assert_eq!((read.uuid, read.number), (Some(uuid_of(claim(3))), 7));
        }
        assert_ne!(uuid_of(claim(3)), uuid_of(claim(4)));
    }
}
