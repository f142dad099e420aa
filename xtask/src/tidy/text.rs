//! Checks each Rust file: header, length, ignored tests, sleeps, names of stores, `# Cancel safety`.

use super::arrows::STORES;

/// The greatest number of lines of a file, unless a line that starts with `//! Length: ` gives a reason.
const MAX_LINES: usize = 600;

/// The comment that must be on or above each sleep in a test. It says why the test cannot wait for an event.
const SLEEP: &str = "// sleep:";

/// The start of the paths that may name a store's crate: those of `connect.rs` and of the folder `connect`.
const CONNECT: &str = "crates/tenure/src/connect";

/// Crates that are not published. Their functions need no `# Cancel safety` section.
const UNPUBLISHED: [&str; 3] = ["tenure-bench", "tenure-faults", "tenure-servers"];

/// A folder whose functions need no `# Cancel safety` section: its public functions are test cases.
const SUITE: &str = "crates/tenure-testkit/src/suite/";

/// Finds every line that breaks a rule. `path` is relative to the root of the workspace.
pub(crate) fn check(path: &str, text: &str) -> Vec<String> {
    let folders: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    let in_tests = folders.contains(&"tests");
    let in_engine = path.starts_with("crates/tenure/src/") && !path.starts_with(CONNECT);
    let is_published = folders[0] == "crates" && folders[2] == "src" && !UNPUBLISHED.contains(&folders[1]);
    let is_called = is_published && !path.starts_with(SUITE);
    let stores = STORES.map(|name| name.replace('-', "_"));
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut find = |at: usize, what: &str| found.push(format!("{path}:{}: {what}", at + 1));

    if !text.starts_with("//! ") && !text.starts_with("#![doc = include_str!(") {
        find(0, "start the file with a line `//! …` that says what it is about");
    }
    if lines.len() > MAX_LINES && !text.contains("\n//! Length: ") {
        find(MAX_LINES, "split the file, or give a reason: `//! Length: …`");
    }
    for (at, line) in lines.iter().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        let attribute = code.trim_start();
        if attribute.starts_with("#[ignore")
            || attribute.starts_with("#[cfg_attr(") && attribute.contains("ignore")
        {
            find(at, "the test is ignored");
        }
        if line.trim_start().starts_with("//") && line.contains("```ignore") {
            find(at, "the example is ignored: let it run, or mark it `no_run`");
        }
        let says_why = line.contains(SLEEP) || at > 0 && lines[at - 1].contains(SLEEP);
        if in_tests && calls_sleep(code) && !says_why {
            find(at, "wait for the event, or say why it sleeps: `// sleep: …`");
        }
        if in_engine && stores.iter().any(|name| code.contains(name)) {
            find(at, "the engine names a store: only connect.rs may");
        }
        if is_called && starts_future(&lines[at..]) && !documents_cancel_safety(&lines[..at]) {
            find(at, "add `# Cancel safety`: what dropping the future leaves");
        }
    }
    found
}

/// Returns whether the code calls a function `sleep`. A method `sleep` does not count.
fn calls_sleep(code: &str) -> bool {
    let mut calls = code.match_indices("sleep(");
    calls.any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.'))
}

fn starts_future(lines: &[&str]) -> bool {
    let Some(function) = lines[0].trim().strip_prefix("pub ") else {
        return false;
    };
    if !function.contains("fn ") || function.contains("async fn ") {
        return function.contains("async fn ");
    }
    let end = lines
        .iter()
        .position(|line| line.ends_with(['{', ';', '}']))
        .unwrap_or(0);
    let signature = lines[..=end].join(" ");
    let before_bounds = signature.split(" where ").next().unwrap_or("");
    before_bounds
        .rsplit_once(") -> ")
        .is_some_and(|(_, output)| output.contains("Future<"))
}

/// Returns whether the item below the lines `above` has a `# Cancel safety` section: in its own comment, or in the
/// header of the file.
fn documents_cancel_safety(above: &[&str]) -> bool {
    let is_of_item =
        |line: &&str| line.starts_with("//") || !(line.is_empty() || line.ends_with(['{', '}', ';']));
    let mut item = above.iter().rev().map(|line| line.trim()).take_while(is_of_item);
    item.any(|line| line == "/// # Cancel safety") || above.contains(&"//! # Cancel safety")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRC: &str = "crates/tenure/src/a.rs";
    const TEST: &str = "crates/tenure/tests/a.rs";

    fn count(path: &str, text: &str) -> usize {
        check(path, &format!("//! A file.\n{text}")).len()
    }

    #[test]
    fn each_rule_finds_its_violations_only() {
        let long = "x;\n".repeat(MAX_LINES);
        for (path, text, findings) in [
            (SRC, &*long, 1),
            (SRC, &format!("//! Length: a table.\n{long}"), 0),
            (SRC, "    #[ignore = \"slow\"]", 1),
            (SRC, "#[cfg_attr(miri, ignore)]", 1),
            (SRC, "/// ```ignore", 1),
            (SRC, "// #[ignore]\n/// ```no_run", 0),
            (TEST, "thread::sleep(PACE);", 1),
            ("crates/a/src/b/tests.rs", "sleep(PACE).await;", 1),
            (SRC, "sleep(PACE);", 0),
            (
                TEST,
                "// sleep: the pace\nsleep(PACE);\nsleep(PACE); // sleep: the pace",
                0,
            ),
            (TEST, "// sleep(PACE)\nnosleep(1); a.sleep(1);", 0),
            (SRC, "use tenure_memory::Memory;", 1),
            (TEST, "use tenure_memory::Memory;", 0),
            (
                "crates/tenure/src/connect/redlock.rs",
                "use tenure_memory::Memory;",
                0,
            ),
        ] {
            assert_eq!(count(path, text), findings, "{path}: {text}");
        }
        let found = check(SRC, "use a;").join("\n");
        assert!(
            found.contains("a.rs:1: start the file with a line `//! …`"),
            "{found}"
        );
    }

    #[test]
    fn a_public_future_documents_its_cancel_safety() {
        let doc = "/// # Cancel safety\n/// Leaves nothing {\n#[cfg(any(\n    unix,\n))]\n";
        for signature in [
            "pub async fn f() {}",
            "pub fn f() -> impl Future<Output = u8> {",
            "pub fn f(\n    a: u8,\n) -> Pin<Box<dyn Future<Output = u8>>>\nwhere\n    A: B,\n{",
        ] {
            let other = format!("{doc}pub fn g() {{}}\n{signature}");
            assert_eq!(count(SRC, &other), 1, "{other}");
            assert_eq!(count(SRC, &format!("{doc}{signature}")), 0, "{signature}");
            assert_eq!(
                count(SRC, &format!("//! # Cancel safety\n{signature}")),
                0,
                "{signature}"
            );
            assert_eq!(count("crates/tenure-bench/src/a.rs", signature), 0, "{signature}");
        }
        for other in [
            "pub(crate) async fn f() {}",
            "pub fn f(g: impl Future<Output = u8>) -> u8 {",
        ] {
            assert_eq!(count(SRC, other), 0, "{other}");
        }
    }
}
