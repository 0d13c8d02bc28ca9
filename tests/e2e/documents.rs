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
