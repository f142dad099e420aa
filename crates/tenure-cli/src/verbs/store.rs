//! From the command line to a connected store.
//! Which store is meant is `store_choice`'s.

use std::time::Duration;

use tenure::{Client, Settings, StoreUrl};

use crate::args::Global;
use crate::store_choice::{Choice, Surroundings, choose, create_folder};
use crate::words::{Failure, note, warn};

/// How long a verb that only looks, or holds nothing any more, waits for the store to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// A store that was chosen and not yet touched.
pub(super) struct Chosen {
    choice: Choice,
    /// The URL without its password.
    pub(super) shown: String,
}

impl Chosen {
    /// Reads the options, the environment and the files that name a store, and says what they leave to be said.
    pub(super) fn of(global: &Global) -> Result<Chosen, Failure> {
        let choice =
            choose(&Surroundings::of(global)).map_err(|why| Failure::usage("no store can be chosen", why))?;
        let shown = StoreUrl::parse(&choice.url)
            .map_err(|why| Failure::usage("the store's URL cannot be used", why))?
            .to_string();
        for words in &choice.notes {
            note(global.quiet, words);
        }
        Ok(Chosen { choice, shown })
    }

    /// Connects, and makes the embedded store's folder if it is needed.
    pub(super) async fn connect(&self, settings: Settings) -> Result<Client, Failure> {
        if let Some(folder) = &self.choice.folder {
            create_folder(folder).map_err(|error| {
                let what = format!("cannot create the folder {} for the locks", folder.display());
                Failure::system(what, error)
            })?;
        }
        tenure::connect_with(&self.choice.url, settings)
            .await
            .map_err(|error| Failure::of(format!("cannot use the store {}", self.shown), &error))
    }
}

/// Connects for a verb that takes no lock.
pub(super) async fn visit(global: &Global) -> Result<Client, Failure> {
    Chosen::of(global)?.connect(Settings::default()).await
}

/// Disconnects. What was withdrawn or dropped before is gone from the store afterwards, or is warned about.
pub(super) async fn leave(client: &Client) {
    if let Err(error) = client.close(GOODBYE).await {
        warn(
            &Failure::of(
                "the store was not left in order; what is left there ends with its lease",
                &error,
            )
            .to_string(),
        );
    }
}
