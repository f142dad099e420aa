//! What a public function promises stands in its doc comment: what dropping it leaves behind, and how it fails.
//! Not here: whether what stands there is true; tests show that.

use super::finding::Finding;
use super::source::Source;

/// The sections that a doc comment may have, in their order.
const SECTIONS: [&str; 6] = [
    "Guarantees",
    "Cancel safety",
    "Errors",
    "Panics",
    "Examples",
    "Backends",
];

/// The crates that nobody but this workspace uses.
const UNPUBLISHED: [&str; 3] = ["tenure-bench", "tenure-faults", "tenure-servers"];

/// Each function says it itself, or its file's header says it once for all of them.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    if !is_published(source) {
        return Vec::new();
    }
    let header: Vec<_> = source
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("//! # "))
        .collect();
    let docs = docs(&source.text);
    let mut found: Vec<_> = docs.iter().filter_map(|doc| check_order(source, doc)).collect();
    for function in functions(&source.code) {
        let doc = docs.iter().find(|doc| doc.of == function.line);
        let says = |section| {
            header.contains(&section)
                || doc.is_some_and(|doc| doc.sections.iter().any(|(_, name)| *name == section))
        };
        let mut miss = |section, what: &str, instead: &str| {
            if !says(section) {
                let what = format!("`{}` does not say {what}", function.name);
                found.push(source.finding(
                    function.line,
                    what,
                    format!("add a section `# {section}`: {instead}"),
                ));
            }
        };
        if function.is_future {
            let instead = "what is left, where, and for how long";
            miss("Cancel safety", "what dropping its future leaves behind", instead);
        }
        if function.can_fail {
            miss(
                "Errors",
                "how it fails",
                "each error, and what the caller should do",
            );
        }
    }
    found
}

/// Whether the file is part of what users of a published crate may call.
fn is_published(source: &Source) -> bool {
    let mut folders = source.path.iter().filter_map(|folder| folder.to_str());
    folders.next() == Some("crates")
        && folders.next().is_some_and(|name| !UNPUBLISHED.contains(&name))
        && folders.next() == Some("src")
}

/// A doc comment's sections, each with its line, and the line of the item it stands on.
struct Doc<'a> {
    of: usize,
    sections: Vec<(usize, &'a str)>,
}

/// Reads every outer doc comment that has a section.
fn docs(text: &str) -> Vec<Doc<'_>> {
    let mut docs = Vec::new();
    let mut sections = Vec::new();
    let (mut in_example, mut in_attribute) = (false, false);
    for (line, text) in (1..).zip(text.lines().map(str::trim)) {
        if let Some(comment) = text.strip_prefix("///") {
            if comment.trim_start().starts_with("```") {
                in_example = !in_example;
            } else if let Some(name) = comment.strip_prefix(" # ")
                && !in_example
            {
                sections.push((line, name));
            }
            continue;
        }
        // Attributes and plain comments may stand between a doc comment and its item.
        let attribute = in_attribute || text.starts_with("#[");
        in_attribute = attribute && !text.ends_with(']');
        if attribute || text.starts_with("//") {
            continue;
        }
        if !sections.is_empty() {
            docs.push(Doc {
                of: line,
                sections: std::mem::take(&mut sections),
            });
        }
        in_example = false;
    }
    docs
}

/// Finds the first section that is unknown, twice, or behind one that it should precede.
fn check_order(source: &Source, doc: &Doc<'_>) -> Option<Finding> {
    let mut known = SECTIONS.iter();
    let (line, name) = doc
        .sections
        .iter()
        .find(|(_, name)| !known.any(|next| next == name))?;
    let what = format!("the section `# {name}` is unknown, or out of its order");
    let instead = format!(
        "a doc comment's sections are, in this order: {}",
        SECTIONS.join(", ")
    );
    Some(source.finding(*line, what, instead))
}

/// A public function, also of a public trait.
struct Function<'a> {
    line: usize,
    name: &'a str,
    is_future: bool,
    can_fail: bool,
}

