//! Finds cycles of imports between the modules of a crate. A re-export counts as an import of the file that defines the
//! item. A `lib.rs` or `mod.rs` without functions only connects modules, so it is part of no cycle.

use std::collections::{BTreeMap, BTreeSet};

type Names = Vec<String>;

type Modules = BTreeMap<Names, Module>;

/// One source file: the paths that its `use` statements import, and all paths in its code.
struct Module {
    only_connects: bool,
    uses: Vec<Names>,
    paths: Vec<Names>,
}

/// Returns a finding for each crate with a cycle, with its largest cycle. `files` are pairs of path and text.
pub(crate) fn check(files: &[(String, String)]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Modules> = BTreeMap::new();
    for (path, text) in files {
        if let Some((krate, file)) = path.split_once("/src/") {
            let (name, module) = read(file, text);
            crates.entry(krate).or_default().insert(name, module);
        }
    }
    let mut found = Vec::new();
    for (krate, modules) in &crates {
        let largest = cycles(modules).into_iter().max_by_key(Vec::len);
        if let Some(cycle) = largest {
            found.push(format!(
                "{krate}: these modules import each other: {}",
                cycle.join(", ")
            ));
        }
    }
    found
}

/// Reads a file below `src`. Ignores its text from the first test module on.
fn read(file: &str, text: &str) -> (Names, Module) {
    let mut name = names(&file.trim_end_matches(".rs").replace('/', "::"));
    let is_root = ["lib", "mod"].contains(&name.last().map_or("", String::as_str));
    if is_root {
        name.pop();
    }
    let without_comment = |line: &'_ str| line.split("//").next().unwrap_or("").trim().to_owned();
    let lines: Vec<String> = text.lines().map(without_comment).collect();
    let starts_tests =
        |pair: &[String]| pair[0] == "#[cfg(test)]" && pair[1].contains("mod ") && pair[1].ends_with('{');
    let end = lines.windows(2).position(starts_tests).unwrap_or(lines.len());
    let code = lines[..end].join("\n");

    let mut uses = Vec::new();
    for statement in code.split(';') {
        if let Some((before, tree)) = statement.rsplit_once("use ")
            && let same_line = before.rsplit('\n').next().unwrap_or("")
            && (same_line.is_empty() || same_line.starts_with("pub"))
        {
            flatten(&[], tree, &mut uses);
        }
    }
    let is_in_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(|c: char| !is_in_name(c));
    let paths = words.map(names).filter(|path| path.len() > 1).collect();
    let module = Module {
        only_connects: is_root && !code.contains("fn "),
        uses,
        paths,
    };
    (name, module)
}

fn names(path: &str) -> Names {
    let names = path.split("::").filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Adds the paths of a `use` tree to `into`: `a::{b, c::{d as e}}` gives `a::b` and `a::c::d`.
fn flatten(before: &[String], tree: &str, into: &mut Vec<Names>) {
    let Some((head, rest)) = tree.split_once('{') else {
        let mut path = names(tree.split_whitespace().next().unwrap_or(""));
        path.retain(|name| name != "self" || before.is_empty());
        into.push([before, &path].concat());
        return;
    };
    let before = [before, &names(head.trim())].concat();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                flatten(&before, &rest[start..at], into);
                start = at + 1;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
}

/// Turns a path that the module `here` uses into a path from the crate's root; `None` if it leads out of the crate.
fn absolute(modules: &Modules, here: &[String], path: &[String]) -> Option<Names> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    let (base, rest) = match path.first()?.as_str() {
        "crate" => (&here[..0], &path[1..]),
        "self" => (here, &path[1..]),
        "super" => (here.get(..here.len().checked_sub(supers)?)?, &path[supers..]),
        child if modules.contains_key(&[here, &[child.to_owned()]].concat()) => (here, path),
        _ => return None,
    };
    Some([base, rest].concat())
}

