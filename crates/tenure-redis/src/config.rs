//! Configuration: the server's address, credentials, timeouts and TLS.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{BackendError, Clock, Profile, ServerDeath, SystemClock};
use tenure_endpoint::{Credentials, Host, Known, Login, Options, Secret, StoreUrl, Tls};

use crate::connection::recovery::Member;
use crate::error::invalid;
use crate::layout::Layout;
use crate::profile::CLUSTER_HAZARDS;
use crate::topology::{Acknowledgement, Topology};

/// Claims are batched while at least this many calls are in flight. With fewer, the server is idle between calls, so a
/// claim that is sent alone is served sooner.
const BATCH_FROM: usize = 12;

const OPTIONS: &[Known] = &[
    Known::one_of("layout", &["redisson", "plain", "spring"]),
    Known::text("registry"),
    Known::one_of("fencing", &["redisson"]),
    Known::limit("connect_timeout"),
    Known::limit("command_timeout"),
    Known::flag("spin"),
    Known::path("password_file"),
    Tls::OPTIONS[0],
    Tls::OPTIONS[1],
    Tls::OPTIONS[2],
    Known::text("sentinel_user"),
    Known::path("sentinel_password_file"),
    Known::text("replicas"),
    Known::duration("replica_wait"),
];

/// Address, credentials, timeouts and TLS settings of a Redis server.
///
/// # Examples
/// ```
/// use tenure_endpoint::StoreUrl;
/// use tenure_redis::Config;
///
/// let config = Config::from_url(&StoreUrl::parse("redis://ada:s3cr3t@cache.example/2")?)?;
/// assert_eq!(config.address(), "cache.example:6379");
/// assert!(!format!("{config:?}").contains("s3cr3t"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
// A field is described by the method that sets it.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) topology: Topology,
    pub(crate) login: Login,
    pub(crate) database: u32,
    pub(crate) layout: Layout,
    pub(crate) connect_timeout: Duration,
    pub(crate) command_timeout: Duration,
    /// How many replicas must acknowledge a grant; `None` if none must.
    pub(crate) acknowledgement: Option<Acknowledgement>,
    pub(crate) tls: Option<Tls>,
    pub(crate) spin: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) member: Option<Member>,
    pub(crate) redisson_fencing: bool,
    pub(crate) batch_from: usize,
    pub(crate) concurrent_batches: Option<usize>,
}

impl Config {
    /// Configures a server at `host`, with defaults for the rest.
    pub fn at(host: Host) -> Self {
        Config::on(Topology::single(host))
    }

    fn on(topology: Topology) -> Self {
        Config {
            topology,
            login: Login::default(),
            database: 0,
            layout: Layout::Redisson,
            connect_timeout: Duration::from_secs(5),
            command_timeout: Duration::from_secs(3),
            acknowledgement: None,
            tls: None,
            spin: true,
            clock: Arc::new(SystemClock),
            member: None,
            batch_from: BATCH_FROM,
            concurrent_batches: None,
            redisson_fencing: false,
        }
    }

    /// Parses `redis://[user:pass@]host[:port][/db][?options]`, or `redis+sentinel://[user:pass@]host,…/master[/db]`
    /// for a master and its sentinels, or `redis+cluster://[user:pass@]host,…` for nodes of a cluster; `rediss` in
    /// place of `redis` for TLS.
    ///
    /// Reads a password file at once, to refuse a bad one early, and again at each connect. Refuses a user without a
    /// password, because the user may be a misplaced password, as in `redis://PASSWORD@HOST`.
    ///
    /// # Errors
    /// [`Fault::Invalid`](tenure_backend::Fault::Invalid) for a malformed URL, an unknown or malformed option, or a
    /// password file that cannot be read. No message contains the password.
    pub fn from_url(url: &StoreUrl) -> Result<Self, BackendError> {
        let options = url.options(OPTIONS).map_err(invalid)?;
        let (topology, database) = Topology::of(url, &options)?;
        let database = match database {
            "" => 0,
            path => path.parse().map_err(|_| {
                invalid("the path of a Redis URL ends with the number of a database, such as `/0`")
            })?,
        };
        let login = Login::new(url.user(), url.password(), options.path("password_file"))?;
        if login.lacks_password() {
            // The message does not repeat the user name, because it may be a misplaced password.
            return Err(invalid(
                "the URL names a user and no password: write `redis://USER:PASSWORD@HOST`, or `redis://:PASSWORD@HOST` for \
                 the default user's, or name a `password_file`; a user with `nopass` takes any password",
            ));
        }
        let defaults = Config::on(topology);
        let config = Config {
            login,
            database,
            layout: layout(&options)?,
            connect_timeout: options
                .duration("connect_timeout")
                .unwrap_or(defaults.connect_timeout),
            command_timeout: options
                .duration("command_timeout")
                .unwrap_or(defaults.command_timeout),
            acknowledgement: Acknowledgement::of(&options)?,
            tls: Tls::from_options(&options, "rediss", url.scheme().starts_with("rediss"))?,
            spin: options.flag("spin").unwrap_or(defaults.spin),
            redisson_fencing: options.one_of("fencing").is_some(),
            ..defaults
        };
        config.check()?;
        Ok(config)
    }

