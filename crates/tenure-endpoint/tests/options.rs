//! The options of a store URL: the values that each type accepts, and the errors for unknown options and wrong values.

use std::path::Path;
use std::time::Duration;

use tenure_endpoint::{Known, Options, StoreUrl};

const KNOWN: [Known; 6] = [
    Known::duration("command_timeout"),
    Known::flag("replicas"),
    Known::text("table"),
    Known::path("password_file"),
    Known::file_mode("mode"),
    Known::one_of("layout", &["claims", "unique", "version"]),
];

fn options(query: &str) -> Result<Options, String> {
    let url = StoreUrl::parse(&format!("postgres://h/db?{query}")).expect("the grammar is met");
    url.options(&KNOWN).map_err(|refused| refused.to_string())
}

#[test]
fn options_are_returned_by_type() {
    let all = "command_timeout=1m30s&replicas=true&table=my%20locks&password_file=%2Frun%2Fpw&mode=0640&layout=unique";
    let given = options(all).expect("all are known");
    assert_eq!(given.duration("command_timeout"), Some(Duration::from_secs(90)));
    assert_eq!(given.flag("replicas"), Some(true));
    assert_eq!(given.text("table"), Some("my locks"));
    assert_eq!(given.path("password_file"), Some(Path::new("/run/pw")));
    assert_eq!(given.file_mode("mode"), Some(0o640));
    assert_eq!(given.one_of("layout"), Some("unique"));
}

#[test]
fn a_missing_option_is_none() {
    let none = options("").expect("no option is fine");
    assert_eq!(none.duration("command_timeout"), None);
    assert_eq!(none.flag("replicas"), None);
    assert_eq!(none.text("table"), None);
    assert_eq!(none.path("password_file"), None);
    assert_eq!(none.file_mode("mode"), None);
    assert_eq!(none.one_of("layout"), None);
}

#[test]
fn the_error_for_an_unknown_option_lists_the_known_ones() {
    assert_eq!(
        options("tabel=x").unwrap_err(),
        "the store has no option `tabel`: it knows `command_timeout`, `replicas`, `table`, `password_file`, `mode` \
         and `layout`",
    );
    let url = StoreUrl::parse("redis://h?x=1").expect("the grammar is met");
    assert_eq!(
        url.options(&[]).unwrap_err().to_string(),
        "the store has no option `x`: it knows none"
    );
}

#[test]
fn a_file_mode_is_octal_and_leaves_read_and_write_to_the_owner() {
    for (text, mode) in [("600", 0o600), ("0666", 0o666), ("0750", 0o750)] {
        let given = options(&format!("mode={text}")).expect("it is a file mode");
        assert_eq!(given.file_mode("mode"), Some(mode), "{text}");
    }
    for wrong in [
        "", "66", "00660", "660 ", "+660", "0o660", "0680", "rw", "0460", "0260", "1660", "4755",
    ] {
        let refused = options(&format!("mode={wrong}")).unwrap_err();
        assert!(
            refused.contains("in octal digits, such as `0660`"),
            "{wrong}: {refused}"
        );
    }
}

#[test]
fn the_error_for_a_wrong_value_says_what_fits() {
    let table = [
        (
            "command_timeout=5",
            "the option `command_timeout` is not a duration: `5` has no unit: write `5s` for seconds, or `ms`, `m`, \
             `h`",
        ),
        ("replicas=yes", "the option `replicas` takes `true` or `false`"),
        (
            "layout=rows",
            "the option `layout` takes `claims`, `unique` or `version`",
        ),
        (
            "table=",
            "the option `table` is empty: give it a value, or leave it out",
        ),
        (
            "password_file=",
            "the option `password_file` is empty: give it a value, or leave it out",
        ),
    ];
    for (query, message) in table {
        assert_eq!(options(query).unwrap_err(), message, "{query}");
    }
}

#[test]
#[should_panic(expected = "does not list under this type")]
fn reading_an_option_that_is_not_listed_panics() {
    let given = options("").expect("no option is fine");
    let _ = given.text("layout");
}