/// The module that defines the item with this path. Follows re-exports; `seen` ends a loop of them.
fn definer<'a>(modules: &'a Modules, path: &[String], seen: &mut BTreeSet<Names>) -> Option<&'a Names> {
    let length = (0..=path.len())
        .rev()
        .find(|length| modules.contains_key(&path[..*length]))?;
    let (name, module) = modules.get_key_value(&path[..length])?;
    if let Some(item) = path.get(length)
        && let Some(used) = module.uses.iter().find(|used| used.last() == Some(item))
        && let Some(target) = absolute(modules, name, used)
        && seen.insert(name.clone())
    {
        return definer(modules, &[&target[..], &path[length + 1..]].concat(), seen);
    }
    Some(name)
}

/// The groups of modules in which each module imports every other, directly or indirectly.
fn cycles(modules: &Modules) -> Vec<Vec<String>> {
    let mut arrows: BTreeMap<&Names, BTreeSet<&Names>> = BTreeMap::new();
    for (here, module) in modules.iter().filter(|(_, module)| !module.only_connects) {
        let paths = module.uses.iter().chain(&module.paths);
        let targets = paths.filter_map(|path| {
            let path = absolute(modules, here, path)?;
            definer(modules, &path, &mut BTreeSet::new())
        });
        let targets = targets.filter(|target| *target != here && !modules[*target].only_connects);
        arrows.insert(here, targets.collect());
    }
    let reachable = |from: &Names| {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&Names> = arrows[from].iter().copied().collect();
        while let Some(module) = next.pop() {
            if reached.insert(module) {
                next.extend(&arrows[module]);
            }
        }
        reached
    };
    let reached: BTreeMap<&Names, BTreeSet<&Names>> =
        arrows.keys().map(|module| (*module, reachable(module))).collect();
    let mut cycles = BTreeSet::new();
    for (from, to) in reached.iter().filter(|(from, to)| to.contains(*from)) {
        let back = to.iter().filter(|module| reached[*module].contains(from));
        cycles.insert(back.map(|module| module.join("::")).collect::<Vec<_>>());
    }
    cycles.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        cycles(&files.iter().map(|(file, text)| read(file, text)).collect())
    }

    #[test]
    fn modules_that_import_each_other_are_found() {
        let found = find(&[
            ("a.rs", "use crate::b::{self, C};"),
            ("b.rs", "fn f() { super::c::g() }"),
            (
                "c.rs",
                "pub(crate) use std::fmt;\nuse crate::{\n    d::D as E,\n    a::A,\n};",
            ),
            ("d.rs", "use crate::b::B;"),
            ("e.rs", "use crate::a::A;"),
        ]);
        assert_eq!(found, [["a", "b", "c", "d"]]);
    }

    #[test]
    fn a_re_export_leads_to_the_file_that_defines_the_item() {
        let found = find(&[
            ("lib.rs", "mod a;\nmod b;\npub use b::B;"),
            ("a.rs", "use crate::B;"),
            ("b/mod.rs", "mod inner;\npub use inner::B;"),
            ("b/inner.rs", "use crate::a::A;"),
        ]);
        assert_eq!(found, [["a", "b::inner"]]);
    }

    #[test]
    fn comments_tests_and_arrows_that_point_one_way_are_no_cycle() {
        let found = find(&[
            ("a.rs", "use super::b::B;\nuse tokio::time;"),
            (
                "b.rs",
                "// use crate::a::A;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}",
            ),
        ]);
        assert_eq!(found, [[""; 0]; 0]);
    }

    #[test]
    fn a_cycle_is_reported_with_its_modules() {
        let files = [("a", "use crate::b::B;"), ("b", "use crate::a::A;")];
        let files = files.map(|(name, text)| (format!("crates/new/src/{name}.rs"), text.to_owned()));
        assert_eq!(
            check(&files),
            ["crates/new: these modules import each other: a, b"]
        );
    }
}
