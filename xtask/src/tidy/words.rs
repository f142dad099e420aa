//! Finds words that make prose hard to read, in comments and documents.

use std::path::Path;

/// Files that are not checked: fixed texts, and this file, whose tests contain the words.
const EXEMPT: [&str; 3] = ["CHANGELOG", "LICENSE", "xtask/src/tidy/words.rs"];

/// Words and phrases that are never allowed, in lower case.
const FORBIDDEN: [&str; 9] = [
    "whoever", "whom", "anew", "in vain", "but for", "lest", "is told", "is said", "is heard",
];

/// Phrases that are allowed only with `that` in the rest of the sentence.
const NEED_THAT: [&str; 2] = ["so many", "so long"];

struct Word {
    line: usize,
    text: String,
    ends_sentence: bool,
}

/// Finds forbidden words in a file, and `so many` or `so long` without `that`. `path` starts at the workspace's root.
pub(crate) fn check(path: &str, text: &str) -> Vec<String> {
    let is_exempt = EXEMPT.iter().any(|name| path.contains(name));
    if is_exempt {
        return Vec::new();
    }
    let words = words(&prose(path, text));
    let mut found = Vec::new();
    for at in 0..words.len() {
        let is_here = |phrase: &&&str| {
            let parts: Vec<&str> = phrase.split(' ').collect();
            let here = words.get(at..at + parts.len()).unwrap_or_default();
            let is_broken = here.iter().rev().skip(1).any(|word| word.ends_sentence);
            !is_broken && here.iter().map(|word| &*word.text).eq(parts)
        };
        let forbidden = FORBIDDEN.iter().find(is_here);
        let without_that = NEED_THAT
            .iter()
            .find(is_here)
            .filter(|_| !that_follows(&words[at..]));
        if let Some(phrase) = forbidden.or(without_that) {
            found.push(format!("{path}:{}: say it without `{phrase}`", words[at].line));
        }
    }
    found
}

fn that_follows(words: &[Word]) -> bool {
    let end = words.iter().position(|word| word.ends_sentence);
    let sentence = end.map_or(words, |end| &words[..=end]);
    sentence.iter().any(|word| word.text == "that")
}

/// The prose of each line: a comment in code, the first line of a patch, any line of Markdown. Other lines, and
/// examples between code fences, are empty.
fn prose<'a>(path: &str, text: &'a str) -> Vec<&'a str> {
    let extension = Path::new(path)
        .extension()
        .and_then(|extension| extension.to_str());
    let mut is_example = false;
    let mut prose = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let written = match extension {
            Some("rs" | "java" | "c") => comment(line),
            Some("toml" | "sh" | "py") => line.trim_start().strip_prefix('#').unwrap_or(""),
            Some("lua" | "sql") => line.split_once("--").map_or("", |(_, comment)| comment),
            Some("md") => line,
            Some("patch") if at == 0 => line,
            _ => "",
        };
        let is_fence = written.trim_start().starts_with("```");
        prose.push(if is_fence || is_example { "" } else { written });
        is_example ^= is_fence;
    }
    prose
}

/// The comment on a line of code, without its slashes.
fn comment(line: &str) -> &str {
    let line = line.trim();
    let comment = match line.strip_prefix("//") {
        Some(comment) => comment,
        None => line.split_once(" // ").map_or("", |(_, comment)| comment),
    };
    comment.trim_start_matches(['/', '!'])
}

/// The words of these lines; a word in backquotes becomes an empty one. An empty line ends a sentence.
fn words(lines: &[&str]) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut is_quoted = false;
    for (at, line) in lines.iter().enumerate() {
        if line.trim().is_empty() {
            is_quoted = false;
            if let Some(last) = words.last_mut() {
                last.ends_sentence = true;
            }
        }
        for raw in line.split_whitespace() {
            let mut unquoted = String::new();
            for c in raw.chars() {
                is_quoted ^= c == '`';
                unquoted.push(if is_quoted { '`' } else { c });
            }
            let text = unquoted.trim_matches(|c: char| !c.is_alphanumeric());
            words.push(Word {
                line: at + 1,
                text: text.to_lowercase(),
                ends_sentence: unquoted.ends_with(['.', '?', '!', ';', ':']),
            });
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "xtask/src/a.rs";
    const PAGE: &str = "examples/a/README.md";

    #[test]
    fn forbidden_words_are_found_in_prose_only() {
        for (path, text, findings) in [
            (CODE, "//! Whoever waits.", 1),
            (CODE, "let whom = anew; // asked anew, in vain", 2),
            (CODE, "/// It is\n/// told: the caller.", 1),
            (CODE, "// It is\n\n// told once.", 0),
            (
                CODE,
                "// The word `whoever`, `but\n// for`, and lists, lesser.",
                0,
            ),
            (CODE, "/// ```\n/// let x = 1; // anew\n/// ```\n/// Not anew.", 1),
            (CODE, "let url = \"redis://whom\";", 0),
            (PAGE, "It is said.\n\n```\nlest\n```\n", 1),
            ("xtask/CHANGELOG.md", "Whoever.", 0),
            (
                "mutants/engine/a.patch",
                "A key is asked for anew.\ntest: a\n+ // lest",
                1,
            ),
            ("crates/tenure-sql/src/lib.rs", "// Whoever.", 1),
        ] {
            assert_eq!(check(path, text).len(), findings, "{path}: {text}");
        }
        let found = check(CODE, "//! A file.\n\n// Not for those\n// whom it serves.");
        assert_eq!(found, ["xtask/src/a.rs:4: say it without `whom`"]);
    }

    #[test]
    fn so_many_needs_a_that_in_its_sentence() {
        for (text, findings) in [
            ("// So many calls\n// that the server is busy.", 0),
            ("// It waits so long. After that it ends.", 1),
            ("// It waits so long, and ends", 1),
        ] {
            assert_eq!(check(CODE, text).len(), findings, "{text}");
        }
    }
}
