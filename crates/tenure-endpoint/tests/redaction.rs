//! No output shows a password: neither a parsed URL nor the error of a refused one.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;

use tenure_endpoint::{Known, StoreUrl};

const PASSWORD: &str = "s3cr3t";

/// Returns everything that the crate can print about a URL: the URL and its parts, or the error and its sources.
fn everything_printed_about(text: &str) -> String {
    let mut printed = String::new();
    match StoreUrl::parse(text) {
        Ok(url) => {
            printed += &format!(
                "{url} {url:?} {url:#?} {} {:?} {}",
                url.scheme(),
                url.user(),
                url.path()
            );
            printed += &format!("{:?} {:#?} {:?}", url.hosts(), url.password(), url.clone());
            for known in [&[][..], &[Known::text("layout")], &[Known::duration("layout")]] {
                match url.options(known) {
                    Ok(options) => printed += &format!("{options:?}"),
                    Err(refused) => printed += &chain(&refused),
                }
            }
        }
        Err(refused) => printed += &chain(&refused),
    }
    printed
}

fn chain(error: &dyn Error) -> String {
    format!(
        "{error} {error:?} {error:#?} {}",
        error.source().map(chain).unwrap_or_default()
    )
}

fn assert_hidden(text: &str) {
    let printed = everything_printed_about(text);
    assert!(!printed.contains(PASSWORD), "{text:?} prints {printed}");
}

/// Parses a URL, and checks that it is shown as `shown`.
fn assert_shown(text: &str, shown: &str) -> StoreUrl {
    let url = StoreUrl::parse(text).unwrap_or_else(|refused| panic!("{text}: {refused}"));
    assert_eq!(url.to_string(), shown);
    assert_eq!(format!("{url:?}"), format!("StoreUrl({shown:?})"));
    url
}

#[test]
fn a_url_is_shown_without_its_password() {
    let table = [
        ("redis://ada:s3cr3t@h:1/0", "redis://ada@h:1/0"),
        ("redis://:s3cr3t@h/0", "redis://h/0"),
        (
            "REDISS://a%40b:s3cr3t@h1,[::1]:2/0?layout=plain",
            "rediss://a%40b@h1,[::1]:2/0?layout=plain",
        ),
        (
            "redis://ada:s3%20cr3t@h?password_file=%2Frun%2Fpw",
            "redis://ada@h?password_file=%2Frun%2Fpw",
        ),
        ("redis://ada:x:s3cr3t:y@h", "redis://ada@h"),
        (
            "sqlite:/tmp/a b%20c.db?layout=claims&mode=0660",
            "sqlite:/tmp/a b%20c.db?layout=claims&mode=0660",
        ),
        ("sqlite:///tmp/x", "sqlite:///tmp/x"),
    ];
    for (text, shown) in table {
        let url = assert_shown(text, shown);
        let again = StoreUrl::parse(shown).unwrap_or_else(|refused| panic!("{shown}: {refused}"));
        assert_eq!((again.path(), again.hosts()), (url.path(), url.hosts()));
        assert_eq!(again.user(), url.user());
        assert_hidden(text);
    }
}

/// The user name may be a password whose colon was forgotten.
#[test]
fn a_user_without_a_password_is_not_shown() {
    for (text, shown) in [
        ("redis://s3cr3t@h:1/0", "redis://***@h:1/0"),
        ("redis://s3cr3t:@h", "redis://***@h"),
        (
            "rediss://s%33cr3t@h1,[::1]:2/0?layout=plain",
            "rediss://***@h1,[::1]:2/0?layout=plain",
        ),
        ("other+store://s3cr3t@h", "other+store://***@h"),
        // The password is in a file, so the user name is shown.
        (
            "redis://ada@h?password_file=%2Fpw",
            "redis://ada@h?password_file=%2Fpw",
        ),
        (
            "redis://ada@h?layout=x&password_file=pw",
            "redis://ada@h?layout=x&password_file=pw",
        ),
    ] {
        assert_shown(text, shown);
    }
    for c in (0..=0xff).filter_map(char::from_u32) {
        for user in [format!("{c}s3cr3t"), format!("s3cr3t{c}")] {
            for text in [format!("redis://{user}@host:1/0"), format!("redis://{user}@")] {
                let printed = match StoreUrl::parse(&text) {
                    Ok(url) => format!("{url} {url:?}"),
                    Err(refused) => chain(&refused),
                };
                assert!(!printed.contains(PASSWORD), "{text:?} prints {printed}");
            }
        }
    }
}

#[test]
fn a_password_with_a_raw_character_is_never_shown() {
    let templates = [
        "redis://ada:PW@host:6379/0?layout=plain",
        "redis://:PW@host",
        "redis://ada:PW@host:bad/%zz?x",
        "redlock://ada:PW@h1:1,h2:2,[::1]:3",
        "redis://ada:PW@",
        "redis:ada:PW@host",
        "ada:PW@host:1/0",
        ":PW@host",
        "://ada:PW@host",
        "sqlite://ada:PW@host",
    ];
    for c in (0..=0xff).filter_map(char::from_u32) {
        // A password such as `1/s3cr3t` or `1,s3cr3t` looks like a port with a path or another host. Only the `@` after
        // it shows that it is a password.
        for start in ["", "x", "1"] {
            for password in [format!("{start}{c}s3cr3t"), format!("{start}s3cr3t{c}")] {
                for template in templates {
                    assert_hidden(&template.replace("PW", &password));
                }
            }
        }
    }
}

