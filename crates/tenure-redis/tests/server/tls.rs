//! TLS to a real server, with a certificate authority that the test creates.

use std::sync::Arc;
use std::time::Duration;

use crate::fixture::{acquire, assert_error, config, connect, is_granted, release, unlock_of, wait_for_wake};
use tenure_backend::{Backend, Claim, ClaimId, ClaimRef, ClientId, Effect, Fault, LockKey, Query};
use tenure_servers::{Certificates, MASTER, Redis, RedisCluster, start_sentinel};

/// Certificates, and the port at which a server with one of them speaks TLS.
struct Secured {
    certificates: Certificates,
    port: String,
}

impl Secured {
    fn new() -> Self {
        Secured {
            certificates: Certificates::new("ada"),
            port: free_port(),
        }
    }

    fn file(&self, name: &str) -> String {
        self.certificates.file(name)
    }

    /// The options of a client's URL: the authority, and a certificate of the client, which the servers ask for.
    fn trust(&self) -> String {
        let [ca, cert, key] = ["ca.pem", "server.pem", "server.key"].map(|name| self.file(name));
        format!("ca={ca}&cert={cert}&key={key}")
    }

    /// The options of the server.
    fn options(&self) -> Vec<String> {
        let files = [
            ("--tls-cert-file", "server.pem"),
            ("--tls-key-file", "server.key"),
            ("--tls-ca-cert-file", "ca.pem"),
        ];
        let files = files.map(|(option, name)| [option.to_owned(), self.file(name)]);
        let first = ["--save", "", "--tls-port", &self.port].map(str::to_owned);
        first.into_iter().chain(files.into_iter().flatten()).collect()
    }
}

fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("one").port().to_string()
}

