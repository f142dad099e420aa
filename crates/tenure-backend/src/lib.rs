#![doc = include_str!("../docs/tutorial.md")]

mod acquire;
mod backend;
mod call;
mod checks;
mod claim;
mod error;
mod escape;
mod finding;
mod guarantee;
mod id;
mod invalidation;
#[cfg(feature = "serde")]
mod json;
mod key;
mod mode;
mod profile;
mod query;
mod release;
mod renew;
mod server_clock;
#[cfg(feature = "tokio")]
mod tasks;
mod time;
mod token;
mod tombstones;
mod wake_signal;
mod weakness;

pub use acquire::{AcquireReply, Evidence, Grant};
pub use backend::Backend;
pub use call::{Batch, BatchCall, Call, Wakes};
pub use claim::{Claim, HANDOVER_WINDOW, MAX_NOT_AFTER, TURN};
pub use error::{BackendError, Effect, Fault};
pub use escape::escape_control;
pub use finding::{Finding, Severity};
pub use guarantee::Guarantee;
pub use id::{ClaimId, ClaimRef, ClientId, InvalidClaimId, OwnerId};
pub use invalidation::{Invalidation, InvalidationQueue, Invalidations};
pub use key::{InvalidKey, LockKey};
pub use mode::{Fairness, Kind, Mode};
pub use profile::{
    Fencing, Hazard, Inspection, LeaseClock, Limits, Liveness, Order, Profile, Reach, ServerDeath, WakeUp,
};
pub use query::{Cursor, HolderStatus, LockStatus, Page, Query, WaiterStatus};
pub use release::{Cause, HolderId, ReleaseReply, ReleaseRequest, ReleaseTarget, Successor};
pub use renew::{Loss, Phase, RenewReply, RenewRequest};
pub use server_clock::ServerClock;
#[cfg(feature = "tokio")]
pub use tasks::Tasks;
pub use time::{Clock, Instant, SystemClock};
pub use token::{FencingToken, InvalidToken, TokenRange};
pub use tombstones::Tombstones;
pub use wake_signal::WakeSignal;
