//! The password file: its first line, its permissions, and the errors of unusable files.

use std::error::Error;
use std::fs;
use std::path::Path;

use tenure_endpoint::{PasswordFileError, StoreUrl, read_password_file};

#[test]
fn the_first_line_without_its_line_end_is_the_password() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("password");
    let table = [
        ("s3cr3t", "s3cr3t"),
        ("s3cr3t\n", "s3cr3t"),
        ("s3cr3t\r\nmore", "s3cr3t"),
        ("s3cr3t\n\nmore\n", "s3cr3t"),
        (" s3 cr3t \n", " s3 cr3t "),
        ("pä\n", "pä"),
    ];
    for (text, password) in table {
        fs::write(&path, text).expect("written");
        let file = read_password_file(&path).unwrap_or_else(|refused| panic!("{text:?}: {refused}"));
        assert_eq!(file.password.expose(), password, "{text:?}");
        assert!(!format!("{file:?}").contains(password));
    }
}

#[test]
fn the_error_for_a_file_without_a_password_names_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("password");
    assert!(matches!(
        read_password_file(&path),
        Err(PasswordFileError::Read { .. })
    ));
    assert!(matches!(
        read_password_file(folder.path()),
        Err(PasswordFileError::Read { .. })
    ));

    let large = b"s3cr3t".repeat(100_000);
    for content in [&b""[..], b"\n", b"\r\ns3cr3t", b"s3cr3t\xff", &large] {
        fs::write(&path, content).expect("written");
        let refused = read_password_file(&path).expect_err("the file has no password");
        let message = format!("{refused} {refused:?} {:?}", refused.source());
        assert!(
            message.contains("password") && !message.contains("s3cr3t"),
            "{message}"
        );
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_everyone_can_read_is_reported_and_still_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("password");
    fs::write(&path, "s3cr3t\n").expect("written");
    for (mode, readable_by_all) in [(0o600, false), (0o640, false), (0o644, true), (0o604, true)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode set");
        let file = read_password_file(&path).expect("it is read");
        assert_eq!(file.readable_by_all, readable_by_all, "{mode:o}");
        assert_eq!(file.password.expose(), "s3cr3t");
    }
}

#[test]
fn a_url_names_its_password_file() {
    for (text, file) in [
        (
            "redis://ada@h?layout=x&password_file=%2Frun%2Fp%20w",
            Some("/run/p w"),
        ),
        ("rediss://h?password_file=pw", Some("pw")),
        ("redis://ada:x@h?ca=pw", None),
        ("redis://h?password_file=", None),
    ] {
        let url = StoreUrl::parse(text).unwrap_or_else(|refused| panic!("{text}: {refused}"));
        assert_eq!(url.password_file(), file.map(Path::new), "{text}");
    }
}