#[test]
fn a_truncated_url_shows_no_password() {
    let whole = "redis+sentinel://ada:s3cr3t@h1:1,h2:2/master/0?layout=plain&max_lease=5m";
    for end in 0..=whole.len() {
        assert_hidden(&whole[..end]);
    }
}

#[test]
fn refusing_a_credential_option_does_not_show_its_value() {
    for name in [
        "password",
        "PASSWORD",
        "passwd",
        "pass",
        "pwd",
        "sslpassword",
        "secret",
        "auth_token",
        "auth",
        "AUTH",
        "credentials",
        "cred",
        "apikey",
        "api_key",
        "api-key",
    ] {
        for start in ["redis://h", "sqlite:x"] {
            let text = format!("{start}?{name}=s3cr3t");
            let refused = StoreUrl::parse(&text).expect_err("a credential in the query is refused");
            assert!(refused.to_string().contains(name), "{refused}");
            assert_hidden(&text);
        }
    }
}

#[test]
fn an_error_about_an_option_does_not_show_its_value() {
    let known = [
        Known::duration("d"),
        Known::flag("f"),
        Known::one_of("o", &["a", "b"]),
    ];
    for name in ["d", "f", "o", "unknown"] {
        let url = StoreUrl::parse(&format!("redis://h?{name}=s3cr3t")).expect("the grammar is met");
        let refused = url.options(&known).expect_err("the value does not fit");
        assert!(!chain(&refused).contains(PASSWORD), "{refused}");
    }
}

#[test]
fn the_value_of_an_option_that_no_store_has_is_not_shown() {
    for (text, shown) in [
        ("redis://h?pw=s3cr3t", "redis://h?pw=***"),
        (
            "redis://h/0?layout=x&pin=s3cr3t=?/&spin=false&sslkey=s3cr3t",
            "redis://h/0?layout=x&pin=***&spin=false&sslkey=***",
        ),
        // Names of options are case-sensitive, so `CERT` is unknown.
        ("redis://h?CERT=s3cr3t&cert=c", "redis://h?CERT=***&cert=c"),
        ("redis://h?p=", "redis://h?p=***"),
        (
            "redis+sentinel://h/m?sentinel_user=ada&sentinel_password_file=pw&sentinel_pin=s3cr3t",
            "redis+sentinel://h/m?sentinel_user=ada&sentinel_password_file=pw&sentinel_pin=***",
        ),
        (
            "sqlite:x?pw=s3cr3t&layout=claims",
            "sqlite:x?pw=***&layout=claims",
        ),
        ("sqlite:///x?pw=s3cr3t?s3cr3t", "sqlite:///x?pw=***"),
        ("memory:?pw=s3cr3t", "memory:?pw=***"),
        ("redis://h?", "redis://h?"),
    ] {
        assert_shown(text, shown);
        assert!(StoreUrl::parse(shown).is_ok(), "{shown}");
        assert_hidden(text);
    }
}

/// Finds the options of all stores by a search of their sources for `Known::text("name")` and the like.
#[test]
fn the_value_of_every_option_of_a_store_is_shown() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    for store in std::fs::read_dir(&crates).expect("the folder of the crates") {
        let store = store.expect("it can be read").path();
        // Skip the rest of `tenure-endpoint`: its doc comments name options that no store has.
        match store.ends_with("tenure-endpoint") {
            true => options_in_file(&store.join("src/tls_settings.rs"), &mut found),
            false => options_in(&store.join("src"), &mut found),
        }
    }
    for common in [
        "layout",
        "spin",
        "password_file",
        "key",
        "connect_timeout",
        "mode",
    ] {
        assert!(found.contains(common), "{common} is missing in {found:?}");
    }
    for name in found {
        let text = format!("redis://h?{name}=value");
        let url = StoreUrl::parse(&text).unwrap_or_else(|refused| panic!("{text}: {refused}"));
        assert_eq!(url.to_string(), text, "add `{name}` to SHOWN in src/redaction.rs");
    }
}

fn options_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            options_in(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            options_in_file(&path, found);
        }
    }
}

fn options_in_file(path: &Path, found: &mut BTreeSet<String>) {
    let text = std::fs::read_to_string(path).expect("text");
    let names = text.split("Known::").skip(1).filter_map(|after| {
        let (kind, after) = after.split_once("(")?;
        let kinds = ["duration", "limit", "flag", "text", "path", "file_mode", "one_of"];
        let name = after.trim_start().strip_prefix('"')?.split('"').next()?;
        kinds.contains(&kind).then(|| name.to_owned())
    });
    found.extend(names);
}
