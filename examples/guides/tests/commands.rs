//! Runs the shell commands of the guides, and compares their output with what the guides show. Also fails if a page
//! has code that is neither compiled nor run.
#![cfg(unix)]

#[path = "../../fixture.rs"]
mod fixture;

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use fixture::{Fixture, Process, tenure_command};

/// A command after `$`, with continuation lines after `>`, and the stdout that the guide shows.
#[derive(Debug, Default)]
struct Step {
    command: String,
    prints: String,
}

fn page(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let opens = format!("```{language}\n");
    let rests = text.split(&opens).skip(1);
    rests.map(|rest| rest.split_once("```").unwrap().0).collect()
}

fn steps(block: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                command: command.to_owned(),
                ..Step::default()
            });
            continue;
        }
        let step = steps.last_mut().expect("a block begins with a command");
        match line.strip_prefix("> ") {
            Some(more) => step.command.extend(["\n", more]),
            None => step.prints.extend([line, "\n"]),
        }
    }
    steps
}

/// Runs a command in a shell, in the fixture's folder, with the built `tenure` first in `PATH`. Returns its stdout and
/// its exit code.
fn run(fixture: &Fixture, command: &str) -> (String, i32) {
    let mut path = OsString::from(tenure_command().parent().unwrap());
    path.push(":");
    path.push(env::var_os("PATH").unwrap());
    let mut shell = fixture.command("/bin/sh");
    shell.args(["-c", command]).env("PATH", path);
    let mut shell = Process::start(shell);
    shell.close_stdin();
    let lines = shell.rest().into_iter().map(|line| line + "\n").collect();
    (lines, shell.exit_code())
}

#[test]
fn commands_of_coming_from_flock_print_the_given_output() {
    let fixture = Fixture::new();
    let text = page("docs/guides/coming-from-flock.md");
    let steps: Vec<Step> = blocks(&text, "console").into_iter().flat_map(steps).collect();
    assert!(steps.len() > 30, "the blocks are found: {}", steps.len());
    for Step { command, prints } in steps {
        assert_eq!(run(&fixture, &command).0, prints, "$ {command}");
    }
    for line in blocks(&text, "crontab").into_iter().flat_map(str::lines) {
        // Removes the five fields with cron's times.
        let command = (0..5).fold(line, |rest, _| rest.trim_start().split_once(' ').unwrap().1);
        assert_eq!(run(&fixture, command), ("backed up\n".to_owned(), 0), "{command}");
    }
}

/// Runs the commands of the page in the fixture's folder instead of `/`. No test may change the groups of the system, so
/// the commands that need root do nothing; the tests of `tenure-cli` share a file with another group.
#[test]
fn commands_that_share_a_lock_file_set_its_mode() {
    let fixture = Fixture::new();
    let text = page("docs/guides/coming-from-flock.md");
    let blocks = blocks(&text, "sh");
    let [create, change] = blocks[..] else {
        panic!("two blocks of commands: {blocks:?}");
    };
    let here = run(&fixture, "mkdir srv; pwd").0;
    let script = |block: &str| {
        let moved = block
            .replace("/srv/", &format!("{}/srv/", here.trim()))
            .replace("/etc/", &format!("{}/etc/", here.trim()));
        let skipped = "groupadd() { :; }; usermod() { :; }; chgrp() { test -e \"$2\"; }";
        format!("set -e; umask 077; {skipped}\n{moved}")
    };
    let lock = "tenure --url-file \"$OLDPWD\"/etc/tenure/url run k -- stat -c %a . locks.db locks.db-wal";
    let modes = |expected: &str| {
        let shown = run(&fixture, &format!("cd srv/locks && {lock}"));
        assert_eq!(shown, (expected.to_owned(), 0));
    };
    assert_eq!(run(&fixture, &script(create)), (String::new(), 0));
    modes("2770\n660\n660\n");
    run(&fixture, "chmod 600 srv/locks/*");
    modes("2770\n600\n600\n");
    assert_eq!(run(&fixture, &script(change)), (String::new(), 0));
    modes("2770\n660\n660\n");
}

/// The languages of each page's code blocks. rustdoc compiles a block without a language as Rust, and skips a block
/// whose language it does not know. A `text` block is a drawing, which nothing compiles or runs.
#[test]
fn every_code_block_is_compiled_or_run() {
    for (name, languages) in [
        // No test runs the commands of the README.
        ("README.md", &["console", "crontab", "rust"][..]),
        ("docs/guides/choosing-a-lock.md", &["rust"]),
        ("docs/guides/coming-from-flock.md", &["console", "crontab", "sh"]),
        ("docs/guides/coming-from-redisson.md", &["rust"]),
        // `other_languages.rs` runs these.
        (
            "docs/guides/other-languages.md",
            &["go", "java", "javascript", "python"],
        ),
        ("docs/guides/sharing-with-redis-py.md", &["rust"]),
        ("docs/guides/sharing-with-spring.md", &["rust"]),
        ("docs/guides/redis-behind-sentinel.md", &["rust"]),
        // With a test harness, rustdoc runs the tests of a block.
        (
            "docs/guides/testing-code-that-holds-locks.md",
            &["rust,test_harness"],
        ),
        ("docs/guides/what-a-lock-cannot-do.md", &["rust", "text"]),
    ] {
        let text = page(name);
        let fences = text.lines().filter(|line| line.starts_with("```"));
        let found: BTreeSet<&str> = fences.step_by(2).map(|fence| &fence[3..]).collect();
        assert!(found.iter().eq(languages), "{name}: {found:?}");
    }
}

/// The files below a folder whose names end in `ending`, as paths from the root.
fn files_below(folder: &str, ending: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = match folder {
            "" => name.clone(),
            _ => format!("{folder}/{name}"),
        };
        let is_ours = name != "target" && !name.starts_with('.');
        if entry.file_type().unwrap().is_dir() && is_ours {
            files.extend(files_below(&path, ending));
        } else if name.ends_with(ending) {
            files.push(path);
        }
    }
    files
}

/// The pages in a crate's folders are the documentation of its modules. There, rustdoc also compiles blocks without a
/// language, as Rust.
#[test]
fn every_page_with_rust_code_is_compiled() {
    let mut compiled = 0;
    for path in files_below("", ".md") {
        let text = page(&path);
        let fences = text
            .lines()
            .map(str::trim_start)
            .filter(|line| line.starts_with("```"));
        let languages: BTreeSet<&str> = fences.step_by(2).map(|fence| &fence[3..]).collect();
        let (modules, may_be_rust) = match path.split('/').collect::<Vec<_>>()[..] {
            ["crates", package, "src" | "docs", _] => (format!("crates/{package}/src"), true),
            _ => ("examples/guides/src".to_owned(), false),
        };
        let is_rust = |language: &&str| language.starts_with("rust") || may_be_rust && language.is_empty();
        if !languages.iter().any(is_rust) {
            continue;
        }
        let name = path.rsplit('/').next().unwrap();
        let mut modules = files_below(&modules, ".rs")
            .into_iter()
            .map(|module| page(&module));
        let is_included = modules.any(|module| {
            let mut includes = module.split("#![doc = include_str!(\"").skip(1);
            includes.any(|rest| rest.split('"').next().unwrap().rsplit('/').next() == Some(name))
        });
        assert!(is_included, "{path} has Rust code, and no module includes it");
        compiled += 1;
    }
    assert!(compiled >= 5, "the pages are found: {compiled}");
}