    /// Refuses settings that contradict each other.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        if self.redisson_fencing && self.layout.is_string() {
            return Err(invalid(
                "`fencing=redisson` is for the layout `redisson`: leave it out, tokens come from a counter of the database",
            ));
        }
        Ok(())
    }

    /// Sets the server. The default port is 6379.
    #[must_use]
    pub fn host(self, host: Host) -> Self {
        let topology = Topology::single(host);
        Config { topology, ..self }
    }

    /// Sets the ACL user. Without one, the password is that of the default user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.login = self.login.with_user(user);
        self
    }

    /// Sets the password.
    #[must_use]
    pub fn password(mut self, password: Secret) -> Self {
        self.login = self.login.with_password(password);
        self
    }

    /// Sets the file that holds the password, read again at each connect so that the password can be rotated.
    #[must_use]
    pub fn password_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.login = self.login.with_password_file(file);
        self
    }

    /// Sets a callback that fetches user and password at each connect, instead of fixed ones: for tokens that expire.
    ///
    /// Connecting waits for the callback, within [`connect_timeout`](Config::connect_timeout). If the callback fails,
    /// connecting fails with its error, and the next attempt calls it again.
    ///
    /// # Examples
    /// ```
    /// use tenure_redis::{Config, Credentials, StoreUrl};
    ///
    /// let url = StoreUrl::parse("redis://cache.example")?;
    /// let config = Config::from_url(&url)?.credentials(async || {
    ///     // Ask the vault here.
    ///     Ok(Credentials::user("ada", "s3cr3t"))
    /// });
    /// assert!(!format!("{config:?}").contains("s3cr3t"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn credentials<F>(mut self, fetch: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, BackendError>> + Send + 'static,
    {
        self.login = self.login.fetching(fetch);
        self
    }

    /// Sets the number of the database: 0 by default.
    #[must_use]
    pub fn database(self, database: u32) -> Self {
        Config { database, ..self }
    }

    /// Sets the format of the locks: Redisson's by default.
    #[must_use]
    pub fn layout(self, layout: Layout) -> Self {
        Config { layout, ..self }
    }

    /// Sets how long it may take to connect: 5 s by default, so that TCP can send a lost first packet twice more.
    #[must_use]
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Sets how long the server may take to reply: 3 s by default, as in Redisson. A connection that exceeds the limit
    /// is closed, at most a quarter of the limit later, and all its calls fail.
    #[must_use]
    pub fn command_timeout(mut self, command_timeout: Duration) -> Self {
        self.command_timeout = command_timeout;
        self
    }

    /// Connects with TLS; the default is plain text.
    #[must_use]
    pub fn tls(self, tls: Tls) -> Self {
        let tls = Some(tls);
        Config { tls, ..self }
    }

    /// Sets whether a lone caller that calls again within 100 µs of its last reply polls the socket for up to 100 µs
    /// before its thread sleeps: true by default. This is faster if the server runs on the same machine, but keeps the
    /// core busy and other tasks waiting.
    #[must_use]
    pub fn spin(self, spin: bool) -> Self {
        Config { spin, ..self }
    }

    /// Sets whether tokens come from a counter of each lock, which Redisson's `RFencedLock` shares: false by default.
    /// Only for [`Layout::Redisson`]; connecting fails otherwise. Claims do not travel in batches then, because a batch
    /// draws the tokens of all its claims at once.
    #[must_use]
    pub fn redisson_fencing(mut self, redisson_fencing: bool) -> Self {
        self.redisson_fencing = redisson_fencing;
        self
    }

    /// Sets the clock that measures leases: the system's by default.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Config { clock, ..self }
    }

    /// Makes the server a member of a quorum: by default it is none.
    ///
    /// A member that restarted may have forgotten claims that still hold. Until it has been up for
    /// [`Member::max_lease`], the client returns [`Recovering`](tenure_backend::AcquireReply::Recovering) and places no
    /// claim on it, unless it is [durable](Member::durable). Connecting asks the server for its uptime, so the user needs
    /// the command `INFO`.
    #[must_use]
    pub fn member(self, member: Member) -> Self {
        let member = Some(member);
        Config { member, ..self }
    }

    /// Sets the number of calls in flight from which on claims are batched (`None`: no change), and the number of
    /// batches in flight at once (`None`: derived from the round-trip time).
    #[cfg(feature = "__own-tests")]
    #[doc(hidden)]
    #[must_use]
    pub fn batching(mut self, batch_from: Option<usize>, concurrent_batches: Option<usize>) -> Self {
        self.batch_from = batch_from.unwrap_or(self.batch_from);
        self.concurrent_batches = concurrent_batches;
        self
    }

    /// The server as `host:port`, or the name of the master and its sentinels, or the nodes of the cluster.
    pub fn address(&self) -> String {
        self.topology.to_string()
    }

    /// The promises of a store with these settings: those of the layout, and what topology and replicas change in them.
    pub(crate) fn profile(&self) -> Profile {
        let mut profile = self.layout.profile().clone();
        profile.replicas = self.acknowledgement.map_or(0, |wanted| wanted.replicas);
        match self.topology {
            Topology::Single(_) => {}
            Topology::Sentinel(_) => profile.server_death = ServerDeath::OutageUntilFailover,
            Topology::Cluster(..) => {
                profile.server_death = ServerDeath::OutageUntilFailover;
                profile.hazards = CLUSTER_HAZARDS;
            }
        }
        profile
    }
}

