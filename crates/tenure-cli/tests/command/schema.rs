//! `tenure schema`: the tables of an SQL store.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::fixture::Fixture;

#[test]
fn schema_prints_statements_and_touches_no_store() {
    let fixture = Fixture::new();
    let done = fixture.call(&["schema"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    assert!(done.stdout.contains("CREATE TABLE claim ("), "{done:?}");
    assert!(done.stdout.ends_with(";\n"), "{done:?}");
    let json = &fixture.call(&["--json", "schema"]).objects()[0];
    assert_eq!(
        (&json["store"], &json["applied"]),
        (&"sqlite".into(), &false.into())
    );
    assert_eq!(json["statements"], done.stdout);
    assert!(!fixture.path("locks.db").exists());
}

#[test]
fn applying_a_schema_creates_the_tables_repeatedly() {
    let fixture = Fixture::new();
    for _ in 0..2 {
        let done = fixture.call(&["schema", "--apply"]);
        assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:?}");
        assert!(done.stderr.contains("locks.db"), "{done:?}");
        let mode = fs::metadata(fixture.path("locks.db"))
            .expect("it is made")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let json = &fixture.call(&["--json", "-q", "schema", "--apply"]).objects()[0];
    assert_eq!(json["applied"], true);
    assert_eq!(fixture.call(&["run", "k", "--", "true"]).code, 0);
}

#[test]
fn schema_refuses_a_store_without_tables() {
    let fixture = Fixture::new();
    for url in ["memory:", "redis://u:s3cr3t@127.0.0.1:1", "gopher://x"] {
        for args in [
            &["--url", url, "schema"][..],
            &["--url", url, "schema", "--apply"],
        ] {
            let done = fixture.call_at_home(args, &[]);
            assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
            assert!(
                done.stderr.contains("  = why: ") || done.stderr.contains("memory"),
                "{done:?}"
            );
            assert!(!done.stderr.contains("s3cr3t"), "{done:?}");
        }
    }
}
