//! TLS to a real server, with a certificate authority that the test creates.

mod fixture;

use std::path::Path;
use std::process::Command;

use fixture::{assert_error, config, connect};
use tenure_backend::{Backend, Effect, Fault, LockKey, Query};
use tenure_servers::{Redis, RedisCluster};

/// Runs `openssl` in a folder, and panics with its output if it fails.
fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("`openssl` is installed");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// An authority, and a certificate that it has signed, for a server that also speaks TLS.
struct Certificates {
    folder: tempfile::TempDir,
    port: String,
}

impl Certificates {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        std::fs::write(path.join("ext"), "subjectAltName=IP:127.0.0.1\n").expect("a file");
        openssl(
            path,
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
        );
        openssl(
            path,
            "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=server",
        );
        openssl(
            path,
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile ext",
        );
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("one").port().to_string();
        Certificates { folder, port }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
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

#[tokio::test(flavor = "multi_thread")]
async fn tls_trusts_only_the_named_authority() {
    let certificates = Certificates::new();
    let (options, port) = (certificates.options(), &certificates.port);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let _server = Redis::start_with(&options, None).expect("it starts");
    let file = |name: &str| certificates.file(name);
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
    let unavailable = (Fault::Unavailable, Effect::None);
    assert_error(&stranger, unavailable, "no TLS can be spoken");
    let plain = connect(&format!("redis://{host}?connect_timeout=1s"))
        .await
        .expect_err("it speaks TLS alone");
    // A TLS server closes a plain-text connection without a reason.
    assert_error(&plain, unavailable, "`rediss://`");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_reached_with_tls() {
    let certificates = Certificates::new();
    let options = certificates.options();
    let mut options: Vec<&str> = options.iter().map(String::as_str).collect();
    options.extend(["--tls-cluster", "yes"]);
    let _server = RedisCluster::start(1, false, &options, None).expect("it starts");
    let [ca, cert, key] = ["ca.pem", "server.pem", "server.key"].map(|name| certificates.file(name));
    let host = format!("127.0.0.1:{}", certificates.port);
    let url = format!("rediss+cluster://{host}?ca={ca}&cert={cert}&key={key}");
    let store = tenure_redis::RedisCluster::connect(config(&url).expect("a URL"));
    let store = store.await.expect("it is trusted");
    let status = store.inspect(Query::Key(LockKey::new("k").expect("a key")));
    assert_eq!(status.await.expect("it answers").items, []);
}
