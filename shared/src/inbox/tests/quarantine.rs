//! Lines that are no messages.

use super::*;

fn rejection(text: &str) -> Rejection {
    Rejection { reason: ParseError::NotAnObject, text: text.to_owned() }
}

fn entries(dir: &TeamDir) -> Vec<Rejected> {
    let bytes = dir.read(&TeamPath::rejected(&alice())).unwrap();
    let lines = bytes.split(|&byte| byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[test]
fn a_reader_that_died_before_it_recorded_its_position_rejects_once() {
    let (_scratch, dir) = team();
    let put = |offset, text| reject(&dir, &alice(), offset, &rejection(text), 1.5).unwrap();
    assert!(put(0, "a") && put(10, "b") && put(20, "c"));
    assert!(!put(0, "a") && !put(10, "b") && !put(20, "c"), "the next incarnation reads the batch again");
    assert!(put(30, "d"));
    assert!(put(0, "other"), "in a truncated inbox another line has this place");
    let texts: Vec<_> = entries(&dir).into_iter().map(|entry| entry.line).collect();
    assert_eq!(texts, ["a", "b", "c", "d", "other"]);
}

#[test]
fn an_entry_has_the_fields_that_people_look_for() {
    let (_scratch, dir) = team();
    reject(&dir, &alice(), 7, &rejection("a\u{2028}b"), 1.5).unwrap();
    let bytes = dir.read(&TeamPath::rejected(&alice())).unwrap();
    let expected = r#"{"line":"a\u2028b","offset":7,"reason":"not a JSON object","at":1.5}"#;
    assert_eq!(String::from_utf8(bytes).unwrap(), format!("{expected}\n"));
}

#[test]
fn a_torn_entry_becomes_a_line_of_its_own() {
    let (_scratch, dir) = team();
    reject(&dir, &alice(), 0, &rejection("a"), 1.5).unwrap();
    let path = dir.path(&TeamPath::rejected(&alice()));
    OpenOptions::new().append(true).open(path).unwrap().write_all(b"{\"line\":\"b").unwrap();
    assert!(!reject(&dir, &alice(), 0, &rejection("a"), 1.5).unwrap());
    assert!(reject(&dir, &alice(), 10, &rejection("b"), 1.5).unwrap());
    assert_eq!(entries(&dir).len(), 2);
}
