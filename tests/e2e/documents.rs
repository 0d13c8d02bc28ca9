//! The documents say what is true.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::Team;
use crate::support::cgroup::note;
use crate::support::python;

/// How many words the documents below `docs` may have together: a longer one is paid for by
/// shortening another.
const MAX_WORDS: usize = 18_000;
/// The moments in which a process can die, each with its test.
const WINDOWS: &str = "tests/crash/windows.md";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn file(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the paths of all documents.
fn documents() -> Vec<PathBuf> {
    let docs = std::fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let at_the_top = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|name| root().join(name));
    docs.filter(|path| path.extension().is_some_and(|it| it == "md"))
        .chain(at_the_top)
        .collect()
}

/// Returns what stands between backticks in a document, code blocks left out.
fn quoted(document: &str) -> Vec<&str> {
    let prose = document.split("```").step_by(2);
    prose
        .flat_map(|text| text.split('`').skip(1).step_by(2))
        .collect()
}

/// Returns the sources of everything, in one text.
fn sources() -> String {
    let mut folders: Vec<_> = ["lead", "worker", "shared", "tests"]
        .map(|folder| root().join(folder))
        .into();
    let mut text = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    text
}

/// Returns the source of a module of the end-to-end tests.
fn module(name: &str) -> Option<String> {
    let path = root().join("tests/e2e").join(name.replace("::", "/"));
    let file = path.with_extension("rs");
    std::fs::read_to_string(if file.is_file() {
        file
    } else {
        path.join("mod.rs")
    })
    .ok()
}

#[test]
fn each_failure_that_is_called_impossible_is_shown_by_a_test() {
    let document = file("docs/failures.md");
    let (_, list) = document.trim_end().split_once("\n\n1. ").unwrap();
    let list = format!("1. {list}");
    let items: Vec<&str> = list.lines().collect();
    let items: Vec<&[&str]> = items.chunks(2).collect();
    assert_eq!(items.len(), 30);
    for (number, item) in (1..).zip(items) {
        assert!(
            item[0].starts_with(&format!("{number}. ")),
            "{number}: {item:?}"
        );
        let tests: Vec<_> = quoted(item[1])
            .into_iter()
            .filter_map(|name| name.rsplit_once("::"))
            .collect();
        assert!(!tests.is_empty(), "{item:?}");
        for (name, test) in tests {
            let source =
                module(name).unwrap_or_else(|| panic!("failure {number}: there is no {name}"));
            assert!(
                source.contains(&format!("#[test]\nfn {test}()")),
                "failure {number}: {name}::{test}"
            );
        }
    }
}

#[test]
fn each_test_that_stands_for_a_promise_is_there() {
    let documents = [file("docs/reliability.md"), file(WINDOWS)].concat();
    let sources = sources();
    let mut named = 0;
    let names = quoted(&documents).into_iter().filter(|name| name.len() > 2);
    for (path, test) in names.filter_map(|name| name.rsplit_once("::")) {
        named += 1;
        match test {
            "" => {
                assert!(
                    module(path).is_some_and(|source| source.contains("#[test]")),
                    "{path} has no test"
                )
            }
            test => assert!(
                sources.contains(&format!("fn {test}(")),
                "{test} is nowhere"
            ),
        }
    }
    assert!(named > 50, "only {named} tests were found");
}

#[test]
fn each_path_that_a_document_names_is_there() {
    let mut named = 0;
    for path in documents() {
        let document = file(&path);
        let links = document
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', '#']).next());
        let links = links.filter(|link| !link.is_empty() && !link.contains("://"));
        let here = path.parent().unwrap();
        let links = links.map(|link| (link, here.join(link)));
        let quoted = quoted(&document)
            .into_iter()
            .filter_map(|text| text.split([' ', ':']).next());
        let folders = ["lead/", "worker/", "shared/", "tests/", "scripts/", "docs/"];
        let quoted = quoted
            .filter(|text| folders.iter().any(|folder| text.starts_with(folder)))
            .filter(|text| !text.contains(['*', '<', '{', '…']) && !text.contains("NAME"))
            .map(|text| (text, root().join(text)));
        for (text, there) in links.chain(quoted) {
            named += 1;
            assert!(
                there.exists(),
                "{} names {text}, which is not there",
                path.display()
            );
        }
    }
    assert!(named > 30, "only {named} paths were found");
}

#[test]
fn each_window_in_which_a_process_can_die_has_its_row() {
    let document = file(WINDOWS);
    let rows = document
        .lines()
        .filter_map(|line| line.strip_prefix("- ")?.split(": ").next());
    let rows: Vec<&str> = rows.flat_map(|ids| ids.split(", ")).collect();
    let many = [("I", 1..=11), ("I", 20..=23), ("S", 1..=11), ("T", 1..=8)];
    let more = [("P", 1..=12), ("D", 1..=19), ("A", 1..=19)];
    for (letter, numbers) in many.into_iter().chain(more) {
        for id in numbers.map(|number| format!("{letter}{number}")) {
            assert_eq!(rows.iter().filter(|row| **row == id).count(), 1, "{id}");
        }
    }
}

