#![doc = include_str!("../docs/tutorial.md")]

mod backend;
mod bell;
mod call;
mod checks;
mod claim;
mod ended;
mod error;
mod finding;
mod harmless;
mod id;
mod key;
mod mode;
mod profile;
mod query;
mod release;
mod renew;
mod standing;
mod time;
mod token;
mod weakness;

pub use backend::Backend;
pub use bell::Bell;
pub use call::{Batch, Call, Each, Wakes};
pub use claim::{Claim, MAX_PLACE_AHEAD, PASS_WINDOW, TURN};
pub use ended::EndedClaims;
pub use error::{BackendError, Effect, Fault};
pub use finding::{Finding, Severity};
pub use harmless::harmless;
pub use id::{ClaimId, ClaimRef, ClientId, OwnerId, ParseClaimIdError};
pub use key::{InvalidKey, LockKey};
pub use mode::{Fairness, Kind, Mode};
pub use profile::{
    Fencing, Guarantee, Hazard, Inspection, LeaseClock, Limits, Liveness, Order, Profile, Reach, WakeUp,
};
pub use query::{Cursor, HolderStatus, LockStatus, Page, Query, WaiterStatus};
pub use release::{Cause, Departure, Heir, Holder, HolderId, Released};
pub use renew::{Loss, Phase, Renewal, Renewed};
pub use standing::{Evidence, Grant, Standing};
pub use time::{Clock, Instant, SystemClock};
pub use token::{FencingToken, TokenRun};
