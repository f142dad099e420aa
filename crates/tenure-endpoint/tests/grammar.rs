//! The grammar of store URLs, as tables of URLs and their parts.

use tenure_endpoint::{Host, InvalidUrl, StoreUrl};

fn parse(text: &str) -> StoreUrl {
    StoreUrl::parse(text).unwrap_or_else(|refused| panic!("{text}: {refused}"))
}

fn refused(text: &str) -> InvalidUrl {
    StoreUrl::parse(text)
        .err()
        .unwrap_or_else(|| panic!("{text} is accepted"))
}

#[test]
fn the_text_after_the_scheme_of_a_file_is_its_path() {
    let table = [
        ("sqlite:", ""),
        ("sqlite:locks.db", "locks.db"),
        ("sqlite:./a/b.db", "./a/b.db"),
        ("sqlite:/var/lib/locks.db", "/var/lib/locks.db"),
        ("sqlite:///var/lib/locks.db", "/var/lib/locks.db"),
        ("SQLite:Locks.DB", "Locks.DB"),
        ("sqlite:my%20locks.db", "my locks.db"),
        ("sqlite:my locks.db", "my locks.db"),
        ("sqlite:what%3F.db", "what?.db"),
        ("sqlite:100%25.db", "100%.db"),
        ("sqlite:schlüssel%C3%BC.db", "schlüsselü.db"),
        ("sqlite:a+b#c@d.db", "a+b#c@d.db"),
        ("sqlite:C:/locks.db", "C:/locks.db"),
        ("sqlite:locks.db?layout=claims", "locks.db"),
        ("sqlite:?layout=claims", ""),
        ("sqlite:locks.db?", "locks.db"),
        ("memory:", ""),
    ];
    for (text, path) in table {
        let url = parse(text);
        assert_eq!(url.path(), path, "{text}");
        assert!(
            url.hosts().is_empty() && url.user().is_none() && url.password().is_none(),
            "{text}"
        );
    }
}

#[test]
fn hosts_keep_their_order_and_ports() {
    let table = [
        ("redis://cache", vec![("cache", None)]),
        ("redis://cache:6380/0", vec![("cache", Some(6380))]),
        (
            "redlock://b:1,a:2,c",
            vec![("b", Some(1)), ("a", Some(2)), ("c", None)],
        ),
        (
            "etcd://[::1]:2379,[fd00::2]",
            vec![("::1", Some(2379)), ("fd00::2", None)],
        ),
        (
            "zookeeper://10.0.0.1,10.0.0.2:2182/base",
            vec![("10.0.0.1", None), ("10.0.0.2", Some(2182))],
        ),
        (
            "redis+sentinel://h1,h2/mymaster/0",
            vec![("h1", None), ("h2", None)],
        ),
        (
            "postgres://%2Frun%2Fpostgresql/db",
            vec![("/run/postgresql", None)],
        ),
        ("mysql://ada:pw@h:3306?ssl-mode=REQUIRED", vec![("h", Some(3306))]),
    ];
    for (text, want) in table {
        let url = parse(text);
        let hosts: Vec<_> = url
            .hosts()
            .iter()
            .map(|host| (host.name(), host.port()))
            .collect();
        assert_eq!(hosts, want, "{text}");
    }
}

#[test]
fn a_host_is_shown_as_it_was_written() {
    let url = parse("etcd://h,h:1,[::1],[0:0::1]:2");
    let shown: Vec<_> = url.hosts().iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["h", "h:1", "[::1]", "[::1]:2"]);
    let with_ports = url.hosts().iter().map(|host| host.clone().with_default_port(7));
    let shown: Vec<_> = with_ports.map(|host| host.to_string()).collect();
    assert_eq!(shown, ["h:7", "h:1", "[::1]:7", "[::1]:2"]);
    assert_eq!(Host::new("::1", 2), url.hosts()[3]);
}

#[test]
fn a_url_of_several_hosts_has_one_url_for_each() {
    let url = parse("redlock://ada:s3cr3t@a,[0:0::1]:2,%62/4?layout=plain&odd=s3cr3t");
    let members = url.members("redis");
    let shown: Vec<_> = members.iter().map(ToString::to_string).collect();
    let want = ["a", "[0:0::1]:2", "%62"].map(|host| format!("redis://ada@{host}/4?layout=plain&odd=***"));
    assert_eq!(shown, want);
    for (member, host) in members.iter().zip(url.hosts()) {
        assert_eq!(
            (member.scheme(), member.hosts()),
            ("redis", std::slice::from_ref(host))
        );
        assert_eq!((member.path(), member.user()), ("4", Some("ada")));
        assert_eq!(member.password().map(|secret| secret.expose()), Some("s3cr3t"));
    }
    let again = members[1].members("rediss");
    assert_eq!(
        again[0].to_string(),
        "rediss://ada@[0:0::1]:2/4?layout=plain&odd=***"
    );
    assert!(parse("sqlite:locks.db").members("redis").is_empty());
}

