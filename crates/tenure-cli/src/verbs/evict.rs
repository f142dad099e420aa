//! `tenure evict`: takes a key from its holders, or removes a waiter from the queue, by force.

use serde::Serialize;
use tenure::backend::{HANDOVER_WINDOW, escape_control};
use tenure::{HolderId, ReleaseTarget};

use super::store::{Intent, connect_if_present, disconnect, key};
use crate::args::{Evict, Global};
use crate::messages::Failure;
use crate::output;

/// The result of an eviction as a JSON object.
#[derive(Serialize)]
struct Evicted<'a> {
    key: &'a str,
    freed: Vec<String>,
}

/// Evicts all holders, or one claim, and prints the claims that were evicted.
pub(super) async fn evict(global: &Global, evict: &Evict) -> Result<u8, Failure> {
    let key = key(&evict.key)?;
    let target = match &evict.claim {
        Some(id) => HolderId::parse(id).on(key.clone()),
        None => ReleaseTarget::All(key.clone()),
    };
    let client = connect_if_present(global, Intent::Evict).await?;
    let freed = client.evict(target).await;
    if freed.as_ref().is_ok_and(|freed| !freed.is_empty()) {
        // After an eviction, no client can acquire the key during the cooldown. Wait for its end, so that the key is
        // free when this verb ends.
        tokio::time::sleep(HANDOVER_WINDOW).await;
    }
    // `tenure` disconnects after an error, too: a quorum then repeats the eviction at servers that did not confirm it.
    disconnect(&client).await;
    let freed = freed.map_err(|error| Failure::of(format!("cannot evict from {key:?}"), &error))?;
    let evicted = Evicted {
        key: key.as_str(),
        freed: freed.iter().map(ToString::to_string).collect(),
    };
    output::print_json_or_text(global.json, &evicted, || sentence(&evicted))?;
    Ok(u8::from(evicted.freed.is_empty()))
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
