//! The engine names no store: of `tenure`'s files only `connect.rs` knows them.
//! Not here: the arrows between crates (`arrows`).

use std::path::Path;

use super::arrows::stores;
use super::finding::Finding;
use super::source::Source;

const ENGINE: &str = "crates/tenure/src";
const DOOR: &str = "crates/tenure/src/connect.rs";

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    if !source.path.starts_with(ENGINE) || source.path == Path::new(DOOR) {
        return Vec::new();
    }
    let names: Vec<_> = stores().map(|name| name.replace('-', "_")).collect();
    let named = source.code_lines().filter_map(|(line, code)| {
        let name = names.iter().find(|name| code.contains(name.as_str()))?;
        let what = format!("the engine names the store `{name}`");
        Some(source.finding(
            line,
            what,
            format!("ask the contract instead; only {DOOR} names stores"),
        ))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_connect_names_a_store() {
        let text = "//! x\n/// See tenure_sql.\nuse tenure_memory::Memory;\n";
        let found = check(&Source::new("crates/tenure/src/engine/wait.rs", text));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 3);
        for elsewhere in [
            DOOR,
            "crates/tenure/tests/mutex.rs",
            "crates/tenure-memory/src/lib.rs",
        ] {
            assert_eq!(check(&Source::new(elsewhere, text)), [], "{elsewhere}");
        }
    }
}
