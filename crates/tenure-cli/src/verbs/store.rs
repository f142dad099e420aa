//! From the command line to a connected store.

use std::env;
use std::path::Path;
use std::time::Duration;

use tenure::backend::escape_control;
use tenure::{Client, Error, Finding, LockKey, Settings, StoreUrl};

use crate::account::Account;
use crate::args::Global;
use crate::store_choice::{Choice, Source, Surroundings, choose, create_folder};
use crate::store_findings::store_findings;
use crate::words::{Failure, note, shortened, without_passwords};

/// How long a verb that only looks, or holds nothing any more, waits for the store to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// A store that was chosen and not yet touched.
pub(super) struct Chosen {
    surroundings: Surroundings,
    choice: Choice,
    /// The URL without its password.
    pub(super) shown: String,
}

impl Chosen {
    /// Reads the options, the environment and the files that name a store, and says what they leave to be said.
    pub(super) fn of(global: &Global) -> Result<Chosen, Failure> {
        let surroundings = Surroundings::of(global);
        let choice = choose(&surroundings).map_err(|why| Failure::usage("no store can be chosen", why))?;
        let shown = StoreUrl::parse(&choice.url)
            .map_err(|why| Failure::usage(format!("the URL in {} cannot be used", choice.source), why))?
            .to_string();
        for words in &choice.notes {
            note(global.quiet, words);
        }
        Ok(Chosen {
            surroundings,
            choice,
            shown,
        })
    }

    /// The store's URL, with its password.
    pub(super) fn url(&self) -> &str {
        &self.choice.url
    }

    /// What weakens locks in the way this store was chosen.
    pub(super) fn findings(&self) -> Vec<Finding> {
        store_findings(&self.surroundings, &self.choice)
    }

    /// Connects as a client with that label, and makes the embedded store's folder if it is needed.
    pub(super) async fn connect(&self, label: Option<&str>) -> Result<Client, Failure> {
        if let Some(folder) = &self.choice.folder {
            create_folder(folder).map_err(|error| {
                let what = format!("cannot create the folder {} for the locks", folder.display());
                Failure::system(what, error)
            })?;
        }
        tenure::connect_with(&self.choice.url, settings(label))
            .await
            .map_err(|error| {
                Failure::of(
                    format!("cannot use the store {}{}", self.shown, self.named_by()),
                    &error,
                )
            })
    }

    /// Whether it is a lock file that nobody has made so far, which it says.
    ///
    /// # Errors
    /// When the URL is not one that could be connected to.
    pub(super) fn is_absent(&self, global: &Global) -> Result<bool, Failure> {
        let unusable = |error: &Error| Failure::of(format!("cannot use the store {}", self.shown), error);
        let url = StoreUrl::parse(&self.choice.url).map_err(|error| unusable(&error.into()))?;
        // The embedded store's is this user's own in any case.
        let may_be_anothers = url.scheme() == "sqlite" && self.choice.folder.is_none();
        if !may_be_anothers || !matches!(Path::new(url.path()).try_exists(), Ok(false)) {
            return Ok(false);
        }
        // Whether its options are known ones.
        tenure::schema(&self.choice.url).map_err(|error| unusable(&error))?;
        let said = format!(
            "there is no lock file {} yet: nobody has locked anything by it",
            escape_control(url.path())
        );
        note(global.quiet, &said);
        Ok(true)
    }

    /// Who named the store, where that is not on the command line.
    fn named_by(&self) -> String {
        match &self.choice.source {
            Source::Option | Source::Nobody => String::new(),
            source => without_passwords(&format!(", as {source} names it")),
        }
    }
}

/// Connects for a verb that only looks, or takes away. It makes no lock file: where there is none, nobody holds anything,
/// and one that is made by whoever looks may be none for those who are to lock.
pub(super) async fn visit(global: &Global) -> Result<Client, Failure> {
    let store = Chosen::of(global)?;
    if !store.is_absent(global)? {
        return store.connect(None).await;
    }
    // An empty store, which nobody else sees.
    let empty = tenure::connect("memory:").await;
    empty.map_err(|error| Failure::of("cannot stand in for a store that is not there", &error))
}

/// The label that was asked for, or `user@host:pid`. Where the environment does not name the user, as cron's and a
/// container's may not, the user database does.
fn settings(label: Option<&str>) -> Settings {
    let settings = Settings::default();
    if let Some(label) = label {
        return settings.label(label);
    }
    let named = |name: &str| env::var(name).is_ok_and(|user| !user.is_empty());
    if ["USER", "LOGNAME", "USERNAME"].into_iter().any(named) {
        return settings;
    }
    let user = Account::of_this_user().map(|account| account.name);
    let place = settings.label.rsplit_once('@').map(|(_, place)| place.to_owned());
    match (user.filter(|user| !user.is_empty()), place) {
        (Some(user), Some(place)) => settings.label(format!("{user}@{place}")),
        _ => settings,
    }
}

/// Disconnects. What was withdrawn or dropped before is gone from the store afterwards, or is warned about.
pub(super) async fn leave(client: &Client) {
    let what = "the store was not left in order; what is left there ends with its lease";
    let failure = match client.close(GOODBYE).await {
        Ok(()) => return,
        Err(Error::Timeout) => Failure::silence(what),
        Err(error) => Failure::of(what, &error),
    };
    failure.warn();
}

/// A key as it was written, checked before a store is touched.
pub(super) fn key(name: &str) -> Result<LockKey, Failure> {
    LockKey::new(name).map_err(|why| Failure::usage(format!("{:?} cannot be a key", shortened(name)), why))
}
