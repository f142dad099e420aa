//! From a URL to a client. The only place that knows every store.

use std::sync::Arc;

use tenure_backend::Backend;
use tenure_endpoint::{StoreUrl, UrlError};

use crate::client::Client;
use crate::error::Error;
use crate::settings::Settings;

/// Connects to the store that `url` names, with default settings.
///
/// # Errors
/// [`Error::Invalid`] for a URL that makes no sense (never showing its password); [`Error::Unsupported`] for a store
/// that was left out of this build, with the feature to enable; [`Error::Backend`] if the store cannot be reached.
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// let client = tenure::connect("memory:").await?;
/// # Ok(()) }
/// ```
pub async fn connect(url: &str) -> Result<Client, Error> {
    connect_with(url, Settings::default()).await
}

/// Connects to the store that `url` names. The store is tried once.
///
/// # Errors
/// As [`connect`].
///
/// # Cancel safety
/// Dropping the future leaves nothing behind.
pub async fn connect_with(url: &str, settings: Settings) -> Result<Client, Error> {
    let url = StoreUrl::parse(url)?;
    let backend: Arc<dyn Backend> = match url.scheme() {
        "memory" => memory(&url)?,
        "sqlite" => sqlite(&url).await?,
        scheme => return Err(left_out_or_unknown(scheme)),
    };
    Ok(Client::new(backend, settings))
}

impl From<UrlError> for Error {
    fn from(error: UrlError) -> Self {
        Error::Invalid(error.to_string().into())
    }
}

#[cfg(feature = "memory")]
fn memory(url: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    url.options(&[])?;
    Ok(tenure_memory::Memory::new())
}

#[cfg(not(feature = "memory"))]
fn memory(_: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    Err(missing("memory"))
}

/// What an SQLite URL may say after its `?`.
#[cfg(feature = "sqlite")]
const SQLITE_OPTIONS: &[tenure_endpoint::Known] = &[tenure_endpoint::Known::one_of("layout", &["claims"])];

#[cfg(feature = "sqlite")]
async fn sqlite(url: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    url.options(SQLITE_OPTIONS)?;
    let path = Some(url.path())
        .filter(|path| !path.is_empty())
        .map(std::path::PathBuf::from);
    Ok(tenure_sql::sqlite::open(path, Arc::new(tenure_backend::SystemClock)).await?)
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(_: &StoreUrl) -> Result<Arc<dyn Backend>, Error> {
    Err(missing("sqlite"))
}

/// A scheme that names no store.
fn left_out_or_unknown(scheme: &str) -> Error {
    let stores = [
        ("memory", cfg!(feature = "memory")),
        ("sqlite", cfg!(feature = "sqlite")),
    ];
    let built = stores
        .iter()
        .filter(|(_, built)| *built)
        .map(|(store, _)| format!("`{store}:`"))
        .collect::<Vec<_>>();
    let message = format!(
        "no store is named `{scheme}:`; this build has {}",
        built.join(" and ")
    );
    tenure_backend::BackendError::unsupported(message).into()
}

#[cfg(any(not(feature = "memory"), not(feature = "sqlite")))]
fn missing(feature: &str) -> Error {
    let message = format!(
        "this store was left out of this build: enable the feature `{feature}` of the crate `tenure`"
    );
    tenure_backend::BackendError::unsupported(message).into()
}