fn layout(options: &Options) -> Result<Layout, BackendError> {
    match (options.one_of("layout"), options.text("registry")) {
        (Some("spring"), Some(registry)) => Layout::spring(registry),
        (Some("spring"), None) => Err(invalid(
            "the layout `spring` needs `registry=NAME`: the registry key that Java passes to RedisLockRegistry",
        )),
        (_, Some(_)) => Err(invalid("`registry` is for `layout=spring`: leave it out")),
        (Some("plain"), None) => Ok(Layout::Plain),
        (_, None) => Ok(Layout::Redisson),
    }
}

#[cfg(test)]
mod tests {
    use tenure_backend::{Fault, Hazard};

    use super::*;

    fn config(url: &str) -> Result<Config, BackendError> {
        Config::from_url(&StoreUrl::parse(url).expect("a URL"))
    }

    #[test]
    fn a_url_says_where_who_and_for_how_long() {
        let read = config(
            "redis://ada:s3cr3t@cache:6380/4?connect_timeout=1s&command_timeout=250ms&spin=false&layout=redisson",
        );
        let read = read.expect("it makes sense");
        assert_eq!((read.address().as_str(), read.database), ("cache:6380", 4));
        assert_eq!(read.login.user(), Some("ada"));
        assert_eq!(
            (read.connect_timeout, read.command_timeout),
            (Duration::from_secs(1), Duration::from_millis(250))
        );
        assert!(!read.spin);
        let usual = config("redis://cache").expect("it makes sense");
        assert_eq!(usual.address(), "cache:6379");
        assert_eq!(
            (usual.connect_timeout, usual.command_timeout),
            (Duration::from_secs(5), Duration::from_secs(3))
        );
        assert!(usual.spin);
    }
    #[test]
    fn a_layout_is_chosen_by_name_and_registry() {
        let layout = |query: &str| config(&format!("redis://cache?{query}")).map(|config| config.layout);
        assert_eq!(layout("").expect("a layout"), Layout::Redisson);
        assert_eq!(layout("layout=plain").expect("a layout"), Layout::Plain);
        let spring = layout("layout=spring&registry=orders").expect("a layout");
        assert_eq!(spring, Layout::spring("orders").expect("a name"));
        for wrong in [
            "layout=spring",
            "registry=orders",
            "layout=plain&registry=orders",
            "layout=spring&registry=",
            "layout=spring&registry=tenure_claim",
        ] {
            assert_eq!(layout(wrong).expect_err(wrong).fault(), Fault::Invalid);
        }
    }

    #[test]
    fn topology_and_replicas_change_the_profile() {
        let profile = |url: &str| config(url).expect("it makes sense").profile();
        let one = profile("redis://a");
        assert_eq!((one.server_death, one.replicas), (ServerDeath::Outage, 0));
        assert_eq!(profile("redis://a?replicas=2").replicas, 2);
        let sentinel = profile("redis+sentinel://a/m");
        assert_eq!(sentinel.server_death, ServerDeath::OutageUntilFailover);
        assert_eq!(sentinel.hazards, one.hazards);
        let cluster = profile("redis+cluster://a");
        assert_eq!(cluster.server_death, ServerDeath::OutageUntilFailover);
        assert!(cluster.hazards.contains(&Hazard::InterruptedMove));
    }

    #[test]
    fn the_counter_of_rfencedlock_needs_redissons_layout() {
        let fenced = config("redis://h").expect("a URL").redisson_fencing(true);
        assert!(fenced.check().is_ok());
        let refused = fenced.layout(Layout::Plain).check().expect_err("another layout");
        assert_eq!(refused.fault(), Fault::Invalid);
    }
}