/// Finds every public function by its first line; what the compiler keeps private despite its `pub` it refuses itself.
fn functions(code: &str) -> Vec<Function<'_>> {
    let mut functions = Vec::new();
    let (mut at, mut depth) = (0, 0usize);
    let mut body_of_trait = None;
    for (line, text) in (1..).zip(code.split_inclusive('\n')) {
        if body_of_trait.is_none() && text.trim_start().starts_with("pub trait ") {
            body_of_trait = Some(depth + 1);
        }
        if let Some((is_async, begins)) = head(text, body_of_trait == Some(depth)) {
            let signature = &code[at + begins..];
            let name = signature.split(|c: char| !c.is_alphanumeric() && c != '_').next();
            let answer = answer(signature);
            functions.push(Function {
                line,
                name: name.unwrap_or_default(),
                is_future: is_async || answer.contains("Future<"),
                can_fail: answer
                    .split(|c: char| !c.is_alphanumeric())
                    .any(|word| word == "Result"),
            });
        }
        for c in text.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        if body_of_trait.is_some_and(|body| depth < body) && text.contains('}') {
            body_of_trait = None;
        }
        at += text.len();
    }
    functions
}

/// Whether a line begins a public function, whether that is `async`, and where in the line its name begins.
fn head(line: &str, in_trait: bool) -> Option<(bool, usize)> {
    let mut rest = line.trim_start();
    match rest.strip_prefix("pub ") {
        Some(public) => rest = public,
        None if in_trait => {}
        None => return None,
    }
    let mut is_async = false;
    while let Some(after) = ["const ", "async ", "unsafe "]
        .iter()
        .find_map(|modifier| rest.strip_prefix(modifier))
    {
        is_async |= rest.starts_with("async");
        rest = after;
    }
    let name = rest.strip_prefix("fn ")?;
    Some((is_async, line.len() - name.len()))
}

