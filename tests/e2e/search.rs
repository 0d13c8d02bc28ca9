//! `glob` and `grep`, called by the script model in a real workspace.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::support::Team;

fn content(result: &Value) -> &str {
    result["content"].as_str().unwrap()
}

fn grep(input: &Value) -> String {
    format!("/grep {input}")
}

fn folder(team: &Team, name: &str) {
    fs::create_dir_all(team.root().join(name)).unwrap();
}

/// Sets when a file was changed, in seconds before now.
fn age(team: &Team, name: &str, seconds: u64) {
    let file = File::options()
        .write(true)
        .open(team.root().join(name))
        .unwrap();
    let then = SystemTime::now() - Duration::from_secs(seconds);
    file.set_modified(then).unwrap();
}

#[test]
fn files_and_lines_are_found_but_what_is_ignored_is_not() {
    let team = Team::started();
    for name in ["src/deep", "target", ".github", ".git"] {
        folder(&team, name);
    }
    team.write(".gitignore", "target\n");
    team.write("src/one.rs", "fn one() {\n    two()\n}\n");
    team.write("src/deep/two.rs", "fn two() {}\n");
    team.write("target/out.rs", "fn two() {}\n");
    team.write(".github/ci.rs", "fn hidden() {}\n");
    team.write(".git/config.rs", "fn two() {}\n");
    team.write("image.bin", "two\0two\n");
    team.write("long.txt", &format!("two{}\n", "x".repeat(600)));
    for (seconds, name) in [
        (30, "src/one.rs"),
        (10, "src/deep/two.rs"),
        (20, ".github/ci.rs"),
    ] {
        age(&team, name, seconds);
    }
    team.spawn("alice", "");
    let orders = [
        "/glob {\"pattern\": \"*.rs\"}".to_owned(),
        "/glob {\"pattern\": \"src/*.rs\"}".to_owned(),
        "/glob {\"pattern\": \"*.py\"}".to_owned(),
        grep(&json!({"pattern": r"\btwo\(", "path": "src"})),
        grep(&json!({"pattern": "two", "glob": "one.rs", "context": 1})),
        grep(&json!({"pattern": "hidden"})),
        grep(&json!({"pattern": "^two", "path": team.root().join("long.txt")})),
        grep(&json!({"pattern": "two", "path": "image.bin"})),
        grep(&json!({"pattern": "x", "path": "missing"})),
        grep(&json!({"pattern": "a(b"})),
    ];
    let results = team.does("alice", &orders.join("\n"));
    let expected = [
        "src/deep/two.rs\n.github/ci.rs\nsrc/one.rs",
        "src/one.rs",
        "no file matches",
        "src/deep/two.rs:1:fn two() {}\nsrc/one.rs:2:    two()",
        "src/one.rs-1-fn one() {\nsrc/one.rs:2:    two()\nsrc/one.rs-3-}",
        ".github/ci.rs:1:fn hidden() {}",
    ];
    for (result, expected) in results.iter().zip(expected) {
        assert_eq!(content(result), expected);
        assert_eq!(result["is_error"], json!(false));
    }
    let long = content(&results[6]);
    assert!(long.ends_with("x [cut]") && long.len() < 600, "{long}");
    assert_eq!(content(&results[7]), "no line matches");
    for (result, why) in [
        (&results[8], "No such file"),
        (&results[9], "unclosed group"),
    ] {
        assert!(content(result).contains(why), "{result}");
        assert_eq!(result["is_error"], json!(true));
    }
}

#[test]
fn of_what_is_much_a_part_is_shown_with_the_count_of_the_rest() {
    let team = Team::started();
    folder(&team, "many");
    for number in 0..230 {
        team.write(&format!("many/{number}.txt"), "hit\nhit\nmiss\n");
    }
    // No line of it fits into memory as it is.
    let huge = File::create(team.root().join("huge")).unwrap();
    huge.set_len(1 << 30).unwrap();
    team.write("a\nb:1:c", "hit\n");
    team.spawn("alice", "");
    let results = team.does(
        "alice",
        "/glob {\"pattern\": \"many/*\"}\n/grep {\"pattern\": \"hit\", \"glob\": \"many/*\"}\n/grep {\"pattern\": \"hit\", \"glob\": \"a*\"}\n\
         /grep {\"pattern\": \"hit\", \"path\": \"huge\"}",
    );
    let files: Vec<&str> = content(&results[0]).lines().collect();
    assert_eq!(files.len(), 201);
    assert_eq!(files[200], "[and 30 more: narrow the pattern]");
    let lines: Vec<&str> = content(&results[1]).lines().collect();
    assert_eq!(lines.len(), 251);
    assert!(
        lines[250].starts_with("[210 more matches in 105 files: "),
        "{}",
        lines[250]
    );
    assert_eq!(content(&results[2]), "a\\nb:1:c:1:hit");
    assert_eq!(content(&results[3]), "no line matches");
}
