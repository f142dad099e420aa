//! TLS to a real server, with a certificate authority that the test creates.

mod fixture;

use std::path::Path;
use std::process::Command;

use fixture::{assert_error, connect};
use tenure_backend::{Backend, Effect, Fault, LockKey, Query};
use tenure_servers::Redis;

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

#[tokio::test(flavor = "multi_thread")]
async fn tls_trusts_only_the_named_authority() {
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
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("one")
        .port();
    let file = |name: &str| path.join(name).display().to_string();
    let _server = Redis::start_with(
        &[
            "--save",
            "",
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &file("server.pem"),
            "--tls-key-file",
            &file("server.key"),
            "--tls-ca-cert-file",
            &file("ca.pem"),
        ],
        None,
    )
    .expect("it starts");
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
