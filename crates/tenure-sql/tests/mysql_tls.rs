//! TLS to a real MariaDB server, with certificate authorities that the test creates.
#![cfg(all(feature = "mysql", feature = "tls"))]

mod mysql;

use mysql::{Case, PASSWORD, USER, config, start};
use tenure_backend::{Effect, Fault};
use tenure_servers::Certificates;
use tenure_sql::server::open;

/// Certificates `server` for the host `localhost`, and `nameless` without names.
fn certificates() -> Certificates {
    let certificates = Certificates::new(USER);
    certificates.sign("server", "server", "subjectAltName=DNS:localhost");
    certificates.sign("nameless", "server", "basicConstraints=CA:FALSE");
    certificates
}

/// A table on a server with this certificate, that accepts encrypted logins only.
fn encrypted(certificates: &Certificates, certificate: &str) -> Case {
    let files = [
        ("ca.pem", "ca.pem"),
        ("cert.pem", &format!("{certificate}.pem")),
        ("key.pem", &format!("{certificate}.key")),
    ]
    .map(|(name, file)| (name, certificates.text(file)));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let server = start(
        &["--ssl-ca=ca.pem", "--ssl-cert=cert.pem", "--ssl-key=key.pem"],
        &files,
    );
    let case = Case::on(server, "version");
    case.ask(&format!("ALTER USER {USER} REQUIRE SSL"));
    case
}

/// Whether the store opens with these options, by this host name; otherwise the fault and the words of the refusal.
async fn try_open(case: &Case, host: &str, options: &str) -> Result<(), (Fault, String)> {
    let port = case.address().port();
    let url = format!(
        "mysql://{USER}:{PASSWORD}@{host}:{port}/{}?layout=version&{options}",
        case.database
    );
    open(config(&url)).await.map(drop).map_err(|error| {
        assert_eq!(error.effect(), Effect::None);
        let source = std::error::Error::source(&error).map(ToString::to_string);
        (error.fault(), format!("{error} ({})", source.unwrap_or_default()))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mode_verifies_what_it_names() {
    let certificates = certificates();
    let file = |name: &str| certificates.file(name);
    let (ca, other) = (file("ca.pem"), file("other-ca.pem"));
    let case = encrypted(&certificates, "server");
    for (host, options) in [
        ("127.0.0.1", "ssl-mode=preferred".to_owned()),
        ("127.0.0.1", "ssl-mode=required".to_owned()),
        ("127.0.0.1", format!("ssl-mode=required&ca={ca}")),
        ("127.0.0.1", format!("ssl-mode=verify_ca&ca={ca}")),
        ("localhost", format!("ssl-mode=verify_ca&ca={ca}")),
        ("localhost", format!("ssl-mode=verify_identity&ca={ca}")),
    ] {
        let opened = try_open(&case, host, &options).await;
        assert_eq!(opened, Ok(()), "{host} {options}");
    }
    for (host, options, fault, words) in [
        (
            "127.0.0.1",
            "ssl-mode=disabled".to_owned(),
            Fault::Denied,
            "with TLS alone",
        ),
        (
            "127.0.0.1",
            format!("ssl-mode=required&ca={other}"),
            Fault::Store,
            "no TLS can be spoken",
        ),
        (
            "127.0.0.1",
            format!("ssl-mode=verify_ca&ca={other}"),
            Fault::Store,
            "no TLS can be spoken",
        ),
        (
            "localhost",
            format!("ssl-mode=verify_identity&ca={other}"),
            Fault::Store,
            "no TLS can be spoken",
        ),
        (
            "127.0.0.1",
            format!("ssl-mode=verify_identity&ca={ca}"),
            Fault::Store,
            "for which host",
        ),
        (
            "localhost",
            "ssl-mode=verify_identity".to_owned(),
            Fault::Store,
            "no TLS can be spoken",
        ),
        (
            "localhost",
            "ssl-mode=verify_ca&ca=/nowhere".to_owned(),
            Fault::Invalid,
            "/nowhere has no certificate or key that can be read (PEM): No such file",
        ),
    ] {
        let refused = try_open(&case, host, &options).await;
        let text = format!("{host} {options}: {refused:?}");
        assert!(
            matches!(&refused, Err((is, said)) if *is == fault && said.contains(words)),
            "{text}"
        );
    }
    // A certificate of the client's own.
    case.ask(&format!("ALTER USER {USER} REQUIRE X509"));
    let (cert, key) = (file("nameless.pem"), file("nameless.key"));
    let own = format!("ssl-mode=verify_identity&ca={ca}&cert={cert}&key={key}");
    assert_eq!(try_open(&case, "localhost", &own).await, Ok(()));
    let without = try_open(&case, "localhost", &format!("ssl-mode=verify_identity&ca={ca}")).await;
    assert!(matches!(without, Err((Fault::Denied, _))), "{without:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_without_names_serves_if_nothing_is_verified() {
    let certificates = certificates();
    let ca = certificates.file("ca.pem");
    let case = encrypted(&certificates, "nameless");
    assert_eq!(try_open(&case, "127.0.0.1", "ssl-mode=required").await, Ok(()));
    let refused = try_open(&case, "127.0.0.1", &format!("ssl-mode=verify_ca&ca={ca}")).await;
    assert!(
        matches!(&refused, Err((Fault::Store, words)) if words.contains("for which host")),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_used_unless_it_is_required() {
    let case = Case::new("version");
    assert_eq!(try_open(&case, "127.0.0.1", "ssl-mode=preferred").await, Ok(()));
    let refused = try_open(&case, "127.0.0.1", "ssl-mode=required").await;
    assert!(
        matches!(&refused, Err((Fault::Store, words)) if words.contains("does not offer TLS")),
        "{refused:?}"
    );
}
