//! Runs the generated completion scripts in the shells themselves. If a shell is missing, its test fails, unless
//! `TENURE_SKIP` names it.

use std::ffi::OsString;
use std::process::Command;

use tenure_servers::needs;

use crate::fixture::{Done, Fixture};

/// Pairs of typed words and the completions that must be offered.
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

/// Makes a link `tenure` to the built command, and installs its script for the shell. Returns a `PATH` that begins with
/// the link's folder.
fn install(fixture: &Fixture, shell: &str, script: &str) -> OsString {
    let folder = fixture.path("bin");
    std::fs::create_dir_all(&folder).expect("the folder is ours");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tenure"), folder.join("tenure"))
        .expect("the folder is ours");
    let text = fixture.call(&["completions", shell]).stdout;
    fixture.write(script, &text, 0o644);
    let mut path = OsString::from(folder);
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}

fn output(shell: &str, args: &[&str], path: &OsString, fixture: &Fixture) -> Done {
    let home = fixture.folder.path();
    let mut command = Command::new(shell);
    let command = command.env("PATH", path).env("HOME", home).current_dir(home);
    let done = Done::by(command.args(args));
    assert_eq!(done.code, 0, "{done:?}");
    done
}

/// Runs the shell for each case, with the typed words as the last argument. Asserts that the shell prints exactly the
/// completions of the case.
fn assert_offers(shell: &str, script: &str, args: &[&str]) {
    if !needs(shell, shell) {
        return;
    }
    let fixture = Fixture::new();
    let path = install(&fixture, shell, script);
    for (typed, offers) in CASES {
        let done = output(shell, &[args, &[typed]].concat(), &path, &fixture);
        let words = done.stdout.lines().filter_map(|line| line.split('\t').next());
        let mut given: Vec<&str> = words.collect();
        given.sort_unstable();
        let mut request = offers.to_vec();
        request.sort_unstable();
        assert_eq!(given, request, "{typed:?}: {done:?}");
    }
}

#[test]
fn bash_offers_verbs_options_and_values() {
    // Calls the function that the script has registered, as bash does when the Tab key is pressed.
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
    let fixture = Fixture::new();
    let path = install(&fixture, "zsh", "functions/_tenure");
    // zsh completes only in an interactive shell on a terminal. The script lies in the shell's function path, as an
    // installed script does.
    fixture.write(
        "inner.zsh",
        "PS1= RPS1=\nfpath=($PWD/functions $fpath)\nautoload -Uz compinit && compinit -u -D\n\
         bindkey '^I' complete-word\nprint -r - rea\"dy\"\n",
        0o644,
    );
    let outer = r#"
        zmodload zsh/zpty
        typed=$1; shift
        zpty -b inner zsh -f -i
        output=
        # Reads until all words were output; the limit is reached only by a failure.
        await() {
            local word part tries=3000
            while (( tries-- )); do
                zpty -r -t inner part && output+=$part || sleep 0.01
                for word; do [[ $output == *$word* ]] || continue 2; done
                return 0
            done
            print -r - "output only: ${(V)output}"; exit 9
        }
        zpty -w inner 'source inner.zsh'
        await ready
        output=
        zpty -w -n inner "$typed"$'\t'
        await "$@"
        zpty -d inner
    "#;
    for (typed, offers) in CASES {
        // The terminal echoes the typed text. If this text ended with an offer, the test would find the offer in the
        // echo.
        assert!(offers.iter().all(|offer| !typed.ends_with(offer)));
        let args = [&["-f", "-c", outer, "zsh", typed], *offers].concat();
        output("zsh", &args, &path, &fixture);
    }
}
