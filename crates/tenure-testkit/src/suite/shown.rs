//! The status of a lock as one line of text.

use std::sync::Arc;

use tenure_backend::{HolderId, LockStatus, Mode};

/// One line for a lock: its key, its holders, sorted, and its waiters.
///
/// # Examples
/// ```
/// use tenure_backend::{HolderId, HolderStatus, Kind, LockKey, LockStatus, Mode};
/// use tenure_testkit::suite::shown;
///
/// let holder = HolderStatus::new(HolderId::Foreign("java-1".into()), Some("ann".into()), Mode::Exclusive, None, None);
/// let status = LockStatus::new(LockKey::new("k")?, Kind::Mutex, vec![holder], Some(Vec::new()));
/// assert_eq!(shown(&status), "k: java-1 exclusive ann | ");
/// # Ok::<(), tenure_backend::InvalidKey>(())
/// ```
#[must_use]
pub fn shown(lock: &LockStatus) -> String {
    let text = |id: &HolderId, mode: Mode, label: &Option<Arc<str>>| {
        format!("{id} {mode} {}", label.as_deref().unwrap_or_default())
    };
    let holders = lock.holders.iter();
    let mut holders: Vec<String> = holders
        .map(|holder| text(&holder.id, holder.mode, &holder.label))
        .collect();
    holders.sort();
    let waiters = lock.waiters.iter().flatten();
    let waiters: Vec<String> = waiters
        .map(|waiter| text(&waiter.id, waiter.mode, &waiter.label))
        .collect();
    format!("{}: {} | {}", lock.key, holders.join(", "), waiters.join(", "))
}
