//! `lib.rs` and `mod.rs` declare modules and re-export names, and do nothing else.
//! Not here: what the modules are called (`names`).

use super::finding::Finding;
use super::source::Source;

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let is_table_of_contents = source
        .path
        .file_name()
        .is_some_and(|name| name == "lib.rs" || name == "mod.rs");
    if !is_table_of_contents {
        return Vec::new();
    }
    let others = items(&source.code)
        .into_iter()
        .filter(|(_, item)| !is_declaration(item));
    let report = |(line, item): (usize, String)| {
        let first: String = item.split_whitespace().take(4).collect::<Vec<_>>().join(" ");
        source.finding(
            line,
            format!("`{first} …` stands in a file that only declares"),
            "move it to its own file",
        )
    };
    others.map(report).collect()
}

/// `mod name;`, `use …;`, `extern crate …;`, each perhaps `pub`.
fn is_declaration(item: &str) -> bool {
    let item = match item.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')').map_or(rest, |(_, rest)| rest),
        Some(rest) => rest,
        None => item,
    };
    let item = item.trim_start();
    item.starts_with("use ")
        || item.starts_with("extern crate ")
        || (item.starts_with("mod ") && item.ends_with(';'))
}

/// Splits code into top-level items without their attributes, each with the line it begins on.
fn items(code: &str) -> Vec<(usize, String)> {
    let mut items = Vec::new();
    let mut item = String::new();
    let (mut line, mut began, mut depth) = (1, 1, 0usize);
    let mut chars = code.chars().peekable();
    while let Some(c) = chars.next() {
        let starts_attribute = item.is_empty() && c == '#';
        if item.is_empty() && !c.is_whitespace() {
            began = line;
        }
        line += usize::from(c == '\n');
        if starts_attribute {
            line += skip_attribute(&mut chars);
            continue;
        }
        if !item.is_empty() || !c.is_whitespace() {
            item.push(c);
        }
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let ends = c == ';' || (c == '}' && !is_declaration(&item));
        if depth == 0 && ends {
            items.push((began, std::mem::take(&mut item)));
        }
    }
    if !item.trim().is_empty() {
        items.push((began, item));
    }
    items
}

/// Skips `![…]` or `[…]` after a `#`, and counts the line breaks in it.
fn skip_attribute(chars: &mut impl Iterator<Item = char>) -> usize {
    let (mut depth, mut lines) = (0usize, 0);
    for c in chars {
        match c {
            '[' => depth += 1,
            ']' if depth == 1 => break,
            ']' => depth -= 1,
            '\n' => lines += 1,
            _ => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::finding::testing::{NOWHERE, lines};

    fn lines_of(path: &str, text: &str) -> Vec<usize> {
        lines(check(&Source::new(path, text)))
    }

    #[test]
    fn declarations_and_re_exports_are_allowed() {
        let text = "//! What: fn struct impl {}\n#![cfg_attr(docsrs, feature(doc_cfg))]\n\nmod a;\n\
            #[cfg(any(\n    unix,\n    windows,\n))]\npub mod b;\npub(crate) mod c;\nextern crate alloc;\n\
            pub use a::{A, b::{B, C}};\n/// A macro.\npub use d::some_macro;\npub(in crate::x) use e::*;\n";
        assert_eq!(lines_of("src/lib.rs", text), NOWHERE);
    }

    #[test]
    fn anything_else_is_found_on_its_line() {
        for item in [
            "fn f() { g(); }",
            "pub fn f() {}",
            "pub(crate) async fn f() {}",
            "impl A { fn f() {} }",
            "pub struct A;",
            "struct A { a: u8 }",
            "enum A { B }",
            "const A: [u8; 2] = [1, 2];",
            "pub static A: u8 = 1;",
            "type A = u8;",
            "trait A {}",
            "macro_rules! a { () => {}; }",
            "mod tests { use super::*; }",
            "thread_local! { static A: u8 = 1; }",
        ] {
            let text = format!("//! x\n#[allow(x)]\nmod a;\n#[cfg(test)]\n{item}\nuse b;\n{item}\n");
            assert_eq!(lines_of("src/lib.rs", &text), [5, 7], "{item}");
            assert_eq!(lines_of("src/engine/mod.rs", &text), [5, 7], "{item}");
            assert_eq!(lines_of("src/engine.rs", &text), NOWHERE, "{item}");
        }
    }
}