/// What a function answers, of a text that begins with its name; empty where it answers nothing.
fn answer(signature: &str) -> &str {
    let (mut depth, mut arguments_end) = (0usize, None);
    for (at, c) in signature.char_indices() {
        match c {
            '>' if signature[..at].ends_with('-') => {}
            '(' | '[' | '<' => depth += 1,
            ')' | ']' | '>' => depth = depth.saturating_sub(1),
            '{' | ';' if depth == 0 => {
                let rest = arguments_end.map_or("", |end| &signature[end..at]);
                let rest = rest.split("where").next().unwrap_or_default();
                return rest.trim().strip_prefix("->").unwrap_or_default();
            }
            _ => {}
        }
        if c == ')' && depth == 0 && arguments_end.is_none() {
            arguments_end = Some(at + 1);
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: [String; 0] = [];

    /// Each finding as `line: what`.
    fn found(text: &str) -> Vec<String> {
        let found = check(&Source::new("crates/tenure/src/a.rs", text));
        let show = |finding: &Finding| format!("{}: {}", finding.line, finding.what);
        found.iter().map(show).collect()
    }

    const NO_CANCEL_SAFETY: &str = "`f` does not say what dropping its future leaves behind";
    const NO_ERRORS: &str = "`f` does not say how it fails";

    #[test]
    fn a_public_future_says_what_dropping_it_leaves_behind() {
        for signature in [
            "pub async fn f() {}",
            "pub async unsafe fn f(a: &[u8; 2]) {}",
            "impl A {\n    pub async fn f(\n        &self,\n    ) -> u8 {}\n}",
            "pub trait A {\n    async fn f(&self);\n}",
            "pub trait A: B\nwhere\n    Self: C,\n{\n    type D;\n    async fn f(&self);\n}",
            "pub fn f() -> impl Future<Output = u8> {}",
            "pub fn f() -> Pin<Box<dyn Future<Output = u8> + Send>> {}",
        ] {
            let line = 1 + signature.lines().position(|line| line.contains("fn f(")).unwrap();
            assert_eq!(
                found(signature),
                [format!("{line}: {NO_CANCEL_SAFETY}")],
                "{signature}"
            );
            let doc = "/// Waits.\n///\n/// # Cancel safety\n/// Leaves nothing.\n#[must_use]\n// Why.\n";
            let documented = signature.replace("pub async fn", &format!("{doc}pub async fn"));
            if documented != signature {
                assert_eq!(found(&documented), NOTHING, "{documented}");
            }
        }
    }

    #[test]
    fn a_public_function_that_can_fail_says_how() {
        for signature in [
            "pub fn f() -> Result<(), E> {}",
            "pub const fn f<const N: usize>() -> io::Result<[u8; N]> {}",
            "pub fn f<T: Fn() -> u8>(t: T) -> Result<u8, E>\nwhere\n    T: Send,\n{\n}",
            "pub fn f() -> impl Iterator<Item = Result<u8, E>> {}",
            "pub trait A {\n    fn f(&self) -> Result<(), E>;\n}",
        ] {
            let line = 1 + signature.lines().position(|line| line.contains("fn f")).unwrap();
            assert_eq!(found(signature), [format!("{line}: {NO_ERRORS}")], "{signature}");
        }
        let both = "/// Waits.\n///\n/// # Errors\n/// `E`: again.\n#[cfg(any(\n    unix,\n))]\npub async fn f() -> Result<(), E> {}";
        assert_eq!(found(both), [format!("8: {NO_CANCEL_SAFETY}")]);
        let in_example = "/// ```\n/// # Errors\n/// ```\npub fn f() -> Result<(), E> {}";
        assert_eq!(found(in_example), [format!("4: {NO_ERRORS}")]);
        let by_header = "//! Futures.\n//!\n//! # Cancel safety\n//! Leaves nothing.\n\npub async fn f() -> Result<(), E> {}";
        assert_eq!(found(by_header), [format!("6: {NO_ERRORS}")]);
        let of_another = "/// # Errors\n/// `E`.\npub fn g() {}\n\npub fn f() -> Result<(), E> {}";
        assert_eq!(found(of_another), [format!("5: {NO_ERRORS}")]);
    }

    #[test]
    fn what_users_cannot_call_and_what_cannot_fail_promises_nothing() {
        for text in [
            "async fn f() -> Result<(), E> {}",
            "pub(crate) async fn f() -> Result<(), E> {}",
            "pub fn f(g: impl Fn() -> Result<u8, E>) -> u8 {}",
            "pub fn f<G>(g: G)\nwhere\n    G: FnOnce() -> Result<u8, E>,\n{\n}",
            "pub fn f() -> ResultSet { g::<Result<(), E>>() }",
            "trait A {\n    async fn f(&self) -> Result<(), E>;\n}",
            "pub trait A {}\nimpl A for B {\n    async fn f(&self) -> Result<(), E> {}\n}",
            "pub trait A {\n    fn g() {\n        fn f() -> Result<(), E> {}\n    }\n}\nasync fn f() {}",
        ] {
            assert_eq!(found(text), NOTHING, "{text}");
        }
        let text = "pub async fn f() -> Result<(), E> {}";
        for elsewhere in [
            "crates/tenure/tests/a.rs",
            "crates/tenure-bench/src/a.rs",
            "crates/tenure-faults/src/a.rs",
            "xtask/src/a.rs",
        ] {
            assert_eq!(check(&Source::new(elsewhere, text)), [], "{elsewhere}");
        }
    }

    #[test]
    fn sections_keep_their_order() {
        let doc = |names: &[&str]| {
            let sections = names.iter().map(|name| format!("///\n/// # {name}\n/// Text.\n"));
            format!("/// What.\n{}pub struct A;\n", sections.collect::<String>())
        };
        assert_eq!(found(&doc(&SECTIONS)), NOTHING);
        assert_eq!(found(&doc(&["Cancel safety", "Examples"])), NOTHING);
        for (names, line) in [
            (&["Errors", "Cancel safety"][..], 6),
            (&["Errors", "Errors"], 6),
            (&["Safety"], 3),
            (&["Guarantees", "Notes", "Errors"], 6),
        ] {
            let wrong = names[(line - 3) / 3];
            let what = format!("{line}: the section `# {wrong}` is unknown, or out of its order");
            assert_eq!(found(&doc(names)), [what], "{names:?}");
        }
    }
}
