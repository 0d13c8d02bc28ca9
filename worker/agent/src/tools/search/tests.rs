use serde_json::{Value, json};

use super::*;

fn search(search: Value) -> Search {
    serde_json::from_value(search).unwrap()
}

#[test]
fn a_pattern_without_a_slash_matches_in_each_folder() {
    for (pattern, path, matches) in [
        ("*.rs", "a.rs", true),
        ("*.rs", "src/deep/a.rs", true),
        ("a.rs", "src/a.rs", true),
        ("src/*.rs", "src/a.rs", true),
        ("./src/*.rs", "src/a.rs", true),
        ("src/*.rs", "src/deep/a.rs", false),
        ("src/**/*.{rs,toml}", "src/deep/a.toml", true),
        ("src/**/*.rs", "src/a.rs", true),
        ("src/**/*.rs", "other/src/a.rs", false),
    ] {
        let is_match = file_pattern(pattern).unwrap().is_match(path);
        assert_eq!(is_match, matches, "{pattern} {path}");
    }
}

#[test]
fn a_pattern_that_cannot_be_used_starts_nothing() {
    let long = "x".repeat(MAX_PATTERN + 1);
    for (wrong, why) in [
        (json!({"glob": {"pattern": "src/[x"}}), "src/**/*.rs"),
        (json!({"glob": {"pattern": long}}), "the limit is 4096"),
        (json!({"grep": {"pattern": "a("}}), "unclosed group"),
        (json!({"grep": {"pattern": long}}), "the limit is 4096"),
        (json!({"grep": {"pattern": "a\nb"}}), "\\n"),
        (
            json!({"grep": {"pattern": "((((a{50}){50}){50}){50}){50}"}}),
            "size limit",
        ),
        (
            json!({"grep": {"pattern": "a", "glob": "{a"}}),
            "src/**/*.rs",
        ),
    ] {
        let error = prepare(&search(wrong)).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn the_program_gets_what_was_asked_for() {
    let asked = json!({"grep": {"pattern": "a b", "path": "src", "context": 2}});
    let (arguments, shown) = prepare(&search(asked.clone())).unwrap();
    assert_eq!(shown, "grep a b");
    assert_eq!(arguments[0], SUBCOMMAND);
    let given: Value = serde_json::from_str(&arguments[1]).unwrap();
    assert_eq!(given, asked);
}
