//! The errors of unusable certificates and keys contain nothing that was read from their files.

#![cfg(feature = "tls")]

use std::error::Error;
use std::fs;

use tenure_endpoint::{Login, Tls, TlsError, tls_config};

#[test]
fn errors_of_unusable_files_quote_nothing_from_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("key.pem");
    let secret = "c2VjcmV0IGtleQ";
    let table = [
        String::new(),
        secret.to_owned(),
        format!("-----BEGIN {secret}\n"),
        format!("-----BEGIN PRIVATE KEY----- {secret} -----END PRIVATE KEY-----"),
        format!("-----BEGIN PRIVATE KEY-----\n{secret}\n"),
        format!("-----BEGIN CERTIFICATE-----\n{secret}==\n-----END CERTIFICATE-----\n"),
        format!("-----BEGIN CERTIFICATE-----\n{secret}!\n-----END CERTIFICATE-----\n"),
    ];
    for text in table {
        fs::write(&path, &text).expect("written");
        for refused in [
            tls_config(Some(&path), None),
            tls_config(None, Some((&path, &path))),
        ] {
            let refused = refused.expect_err("the file is unusable");
            let source = refused.source().map(ToString::to_string);
            let shown = format!("{refused} {refused:?} {source:?}");
            assert!(
                !shown.contains(secret) && !shown.contains("99, 50, 86"),
                "{shown}"
            );
        }
    }
}

#[test]
fn the_error_of_an_unusable_authority_names_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ca.pem");
    fs::write(
        &path,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .expect("written");
    let refused = tls_config(Some(&path), None).expect_err("it is no certificate");
    assert!(matches!(refused, TlsError::File { .. }), "{refused:?}");
    assert!(refused.to_string().contains("ca.pem"), "{refused}");
}

#[test]
fn settings_with_an_unreadable_file_say_why_it_is_unreadable() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing");
    let tls = Tls {
        ca: Some(missing.clone()),
        identity: None,
    };
    let refused = tls.client_config().expect_err("there is no file");
    let login = Login::new(None, None, Some(&missing)).expect_err("there is no file");
    for refused in [refused, login] {
        let message = refused.to_string();
        assert!(
            message.contains("missing") && message.contains("No such file"),
            "{message}"
        );
    }
}