/// Acquires and releases a lock while a subscription to it receives its wake-ups.
async fn lock_and_unlock<B: Backend>(store: &Arc<B>) {
    let id = ClaimId::new(ClientId::from_random([7; 16]), 1);
    let key = LockKey::new("k").expect("a key");
    let claim = Arc::new(Claim::of(ClaimRef { key, id }, Duration::from_secs(30)));
    let mut wakes = store.clone().watch(claim.clone()).await.expect("a subscription");
    wait_for_wake(&mut wakes).await;
    let granted = acquire(store, &claim).await;
    assert!(is_granted(&granted), "{granted:?}");
    release(store, unlock_of(&claim)).await;
    wait_for_wake(&mut wakes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_trusts_only_the_named_authority() {
    let secured = Secured::new();
    let (options, port) = (secured.options(), &secured.port);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let _server = Redis::start_with(&options, None).expect("it starts");
    let file = |name: &str| secured.file(name);
    let host = format!("127.0.0.1:{port}");
    // The server asks for the client's certificate too.
    let (ca, cert, key) = (file("ca.pem"), file("server.pem"), file("server.key"));
    let store = connect(&format!("rediss://{host}?ca={ca}&cert={cert}&key={key}"))
        .await
        .expect("it is trusted");
    let status = store
        .clone()
        .inspect(Query::Key(LockKey::new("k").expect("a key")));
    assert_eq!(status.await.expect("it answers").items, []);
    let stranger = connect(&format!("rediss://{host}?cert={cert}&key={key}"))
        .await
        .expect_err("the authority is unknown");
    // The certificate is refused at each attempt, so a client that connects first is not asked to try again.
    assert_error(&stranger, (Fault::Store, Effect::None), "no TLS can be spoken");
    let plain = connect(&format!("redis://{host}?connect_timeout=1s"))
        .await
        .expect_err("it speaks TLS alone");
    // A TLS server closes a plain-text connection without a reason.
    assert_error(&plain, (Fault::Unavailable, Effect::None), "`rediss://`");
}

/// With TLS 1.3 the server refuses a certificate after the handshake, with TLS 1.2 during it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_demands_a_certificate_is_named_as_one() {
    for (protocol, missing, strange) in [
        (
            "TLSv1.3",
            "demands a certificate of its clients: write `rediss://HOST?cert=FILE&key=FILE`",
            "refuses this client's certificate",
        ),
        ("TLSv1.2", "(`cert`, `key`)", "(`cert`, `key`)"),
    ] {
        let secured = Secured::new();
        let options = secured.options();
        let mut options: Vec<&str> = options.iter().map(String::as_str).collect();
        options.extend(["--tls-auth-clients", "yes", "--tls-protocols", protocol]);
        let _server = Redis::start_with(&options, None).expect("it starts");
        let url = |identity: &str| {
            let ca = secured.file("ca.pem");
            format!("rediss://127.0.0.1:{}?ca={ca}{identity}", secured.port)
        };
        let of_other = format!(
            "&cert={}&key={}",
            secured.file("other-ca.pem"),
            secured.file("other-ca.key")
        );
        for (identity, words) in [("", missing), (&of_other, strange)] {
            let refused = connect(&url(identity))
                .await
                .expect_err("no certificate it trusts");
            assert_error(&refused, (Fault::Store, Effect::None), words);
        }
    }
}

/// A cluster and sentinels that refuse the certificate are not asked again, unless another host may answer later.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_certificate_is_permanent_if_all_hosts_refuse_it() {
    let secured = Secured::new();
    let options = secured.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let _server = Redis::start_with(&options, None).expect("it starts");
    let (refuses, closed) = (format!("127.0.0.1:{}", secured.port), "127.0.0.1:1");
    let ca = secured.file("ca.pem");
    for (hosts, fault) in [
        (refuses.clone(), Fault::Store),
        (format!("{refuses},{closed}"), Fault::Unavailable),
        (format!("{closed},{refuses}"), Fault::Unavailable),
    ] {
        let url = config(&format!("rediss+cluster://{hosts}?ca={ca}")).expect("a URL");
        let refused = tenure_redis::RedisCluster::connect(url).await;
        let refused = refused.map(drop).expect_err("it demands a certificate");
        assert_eq!(refused.fault(), fault, "{hosts}: {refused}");
        let refused = connect(&format!("rediss+sentinel://{hosts}/m?ca={ca}")).await;
        let refused = refused.map(drop).expect_err("it demands a certificate");
        assert_eq!(refused.fault(), fault, "{hosts}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_reached_with_tls() {
    let secured = Secured::new();
    let options = secured.options();
    let mut options: Vec<&str> = options.iter().map(String::as_str).collect();
    options.extend(["--tls-cluster", "yes"]);
    let _server = RedisCluster::start(1, false, &options, None).expect("it starts");
    let url = format!("rediss+cluster://127.0.0.1:{}?{}", secured.port, secured.trust());
    let store = tenure_redis::RedisCluster::connect(config(&url).expect("a URL"));
    lock_and_unlock(&store.await.expect("it is trusted")).await;
}

/// The sentinel and the master speak TLS, and have users and passwords of their own.
#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_and_its_master_are_reached_with_tls() {
    let secured = Secured::new();
    let mut options = secured.options();
    options.extend(
        "--user ada on >for-servers ~* &* +@all"
            .split(' ')
            .map(str::to_owned),
    );
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let _master = Redis::start_with(&options, None).expect("it starts");
    let port = free_port();
    let of_sentinel: Vec<String> = secured.options()[4..]
        .chunks(2)
        .map(|option| format!("{} {}", option[0].trim_start_matches('-'), option[1]))
        .collect();
    let settings = format!(
        "{}\ntls-port {port}\ntls-replication yes\nuser bob on >for-sentinels ~* &* +@all",
        of_sentinel.join("\n")
    );
    let address = format!("127.0.0.1:{}", secured.port).parse().expect("an address");
    let _sentinel = start_sentinel(address, 1, &settings).expect("it starts");
    std::fs::write(secured.file("password"), "for-sentinels").expect("a file");
    let url = format!(
        "rediss+sentinel://ada:for-servers@127.0.0.1:{port}/{MASTER}?sentinel_user=bob&sentinel_password_file={}&{}",
        secured.file("password"),
        secured.trust()
    );
    lock_and_unlock(&connect(&url).await.expect("both are trusted")).await;
}
