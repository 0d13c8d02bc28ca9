//! The documents say what is true.

use std::path::Path;

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn each_failure_that_is_called_impossible_is_shown_by_a_test() {
    let document = file("docs/failures.md");
    let rows: Vec<Vec<&str>> = document
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| #"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let numbers: Vec<String> = rows.iter().map(|row| row[0].to_owned()).collect();
    assert_eq!(numbers, (1..=30).map(|number: u32| number.to_string()).collect::<Vec<_>>());
    for row in &rows {
        let tests: Vec<(&str, &str)> = row[4].split('`').filter_map(|name| name.rsplit_once("::")).collect();
        assert!(!tests.is_empty(), "failure {}", row[0]);
        for (module, test) in tests {
            let source = file(&format!("tests/e2e/{}.rs", module.replace("::", "/")));
            assert!(
                source.contains(&format!("#[test]\nfn {test}()")),
                "failure {}: {module}::{test}",
                row[0]
            );
        }
    }
}

/// The sources of everything, in one text.
fn sources() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<_> = ["lead", "worker", "shared", "tests"].map(|folder| root.join(folder)).into();
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

#[test]
fn each_test_that_stands_for_a_promise_is_there() {
    let (document, sources) = (file("docs/reliability.md"), sources());
    let named = document.split('`').skip(1).step_by(2).filter_map(|name| name.rsplit_once("::"));
    let tests: Vec<&str> = named.map(|(_, test)| test).filter(|test| test.contains('_')).collect();
    assert!(tests.len() > 20, "{tests:?}");
    for test in tests {
        // A property takes arguments.
        assert!(sources.contains(&format!("fn {test}(")), "{test} is nowhere");
    }
    let mutants = document.split('`').skip(1).step_by(2);
    let mutants = mutants.filter(|name| {
        name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(char::is_alphabetic)
    });
    for mutant in mutants.filter(|name| name.chars().filter(char::is_ascii_uppercase).count() > 1) {
        let known =
            ["SIGKILL", "SIGTERM"].contains(&mutant) || sources.contains(&format!("Mutant::{mutant}"));
        assert!(known || sources.contains(&format!("    {mutant},")), "{mutant} is nowhere");
    }
}

/// What stands between backticks in a document, code blocks left out.
fn quoted(document: &str) -> Vec<&str> {
    let prose = document.split("```").step_by(2);
    prose.flat_map(|text| text.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn each_path_that_a_document_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let documents = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut named = 0;
    for path in documents.chain([root.join("README.md")]).filter(|path| path.is_file()) {
        let document = std::fs::read_to_string(&path).unwrap();
        // Links that lead to another file, and paths of the source.
        let links = document.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let links = links.filter(|link| !link.is_empty() && !link.contains("://"));
        let here = path.parent().unwrap();
        let links = links.map(|link| (link, here.join(link)));
        let quoted = quoted(&document).into_iter().filter_map(|text| text.split([' ', ':']).next());
        let folders = ["lead/", "worker/", "shared/", "tests/", "scripts/", "docs/"];
        let of_source = |text: &&str| folders.iter().any(|folder| text.starts_with(folder));
        let plain = |text: &&str| !text.contains(['*', '<', '{', '…']) && !text.contains("NAME");
        let quoted = quoted.filter(of_source).filter(plain).map(|text| (text, root.join(text)));
        for (text, there) in links.chain(quoted) {
            named += 1;
            assert!(there.exists(), "{} names {text}, which is not there", path.display());
        }
    }
    assert!(named > 20, "only {named} paths were found");
}

#[test]
fn each_window_in_which_a_process_can_die_has_its_row() {
    let document = file("docs/reliability.md");
    let section = document.split("## 6.").nth(1).unwrap().split("## 7.").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let rows: Vec<&str> = rows.flat_map(|ids| ids.split(", ")).collect();
    let many = [("I", 1..=11), ("I", 20..=23), ("S", 1..=11), ("T", 1..=8)];
    let more = [("P", 1..=12), ("D", 1..=19), ("A", 1..=19)];
    for (letter, numbers) in many.into_iter().chain(more) {
        for id in numbers.map(|number| format!("{letter}{number}")) {
            assert_eq!(rows.iter().filter(|row| **row == id).count(), 1, "{id}");
        }
    }
}
