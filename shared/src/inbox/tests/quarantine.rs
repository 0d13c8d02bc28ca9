//! Lines that are no messages.

use super::*;

fn put(dir: &TeamDir, offset: u64, text: &str) -> bool {
    let bad = RejectedLine {
        line: text.to_owned(),
        offset,
        reason: "no object".to_owned(),
    };
    quarantine(dir, &alice(), &bad, 1.5).unwrap()
}

fn entries(dir: &TeamDir) -> Vec<Rejected> {
    let bytes = dir.read(&TeamPath::rejected(&alice())).unwrap();
    let lines = bytes.split(|&byte| byte == b'\n');
    lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

#[test]
fn a_reader_that_died_before_it_recorded_its_position_rejects_once() {
    let (_scratch, dir) = team();
    let put = |offset, text| put(&dir, offset, text);
    assert!(put(0, "a") && put(10, "b") && put(20, "c"));
    assert!(
        !put(0, "a") && !put(10, "b") && !put(20, "c"),
        "the next incarnation reads the batch again"
    );
    assert!(put(30, "d"));
    assert!(
        put(0, "other"),
        "in a truncated inbox another line has this place"
    );
    let texts: Vec<_> = entries(&dir)
        .into_iter()
        .map(|entry| entry.bad.line)
        .collect();
    assert_eq!(texts, ["a", "b", "c", "d", "other"]);
}

#[test]
fn an_entry_has_the_fields_that_people_look_for() {
    let (_scratch, dir) = team();
    put(&dir, 7, "a\u{2028}b");
    let bytes = dir.read(&TeamPath::rejected(&alice())).unwrap();
    let expected = r#"{"line":"a\u2028b","offset":7,"reason":"no object","at":1.5}"#;
    assert_eq!(String::from_utf8(bytes).unwrap(), format!("{expected}\n"));
}

#[test]
fn a_torn_entry_becomes_a_line_of_its_own() {
    let (_scratch, dir) = team();
    put(&dir, 0, "a");
    let path = dir.path(&TeamPath::rejected(&alice()));
    OpenOptions::new()
        .append(true)
        .open(path)
        .unwrap()
        .write_all(b"{\"line\":\"b")
        .unwrap();
    assert!(!put(&dir, 0, "a"));
    assert!(put(&dir, 10, "b"));
    assert_eq!(entries(&dir).len(), 2);
}
