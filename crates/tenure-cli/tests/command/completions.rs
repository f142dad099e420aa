//! The generated completion scripts, tried in the shells themselves.
//! A shell that is missing fails its test, unless `TENURE_SKIP` names it.

use std::ffi::OsString;
use std::process::Command;

use tenure_servers::needs;

use crate::scene::{Done, Scene};

/// What is typed, and what must be offered.
const CASES: &[(&str, &[&str])] = &[
    ("tenure ru", &["run"]),
    ("tenure e", &["elect", "evict"]),
    ("tenure run --bu", &["--busy-exit"]),
    ("tenure run k --on-lost ", &["term", "kill", "ignore"]),
    ("tenure elect chair --on-lost ", &["term", "kill"]),
    ("tenure completions z", &["zsh"]),
    ("tenure man sch", &["schema"]),
    ("tenure evict k --cl", &["--claim"]),
    ("tenure ls --url-f", &["--url-file"]),
];

/// The built command under its own name, and its script for that shell.
fn install(scene: &Scene, shell: &str, script: &str) -> OsString {
    let folder = scene.path("bin");
    std::fs::create_dir_all(&folder).expect("the folder is ours");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tenure"), folder.join("tenure"))
        .expect("the folder is ours");
    let text = scene.call(&["completions", shell]).stdout;
    scene.write(script, &text, 0o644);
    let mut path = OsString::from(folder);
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}

fn output(shell: &str, args: &[&str], path: &OsString, scene: &Scene) -> Done {
    let home = scene.folder.path();
    let mut command = Command::new(shell);
    let command = command.env("PATH", path).env("HOME", home).current_dir(home);
    let done = Done::by(command.args(args));
    assert_eq!(done.code, 0, "{done:?}");
    done
}

/// Asserts that for each case, given as the last argument, each offer is a word at the beginning of a line, and nothing
/// is offered beside them.
fn assert_offers(shell: &str, script: &str, args: &[&str]) {
    if !needs(shell, shell) {
        return;
    }
    let scene = Scene::new();
    let path = install(&scene, shell, script);
    for (typed, offers) in CASES {
        let done = output(shell, &[args, &[typed]].concat(), &path, &scene);
        let words = done.stdout.lines().filter_map(|line| line.split('\t').next());
        let mut given: Vec<&str> = words.collect();
        given.sort_unstable();
        let mut wanted = offers.to_vec();
        wanted.sort_unstable();
        assert_eq!(given, wanted, "{typed:?}: {done:?}");
    }
}

#[test]
fn bash_offers_verbs_options_and_values() {
    // What bash does when the key is pressed, with the function that the script has registered.
    let script = r#"
        source tenure.bash
        [[ "$(complete -p tenure)" == *"-F _tenure tenure" ]] || exit 9
        read -ra COMP_WORDS <<< "$1"
        [[ "$1" == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _tenure tenure "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    assert_offers(
        "bash",
        "tenure.bash",
        &["--norc", "--noprofile", "-c", script, "bash"],
    );
}

#[test]
fn fish_offers_verbs_options_and_values() {
    let script = "source tenure.fish; complete -C $argv[1]";
    assert_offers("fish", "tenure.fish", &["--no-config", "-c", script, "--"]);
}

#[test]
fn zsh_offers_verbs_options_and_values() {
    if !needs("zsh", "zsh") {
        return;
    }
    let scene = Scene::new();
    let path = install(&scene, "zsh", "functions/_tenure");
    // A shell of its own on a terminal of its own, as zsh completes nowhere else: one that finds the script in its
    // function path, as an installed one is found.
    scene.write(
        "inner.zsh",
        "PS1= RPS1=\nfpath=($PWD/functions $fpath)\nautoload -Uz compinit && compinit -u -D\n\
         bindkey '^I' complete-word\nprint -r - rea\"dy\"\n",
        0o644,
    );
    let outer = r#"
        zmodload zsh/zpty
        typed=$1; shift
        zpty -b inner zsh -f -i
        heard=
        # Reads until all words were heard; the limit is reached only by a failure.
        await() {
            local word part tries=3000
            while (( tries-- )); do
                zpty -r -t inner part && heard+=$part || sleep 0.01
                for word; do [[ $heard == *$word* ]] || continue 2; done
                return 0
            done
            print -r - "heard only: ${(V)heard}"; exit 9
        }
        zpty -w inner 'source inner.zsh'
        await ready
        heard=
        zpty -w -n inner "$typed"$'\t'
        await "$@"
        zpty -d inner
    "#;
    for (typed, offers) in CASES {
        // One offer is typed out: the echo of what was typed alone does not have it.
        assert!(offers.iter().all(|offer| !typed.ends_with(offer)));
        let args = [&["-f", "-c", outer, "zsh", typed], *offers].concat();
        output("zsh", &args, &path, &scene);
    }
}
