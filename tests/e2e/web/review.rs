//! A person reviews submitted work on the page, in a browser.

use serde_json::{Value, json};

use super::{Page, is_harmless};
use crate::checkouts::task;
use crate::review::{SUBMIT, reviewed, submitted_by};
use crate::support::Team;
use crate::support::browser::drive;

/// Work with a defect, generated and binary files, one that has moved, names and lines that would
/// be markup or turn a text round, a line of a megabyte, and 20,000 lines.
const WORK: &str = "echo 'fn total(a: u32) -> u32 { a - 1 }' > calc.rs; seq 90 > x.lock; \
    for i in $(seq 20000); do echo \"    let line_$i = $i; // why\"; done > long.txt; head -n 300 long.txt > some.rs; \
    printf '%01048576d' 0 > wide.txt; printf '\\0\\1' > pic; echo '</script><img src=x onerror=alert(1)>' > '<b>&\"x.html'; \
    printf 'a\\xe2\\x80\\xaeb\\x1b[2J\\n' > $'a\\nb\\x1b[2J\\xe2\\x80\\xae<i>'; chmod +x a.txt; \
    git add .; git commit -qm work";

fn submitted(work: &str) -> (Team, String) {
    let team = submitted_by(work);
    let id = id_of_review(&team);
    (team, id)
}

fn id_of_review(team: &Team) -> String {
    let requests = team.json(["reviews"]);
    requests[0]["request_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_person_comments_on_lines_of_the_work_on_the_page_and_answers() {
    let (team, id) = submitted(WORK);
    let page = Page::of(&team, &[]);
    let sent = page.changes("of=1");
    assert!(sent.iter().all(is_harmless), "{}", sent[0]);
    let titles = sent[0]["files"].as_array().unwrap().iter();
    let titles: Vec<String> = titles
        .map(|file| format!("{} {} {}", file["letter"], file["title"], file["remark"]))
        .collect();
    for expected in [
        "\"A\" \"a\\\\nb\\\\u{1b}[2J\\\\u{202e}<i>\" \"\"",
        "\"M\" \"a.txt\" \"mode 100644 → 100755\"",
        "\"A\" \"pic\" \"binary\"",
        "\"A\" \"x.lock\" \"generated\"",
    ] {
        assert!(
            titles.iter().any(|it| it == expected),
            "{expected}: {titles:#?}"
        );
    }
    // A teammate that waits for nothing would be reminded of rejected work, and lose it.
    let go = team.root().join("go");
    let busy = format!("/bash until [ -e {} ]; do sleep 0.02; done", go.display());
    team.teamctl(["send", "alice", &busy]).ok();
    let review = |comments: &Value| {
        let order = json!({"id": id, "approve": false, "feedback": "", "work": sent[0]["work"], "comments": comments});
        page.post("/review", &order.to_string())
    };
    let comment = |file: u64, line: u64, text: &str| json!([{"since": false, "file": file, "hunk": 0, "line": line, "text": text}]);
    for (comments, code, why) in [
        (
            comment(99, 0, "x"),
            409,
            "a line that the work does not have",
        ),
        (
            comment(3, 9_999_999, "x"),
            409,
            "a line that the work does not have",
        ),
        (comment(3, 0, " "), 409, "a comment is empty"),
        (
            comment(3, 0, &"x".repeat(20_000)),
            409,
            "longer than 16 KiB",
        ),
        (
            json!([{"since": true, "file": 0, "hunk": 0, "line": 0, "text": "x"}]),
            409,
            "no earlier submission",
        ),
        (json!([]), 409, "a rejection says why"),
        (json!([{"file": 0}]), 400, "not such an order"),
        (comment(3, 0, &"x".repeat(70_000)), 413, "too long"),
    ] {
        let answer = review(&comments);
        assert_eq!(answer.code, code, "{comments}: {}", answer.body);
        assert!(answer.body.contains(why), "{why}: {}", answer.body);
    }
    let other = json!({"id": id, "approve": true, "feedback": "", "work": "of before", "comments": comment(3, 0, "x")});
    let other = page.post("/review", &other.to_string());
    assert!(other.body.contains("has changed since"), "{}", other.body);
    assert_eq!(task(&team, 1)["status"], "in_review");
    let Some(said) = drive("review.mjs", &[&page.url, &id]) else {
        return;
    };
    let steps: Vec<&str> = said.lines().filter(|line| !line.starts_with('{')).collect();
    assert_eq!(
        steps,
        [
            "made at first: some",
            "approve: disabled",
            "colours: some",
            "comment: a <b>defect</b>",
            "axe, light: nothing serious",
            "axe, dark: nothing serious",
            "by the keyboard: why?",
            "after a reload: 2 comments go to alice",
            "side by side: 2 comments, below their half",
            "folded: x.lock",
            "at the end: enabled",
            "answered",
        ]
    );
    team.until("the feedback", || {
        let inbox = team.inbox("alice");
        inbox.iter().any(|it| {
            let text = it.to_string();
            text.contains("please fix\\n\\n")
                && text.contains("calc.rs:1: a <b>defect</b>\\n> +fn total(a: u32)")
        })
    });
    let fix = "sed -i 's/- 1/+ 1/' calc.rs; git commit -qam fix";
    let fix = format!("/bash {fix}\n{SUBMIT}");
    team.teamctl(["send", "alice", &fix]).ok();
    team.write("go", "");
    reviewed(&team, 2);
    let since = page.changes("of=1&since=1");
    assert_eq!(since[0]["summary"], "1 file, +1 -1");
    assert!(
        since[1].to_string().contains("+ 1") || since[1].to_string().contains("a "),
        "{}",
        since[1]
    );
    // What a teammate has that is not submitted is read the same way.
    let own = page.changes("of=alice");
    assert!(
        own[0]["files"].is_array() && own[0]["facts"].is_null(),
        "{}",
        own[0]
    );
    let nothing = page.changes("of=7");
    assert!(
        nothing[0]["error"]
            .as_str()
            .unwrap()
            .contains("there is no task 7"),
        "{}",
        nothing[0]
    );
}

#[test]
fn a_diff_that_is_too_long_for_a_page_or_for_all_is_refused() {
    let line = "x".repeat(1000);
    let work = |count: u32| {
        format!("yes {line} | head -n {count} > long.txt; git add .; git commit -qm long")
    };
    for (count, why) in [
        (20_000, "longer than 16 MiB"),
        (70_000, "longer than 64 MiB"),
    ] {
        let (team, _) = submitted(&work(count));
        let page = Page::of(&team, &[]);
        let sent = page.changes("of=1");
        let error = sent[0]["error"].as_str().unwrap_or_default();
        assert!(sent.len() == 1 && error.contains(why), "{}", sent[0]);
    }
}
