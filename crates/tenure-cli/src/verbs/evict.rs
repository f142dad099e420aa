//! `tenure evict`: takes a key away from its holders, or a place from a waiter, by force.

use serde::Serialize;
use tenure::backend::{HANDOVER_WINDOW, escape_control};
use tenure::{HolderId, ReleaseTarget};

use super::store::{key, leave, visit};
use crate::args::{Evict, Global};
use crate::output;
use crate::words::Failure;

/// What was done, for programs.
#[derive(Serialize)]
struct Evicted<'a> {
    key: &'a str,
    freed: Vec<String>,
}

/// Frees the key and says whom it was taken from.
pub(super) async fn evict(global: &Global, evict: &Evict) -> Result<u8, Failure> {
    let key = key(&evict.key)?;
    let whom = match &evict.claim {
        Some(id) => HolderId::parse(id).on(key.clone()),
        None => ReleaseTarget::All(key.clone()),
    };
    let client = visit(global).await?;
    let freed = client
        .evict(whom)
        .await
        .map_err(|error| Failure::of(format!("cannot evict from {key:?}"), &error))?;
    if !freed.is_empty() {
        // An eviction bars the key for that long: once this verb is done, the key is to be had.
        tokio::time::sleep(HANDOVER_WINDOW).await;
    }
    leave(&client).await;
    let evicted = Evicted {
        key: key.as_str(),
        freed: freed.iter().map(ToString::to_string).collect(),
    };
    output::tell(global.json, &evicted, || sentence(&evicted))?;
    Ok(0)
}

fn sentence(Evicted { key, freed }: &Evicted<'_>) -> String {
    if freed.is_empty() {
        return format!("nothing to free: no such holder or waiter of {key:?}\n");
    }
    let lines = freed
        .iter()
        .map(|claim| format!("freed {key:?} from {}\n", escape_control(claim)));
    lines.collect()
}