/// Each tool of an agent that is switched off is named, and none that is not.
#[test]
fn the_tools_of_agents_that_are_off_are_listed() {
    let document = file("docs/agents.md");
    let agents = [
        (
            "claude",
            "const DISALLOWED:",
            "background commands are off, and so are",
            "of its own",
        ),
        (
            "codex",
            "const OFF:",
            "sandbox is off, and so are",
            "It reads",
        ),
    ];
    for (name, declared, begins, ends) in agents {
        let code = file(format!("worker/model/src/agent/{name}.rs"));
        let code = code
            .split_once(declared)
            .unwrap()
            .1
            .split(';')
            .find(|part| part.contains('"'))
            .unwrap();
        let off: BTreeSet<&str> = code
            .split('"')
            .skip(1)
            .step_by(2)
            .flat_map(|names| names.split(','))
            .collect();
        let listed = document
            .split_once(begins)
            .unwrap()
            .1
            .split_once(ends)
            .unwrap()
            .0;
        assert_eq!(
            quoted(listed).into_iter().collect::<BTreeSet<_>>(),
            off,
            "{name}"
        );
        assert!(off.len() >= 5, "{off:?}");
    }
}

/// A program of tests that `scripts/test` does not name is never run.
#[test]
fn each_program_of_tests_is_run() {
    let manifest = file("Cargo.toml");
    let run = file("scripts/test");
    let tables = manifest.split("[[test]]\nname = \"").skip(1);
    let names: Vec<&str> = tables.map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(names.len() >= 3, "{names:?}");
    for name in names {
        let option = format!("--test {name}");
        assert!(run.contains(&option), "scripts/test has no {option}");
    }
}

#[test]
fn all_documents_together_stay_short() {
    let docs = root().join("docs");
    let below = documents()
        .into_iter()
        .filter(|path| path.starts_with(&docs));
    let words: usize = below
        .map(|path| file(path).split_whitespace().count())
        .sum();
    assert!(words <= MAX_WORDS, "{words} words");
}

/// Returns the commands of the README's tour, each with what it prints.
fn tour(document: &str) -> Vec<(String, Vec<String>)> {
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    let mut goes_on = false;
    for block in document
        .split("```console\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
    {
        for line in block.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                commands.push((command.to_owned(), Vec::new()));
            } else if goes_on {
                commands
                    .last_mut()
                    .unwrap()
                    .0
                    .push_str(&format!("\n{line}"));
            } else {
                commands.last_mut().unwrap().1.push(line.to_owned());
            }
            // A quote that is still open goes on in the next line.
            goes_on = commands.last().unwrap().0.matches('\'').count() % 2 == 1;
        }
    }
    commands
}

/// What a teammate that runs may be doing when a command looks: that is chance.
const RUNNING: [&str; 4] = ["starting", "idle", "working", "awaiting_approval"];

/// Tells whether two words of the output agree. Numbers, ids, times, paths and the status of a
/// running teammate differ from run to run; `ids` remembers which stands for which.
fn agree(expected: &str, actual: &str, ids: &mut BTreeMap<String, String>) -> bool {
    let word = |text: &str| text.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
    let varies = |text: &str| text.starts_with('/') || text.chars().any(|c| c.is_ascii_digit());
    if expected != actual && varies(expected) && varies(actual) {
        ids.insert(word(expected), word(actual));
        return true;
    }
    expected == actual || RUNNING.contains(&expected) && RUNNING.contains(&actual)
}

#[test]
fn the_tour_of_the_readme_prints_what_it_says() {
    let team = Team::new().with("ANTHROPIC_API_KEY", "sk-of-the-tour");
    if !python::is_here() {
        return note("skipped: the stub that stands for Claude Code in the tour needs python3");
    }
    let programs = Path::new(env!("CARGO_BIN_EXE_teamd"))
        .parent()
        .unwrap()
        .display();
    let bin = team.root().with_file_name("agent");
    std::fs::create_dir(&bin).unwrap();
    let stub = |name: &str, content: &str| team.write(bin.join(name).to_str().unwrap(), content);
    stub(
        "claude",
        &format!(
            "#!/usr/bin/env -S python3 -S\n{}",
            include_str!("../fixtures/claude-stub.py")
        ),
    );
    std::fs::set_permissions(bin.join("claude"), Permissions::from_mode(0o755)).unwrap();
    stub("orders.py", include_str!("../fixtures/orders.py"));
    let plan = json!({"plan": "Write CHANGELOG.md with a section for what is not released."});
    let meanings = json!({
        "Start a changelog.": [format!("@plan_approval {plan}")],
        "Only headings.": ["$ printf '# Changelog\\n## Unreleased\\n' > CHANGELOG.md", "say The changelog is begun."],
    });
    stub("meanings.json", &meanings.to_string());
    let tour = tour(&file("README.md"));
    assert!(tour.len() > 15, "{tour:?}");
    let mut ids: BTreeMap<String, String> = BTreeMap::new();
    for (mut command, expected) in tour {
        for (told, real) in ids.iter().filter(|(told, _)| told.len() >= 8) {
            command = command.replace(told.as_str(), real);
        }
        let run = team.run_program(
            "bash",
            [
                "-c",
                &format!(
                    "PATH={programs}:{}:$PATH\nexec 2>&1\n{command}",
                    bin.display()
                ),
            ],
        );
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let mut actual = run.stdout.lines();
        for line in &expected {
            if line == "…" {
                actual = "".lines();
                break;
            }
            let wanted = words(line);
            let found = words(actual.next().unwrap_or_default());
            let same = wanted.len() == found.len()
                && wanted
                    .iter()
                    .zip(&found)
                    .all(|(a, b)| agree(a, b, &mut ids));
            assert!(
                same,
                "$ {command}\nthe README says: {line}\nit prints:\n{}",
                run.stdout
            );
        }
        assert_eq!(
            actual.next(),
            None,
            "$ {command}\nprints more than the README says:\n{}",
            run.stdout
        );
    }
    team.until_no_process_is_left();
}