#[test]
fn a_path_begins_after_the_slash_that_ends_the_hosts() {
    let table = [
        ("redis://h", ""),
        ("redis://h/", ""),
        ("redis://h/0", "0"),
        ("redis+sentinel://h/master/3", "master/3"),
        ("etcd://h//prefix/", "/prefix/"),
        ("zookeeper://h/a%2Fb%20c", "a/b c"),
        ("redis://h?layout=plain", ""),
    ];
    for (text, path) in table {
        assert_eq!(parse(text).path(), path, "{text}");
    }
}

#[test]
fn user_and_password_are_percent_decoded() {
    let table = [
        ("redis://h", None, None),
        ("redis://@h", None, None),
        ("redis://:@h", None, None),
        ("redis://ada@h", Some("ada"), None),
        ("redis://ada:@h", Some("ada"), None),
        ("redis://ada:pw@h", Some("ada"), Some("pw")),
        ("redis://:pw@h", None, Some("pw")),
        (
            "redis://a%40b:p%3Aw%40%2F%3F%23%25@h",
            Some("a@b"),
            Some("p:w@/?#%"),
        ),
        ("redis://ada:p:w@h", Some("ada"), Some("p:w")),
        ("redis://ada:p+w@h", Some("ada"), Some("p+w")),
    ];
    for (text, user, password) in table {
        let url = parse(text);
        assert_eq!(url.user(), user, "{text}");
        assert_eq!(url.password().map(|secret| secret.expose()), password, "{text}");
    }
}

#[test]
fn errors_name_the_wrong_part_and_what_to_write() {
    let table = [
        ("", "empty: write one such as `sqlite:` or"),
        ("locks.db", "no scheme: begin with one such as `sqlite:`"),
        ("://", "no scheme: begin with one such as `sqlite:`"),
        ("redis:cache", "after `redis:`: write `redis://HOST`"),
        ("redis:/cache", "after `redis:`: write `redis://HOST`"),
        ("redis://", "names no host: write `redis://HOST`"),
        ("redis:///0", "names no host: write `redis://HOST`"),
        ("redis://ada:pw@/0", "names no host: write `redis://HOST`"),
        ("sqlite://locks.db", "`sqlite:` has no host: write `sqlite:PATH`"),
        ("redis://a,,c", "host 2 is empty or holds a space"),
        ("redis://a,b:x", "host 2 has no valid port: after `:` write"),
        (
            "redlock://a:1,b,a:1",
            "host 3 is host 1 again: name each server once",
        ),
        ("redis://::1", "host 1 is not a valid address"),
        ("sqlite:x?layout", "option 1 is not `name=value`"),
        ("sqlite:x?a=1&", "option 2 is not `name=value`"),
        ("sqlite:x?a=1&b=2&a=1", "the option `a` is given twice: keep one"),
        ("sqlite:%zz", "the path is not percent-encoded"),
        ("redis://h/0#x", "no fragment; write it `%23`"),
    ];
    for (text, words) in table {
        let message = refused(text).to_string();
        assert!(message.contains(words), "{text}: {message}");
    }
}

/// In a quorum, a server that is named twice would have two votes.
#[test]
fn a_server_is_named_once_however_it_is_written() {
    for (text, position, earlier) in [
        ("redlock://a,a:6379,b", 2, 1),
        ("redlocks://a:6379,b,a", 3, 1),
        ("redlock://Redis1,redis1,b", 2, 1),
        ("redlock://b,a,A:6379", 3, 2),
        ("redlock://[::1],[0:0::1]:6379", 2, 1),
        ("redis+sentinel://a,a:26379/m", 2, 1),
        ("rediss+cluster://a,a:6379", 2, 1),
        ("postgresql://a,a:5432/db", 2, 1),
        ("mariadb://a,a:3306/db", 2, 1),
        ("etcds://a,a:2379", 2, 1),
        ("zookeeper://a,a:2181", 2, 1),
        // No store has this scheme.
        ("other://a,A", 2, 1),
    ] {
        assert_eq!(
            refused(text),
            InvalidUrl::SameHost { position, earlier },
            "{text}"
        );
    }
    for text in [
        "redlock://a,a:6380,a:26379",
        "redis+sentinel://a,a:6379/m",
        "other://a,a:1",
    ] {
        parse(text);
    }
}

#[test]
fn a_port_is_a_number_from_1_to_65535() {
    for port in ["", "0", "65536", "+1", "-1", "1a", " 1", "999999999999999999999"] {
        for host in [format!("h:{port}"), format!("[::1]:{port}")] {
            assert_eq!(
                refused(&format!("redis://{host}")),
                InvalidUrl::Port { position: 1 },
                "{host}"
            );
        }
    }
    for port in ["1", "65535", "0080"] {
        parse(&format!("redis://h:{port}"));
    }
}

#[test]
fn a_socket_is_refused_with_an_explanation() {
    for text in [
        "unix:///run/redis.sock",
        "unix:/run/redis.sock",
        "redis+unix:///run/redis.sock?db=1",
        "redis-socket:///run/redis.sock",
        "redis+socket:///run/redis.sock",
    ] {
        let message = refused(text).to_string();
        assert!(
            message.contains("sockets are not supported: write `redis://HOST:PORT`"),
            "{message}"
        );
    }
}
