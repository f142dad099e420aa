//! Connects to the store that the command line, the environment or a file names.

use std::env;
use std::path::Path;
use std::time::Duration;

use tenure::backend::escape_control;
use tenure::inspect::Finding;
use tenure::{Client, Error, LockKey, Settings, StoreUrl};

use crate::account::Account;
use crate::args::Global;
use crate::messages::{Failure, note, shortened, without_passwords};
use crate::state_folder::create_folder;
use crate::store_choice::{Choice, Environment, Source, choose};
use crate::store_findings::store_findings;

/// How long a verb that waits for ever tries to connect.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(30);
/// Time limit for disconnecting, when the verb holds no lock any more.
const DISCONNECT_LIMIT: Duration = Duration::from_secs(1);

/// The store that was chosen, before a connection is made.
pub(super) struct ChosenStore {
    environment: Environment,
    choice: Choice,
    scheme: String,
    /// The URL without its password.
    pub(super) masked_url: String,
}

impl ChosenStore {
    /// Reads the options, the environment and the files that name a store, and prints the notes about the choice.
    pub(super) fn of(global: &Global) -> Result<ChosenStore, Failure> {
        let environment = Environment::of(global);
        let choice = choose(&environment).map_err(|why| Failure::usage("no store can be chosen", why))?;
        let url = StoreUrl::parse(&choice.url)
            .map_err(|why| Failure::usage(format!("the URL in {} cannot be used", choice.source), why))?;
        for words in &choice.notes {
            note(global.quiet, words);
        }
        Ok(ChosenStore {
            environment,
            choice,
            scheme: url.scheme().to_owned(),
            masked_url: url.to_string(),
        })
    }

    /// Returns the store's URL, with its password.
    pub(super) fn url(&self) -> &str {
        &self.choice.url
    }

    /// Returns whether the store is a file of this machine.
    pub(super) fn is_file(&self) -> bool {
        self.scheme == "sqlite"
    }

    /// Returns what weakens locks in the way this store was chosen.
    pub(super) fn findings(&self) -> Vec<Finding> {
        store_findings(&self.environment, &self.choice)
    }

    /// Connects with this label. With a limit, tries again after a transient failure until the limit has passed.
    pub(super) async fn connect(
        &self,
        label: Option<&str>,
        limit: Option<Duration>,
    ) -> Result<Client, Failure> {
        let settings = settings(label);
        let settings = match limit {
            Some(limit) => settings.connect_limit(limit),
            None => settings,
        };
        self.connect_with(settings).await
    }

    /// Connects for a verb that changes nothing. It works on a SQLite file that this user can only read.
    pub(super) async fn connect_to_inspect(&self) -> Result<Client, Failure> {
        self.connect_with(settings(None).allow_read_only(true)).await
    }

    /// If the store is the user's own SQLite file (the embedded store), creates its folder.
    async fn connect_with(&self, settings: Settings) -> Result<Client, Failure> {
        if let Some(folder) = &self.choice.folder {
            create_folder(folder).map_err(|error| {
                let what = format!("cannot create the folder {} for the locks", folder.display());
                Failure::system(what, error)
            })?;
        }
        tenure::connect_with(&self.choice.url, settings)
            .await
            .map_err(|error| {
                Failure::of(
                    format!("cannot use the store {}{}", self.masked_url, self.named_by()),
                    &error,
                )
            })
    }

    /// Returns whether the store is a lock file that does not exist yet, and prints a note if so. The user's own lock
    /// file (the embedded store) never counts as absent.
    ///
    /// # Errors
    /// If the URL cannot be used to connect.
    pub(super) fn is_absent(&self, global: &Global) -> Result<bool, Failure> {
        let unusable =
            |error: &Error| Failure::of(format!("cannot use the store {}", self.masked_url), error);
        let url = StoreUrl::parse(&self.choice.url).map_err(|error| unusable(&error.into()))?;
        // Only the embedded store has a `folder`. Only this user's commands use its file, so `connect` may create it.
        let may_be_anothers = url.scheme() == "sqlite" && self.choice.folder.is_none();
        if !may_be_anothers || !matches!(Path::new(url.path()).try_exists(), Ok(false)) {
            return Ok(false);
        }
        // Check the URL's options here, because no connection will check them.
        tenure::schema(&self.choice.url).map_err(|error| unusable(&error))?;
        let text = format!(
            "there is no lock file {} yet, so it holds no lock",
            escape_control(url.path())
        );
        note(global.quiet, &text);
        Ok(true)
    }

    /// The part of a message that tells which variable or file names the store: `, as TENURE_URL names it`. Empty for
    /// `--url`, and if no source names a store.
    fn named_by(&self) -> String {
        match &self.choice.source {
            Source::Option | Source::Default => String::new(),
            source => without_passwords(&format!(", as {source} names it")),
        }
    }
}

/// What a verb does in the store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    Inspect,
    Evict,
}

/// Connects for a verb that only inspects or evicts. If the lock file is missing, connects to an empty store instead: a
/// file that is created here, perhaps by root, could be unusable for the commands that lock.
pub(super) async fn connect_if_present(global: &Global, intent: Intent) -> Result<Client, Failure> {
    let store = ChosenStore::of(global)?;
    if !store.is_absent(global)? {
        return match intent {
            Intent::Inspect => store.connect_to_inspect().await,
            Intent::Evict => store.connect(None, None).await,
        };
    }
    // An empty store in memory stands in for the file: it shows that no key is held.
    let empty = tenure::connect("memory:").await;
    empty.map_err(|error| Failure::of("cannot stand in for a store that is not there", &error))
}

/// Returns settings with the label: the option, or `user@host:pid`. If the environment does not name the user, as under
/// cron or in a container, the name comes from the user database.
fn settings(label: Option<&str>) -> Settings {
    let settings = Settings::default();
    if let Some(label) = label {
        return settings.label(label);
    }
    let named = |name: &str| env::var(name).is_ok_and(|user| !user.is_empty());
    if ["USER", "LOGNAME", "USERNAME"].into_iter().any(named) {
        return settings;
    }
    // A label without the user is better than no lock.
    let user = Account::of_this_user().ok().flatten().map(|account| account.name);
    let place = Settings::default_label()
        .rsplit_once('@')
        .map(|(_, place)| place.to_owned());
    match (user.filter(|user| !user.is_empty()), place) {
        (Some(user), Some(place)) => settings.label(format!("{user}@{place}")),
        _ => settings,
    }
}

/// Disconnects. Afterwards all withdrawn or dropped claims are gone from the store, or a warning was printed.
pub(super) async fn disconnect(client: &Client) {
    let what = "the store was not left in order; what is left there ends with its lease";
    let failure = match client.close(DISCONNECT_LIMIT).await {
        Ok(()) => return,
        Err(Error::CloseTimeout(None)) => Failure::no_answer(what),
        // The reason of the last try says more than the time limit.
        Err(Error::CloseTimeout(Some(reason))) => Failure::of(what, &Error::Backend(reason)),
        Err(error) => Failure::of(what, &error),
    };
    failure.warn();
}

/// Validates a key before the store is used.
pub(super) fn key(name: &str) -> Result<LockKey, Failure> {
    LockKey::new(name).map_err(|why| Failure::usage(format!("{:?} cannot be a key", shortened(name)), why))
}
