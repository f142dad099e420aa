//! Blanks what is not code, so that rules about code can search text.
//! Not here: parsing; one pass over the bytes is enough to tell code from comments and literals.

/// Replaces comments, strings and characters by spaces; line breaks stay where they are.
pub(crate) fn scrub(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        match blank_at(bytes, at) {
            0 => {
                let next = bytes[at];
                code.push(if next.is_ascii() { char::from(next) } else { ' ' });
                at += 1;
            }
            len => {
                let blank = &bytes[at..at + len];
                code.extend(blank.iter().map(|byte| if *byte == b'\n' { '\n' } else { ' ' }));
                at += len;
            }
        }
    }
    code
}

/// How many bytes from `at` are a comment or a literal; 0 in code.
fn blank_at(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let starts_word = at == 0 || !is_word(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => string(rest),
        [b'\'', ..] => character(rest),
        [b'r', b'"' | b'#', ..] if starts_word => raw_string(rest, 1),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if starts_word => raw_string(rest, 2),
        _ => 0,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Block comments nest.
fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `r"…"` and `r#"…"#`; `r#name` is code.
fn raw_string(rest: &[u8], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(prefix + hashes) != Some(&b'"') {
        return 0;
    }
    let end = [&b"\""[..], &vec![b'#'; hashes]].concat();
    let body = prefix + hashes + 1;
    let len = rest[body..].windows(end.len()).position(|window| window == end);
    len.map_or(rest.len(), |len| body + len + end.len())
}

/// `'x'`, `'\n'`, `'ü'`; a lifetime, `'a`, is code.
fn character(rest: &[u8]) -> usize {
    match rest.get(1) {
        Some(b'\\') => rest
            .iter()
            .skip(3)
            .position(|byte| *byte == b'\'')
            .map_or(rest.len(), |at| at + 4),
        Some(first) => {
            let width = match first {
                0x00..=0x7f => 1,
                0x80..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xff => 4,
            };
            if rest.get(1 + width) == Some(&b'\'') {
                width + 2
            } else {
                0
            }
        }
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left_and_every_byte_keeps_its_place() {
        let table = [
            ("a // b\nc", "a c"),
            ("a /* b /* c\n */ d */ e", "a e"),
            (r#"a("b\"//c", d)"#, "a( , d)"),
            (r##"a(r#"b"c"#, d)"##, "a( , d)"),
            ("br\"b\" c\"d\"", "c"),
            ("r#fn for \"x\"", "r#fn for"),
            ("'a' 'b: 'ü' '\\'' '\\u{7f}' &'static str", "'b: &'static str"),
            ("let 'x'; \"open", "let ;"),
            ("/* open", ""),
        ];
        for (text, left) in table {
            let code = scrub(text);
            assert_eq!(
                code.split_whitespace().collect::<Vec<_>>().join(" "),
                left,
                "{text}"
            );
            assert_eq!(code.len(), text.len(), "{text}");
            assert_eq!(code.find('\n'), text.find('\n'), "{text}");
        }
    }
}
