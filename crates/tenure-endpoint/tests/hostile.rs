//! Malformed and huge text is refused with an error, and no piece of a URL makes the parser panic.

use std::time::{Duration, Instant};

use tenure_endpoint::{InvalidUrl, StoreUrl};

#[test]
fn text_that_is_not_a_url_is_refused() {
    let table = [
        ":",
        "//",
        "?",
        "@",
        "%",
        "redis://@",
        "redis://:@",
        "redis://,",
        "redis://h,",
        "redis://[",
        "redis://[]",
        "redis://[::1",
        "redis://[::1]x",
        "redis://[1.2.3.4]",
        "redis://h]",
        "redis://a b",
        "redis://a%20b",
        "redis://h/%",
        "redis://h/%2",
        "redis://%u@h",
        "redis://h/%00",
        "redis://h%00",
        "redis://h/%ff",
        "redis://u:%ff@h",
        "redis://h?a=%F",
        "redis://h?=1",
        "redis://h?&",
        "redis://h?a b=1",
        "redis://h?ä=1",
        "sqlite:%00",
        "1redis://h",
        "ré://h",
        " redis://h",
        "😀://h",
        "😀",
    ];
    for text in table {
        assert!(StoreUrl::parse(text).is_err(), "{text:?} is accepted");
    }
}

#[test]
fn a_url_of_a_megabyte_is_refused_at_once() {
    let limit = 8 * 1024;
    let began = Instant::now();
    for piece in ["a", "@", ":", ",", "/", "?a=1&", "%41", "[", "é"] {
        for start in ["", "sqlite:", "redis://", "redis://h?"] {
            let text = format!("{start}{}", piece.repeat(1 << 20));
            assert_eq!(
                StoreUrl::parse(&text).unwrap_err(),
                InvalidUrl::TooLong { limit },
                "{start}{piece}…"
            );
        }
    }
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_control_character_is_refused_and_never_repeated() {
    for c in (0..=0x9f).filter_map(char::from_u32).filter(|c| c.is_control()) {
        for text in [
            format!("sqlite:{c}"),
            format!("redis://h/{c}"),
            format!("r{c}://h"),
            format!("x:?{c}=1"),
        ] {
            let refused = StoreUrl::parse(&text).expect_err("a control character is refused");
            assert!(!refused.to_string().contains(char::is_control), "{text:?}");
        }
    }
}

#[test]
fn parsing_any_piece_of_a_url_does_not_panic() {
    let whole = "redis+cluster://ad%61:p%C3%BC@h1:1,[::1]:2,ü/päth%2F?a=1&b=%20";
    let bounds: Vec<_> = whole
        .char_indices()
        .map(|(at, _)| at)
        .chain([whole.len()])
        .collect();
    for (index, &from) in bounds.iter().enumerate() {
        for &to in &bounds[index..] {
            let _ = StoreUrl::parse(&whole[from..to]);
        }
    }
}
