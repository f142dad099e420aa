//! A server of its own for each test, whose clock and whose clients' clocks move together by hand.
//! A look at what stands in it is in `look.rs`.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{Backend, BackendError, Call, Clock, Instant, SystemClock};
use tenure_endpoint::StoreUrl;
use tenure_redis::{Config, RedisStore};
use tenure_servers::{Data, Proxy, Redis, SteppedClock, Way};
use tenure_testkit::{Ailment, Door, Slow, Subject};

/// Whom the clients are to the server: a user with the rights that the documentation names, and no others.
pub(crate) const USER: &str = "tenure";
pub(crate) const PASSWORD: &str = "s3cr3t-and-long";

/// What the documentation says that a user needs, as rules of the server's.
pub(crate) fn documented_rights() -> Vec<String> {
    let (_, list) = include_str!("../../src/docs.md")
        .split_once("**An ACL user**")
        .expect("the documentation says what a user needs");
    let (list, _) = list.split_once("\n\n").expect("there is more");
    let quoted = list.split('`').skip(1).step_by(2);
    let commands = quoted.filter(|word| !word.contains(char::is_lowercase));
    let rules = commands.map(|command| format!("+{}", command.to_lowercase().replace(' ', "|")));
    ["~*", "&*", "-@all"]
        .map(str::to_owned)
        .into_iter()
        .chain(rules)
        .collect()
}

pub(crate) fn config(url: &str) -> Result<Config, BackendError> {
    Config::from_url(&StoreUrl::parse(url).expect("a URL"))
}

/// A store at that URL, with the system's clock.
pub(crate) async fn connect(url: &str) -> Result<Arc<RedisStore>, BackendError> {
    RedisStore::connect(config(url)?).await
}

/// The system's clock and what has been made to pass besides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ahead(Arc<Mutex<Duration>>);

impl Clock for Ahead {
    fn now(&self) -> Instant {
        SystemClock.now() + *self.0.lock()
    }
}

/// A server that tests move through time.
pub(crate) struct Server {
    pub(crate) redis: Arc<Mutex<Redis>>,
    pub(crate) clock: Ahead,
    /// Whether claims travel together from the first on.
    pub(crate) gathers: bool,
}

impl Server {
    pub(crate) fn start() -> Self {
        let clock = SteppedClock::new().expect("a clock that steps can be made");
        let password = format!(">{PASSWORD}");
        let rights = documented_rights();
        let mut options = vec![
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "no",
            "--enable-protected-configs",
            "yes",
            "--user",
            USER,
            "on",
            &password,
        ];
        options.extend(rights.iter().map(String::as_str));
        let redis = Redis::start_with(&options, Some(clock)).expect("redis-server starts");
        Server {
            redis: Arc::new(Mutex::new(redis)),
            clock: Ahead::default(),
            gathers: false,
        }
    }

    /// One whose clients' claims travel together from the first on.
    pub(crate) fn gathering() -> Self {
        Server {
            gathers: true,
            ..Server::start()
        }
    }

    pub(crate) fn config(&self) -> Config {
        let url = format!("redis://{USER}:{PASSWORD}@{}", self.redis.lock().address());
        let usual = config(&url).expect("a URL of a server");
        Config {
            clock: Arc::new(self.clock.clone()),
            alone: if self.gathers { 0 } else { usual.alone },
            // However busy the machine was when they connected.
            side_by_side: Some(2),
            ..usual
        }
    }

    /// A store to which the server is so far, each way, and which finds that out by itself.
    pub(crate) async fn far(&self, delay: Duration) -> (Proxy, Arc<RedisStore>) {
        let address = self.redis.lock().address();
        let proxy = Proxy::start(address).await.expect("a port is free");
        proxy.delay(Way::ToServer, delay);
        proxy.delay(Way::ToClient, delay);
        let config = Config {
            // Its answers are held up, and nobody is to take it for dead.
            command_timeout: Duration::from_secs(30),
            side_by_side: None,
            ..through(&proxy, self.config())
        };
        let store = RedisStore::connect(config).await;
        (proxy, store.expect("the server answers"))
    }

    /// A store whose calls can be held up on their way, and which waits so long for an answer.
    pub(crate) async fn behind_a_proxy(&self, command_timeout: Duration) -> (Proxy, Arc<RedisStore>) {
        let address = self.redis.lock().address();
        let config = Config {
            command_timeout,
            ..self.config()
        };
        let reached = behind_a_proxy(address, config).await;
        reached.expect("the server answers")
    }
}

impl Subject for Server {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        let config = self.config();
        Call::new(async move { Ok(RedisStore::connect(config).await? as Arc<dyn Backend>) })
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // The server's clock is set in whole milliseconds.
        let time =
            Duration::from_millis(u64::try_from(time.as_micros().div_ceil(1000)).expect("a short time"));
        let milliseconds = i64::try_from(time.as_millis()).expect("a short time");
        let redis = self.redis.lock();
        redis
            .clock()
            .expect("it steps")
            .step_ms(milliseconds)
            .expect("the clock steps");
        *self.clock.0.lock() += time;
        Box::pin(std::future::ready(()))
    }

    fn client_on(&self, _: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>> {
        None
    }

    fn restart(&self) -> Option<Call<()>> {
        let redis = self.redis.clone();
        Some(Call::new(async move {
            redis.lock().restart(Data::Kept).expect("the server starts again");
            Ok(())
        }))
    }

    /// Takes the right to call scripts away, or gives it back. Nothing keeps a server out of order but what passes by
    /// itself, which is weather.
    fn ail(&self, ailment: Option<Ailment>) -> Option<Call<()>> {
        let right = match ailment {
            Some(Ailment::Denies) => "-evalsha",
            Some(Ailment::OutOfOrder) => return None,
            None => "+evalsha",
        };
        let redis = self.redis.clone();
        Some(Call::new(async move {
            let obeyed = redis.lock().ask(&["ACL", "SETUSER", USER, right]);
            obeyed.expect("the server obeys");
            Ok(())
        }))
    }

    fn slow(&self) -> Option<Call<Slow>> {
        let server = self.redis.lock().address();
        let config = self.config();
        Some(Call::new(async move {
            let (proxy, backend) = behind_a_proxy(server, config).await?;
            Ok(Slow {
                backend,
                door: Arc::new(SlowProxy(proxy)),
            })
        }))
    }
}

/// A proxy before the server, and a store that goes through it.
async fn behind_a_proxy(
    server: SocketAddr,
    config: Config,
) -> Result<(Proxy, Arc<RedisStore>), BackendError> {
    let proxy = Proxy::start(server).await.expect("a port is free");
    let store = RedisStore::connect(through(&proxy, config)).await?;
    Ok((proxy, store))
}

/// It is reached through a proxy.
fn through(proxy: &Proxy, config: Config) -> Config {
    let url = StoreUrl::parse(&format!("redis://{}", proxy.address())).expect("a URL");
    Config {
        host: url.hosts()[0].clone(),
        ..config
    }
}

#[derive(Debug)]
struct SlowProxy(Proxy);

impl Door for SlowProxy {
    fn delay(&self, requests: Duration, answers: Duration) {
        self.0.delay(Way::ToServer, requests);
        self.0.delay(Way::ToClient, answers);
    }
}

pub(crate) async fn subject() -> impl Subject {
    Server::start()
}

pub(crate) async fn gathering() -> impl Subject {
    Server::gathering()
}
