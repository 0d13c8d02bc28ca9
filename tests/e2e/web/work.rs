//! A person works on the page, in a browser.

use super::Page;
use crate::support::Team;
use crate::support::browser::drive;

#[test]
fn a_person_works_on_the_page_with_forms_buttons_keys_and_back() {
    let team = Team::started();
    let id = super::planned(&team, "ana", "# First\\n\\nDrop the cache.");
    team.spawn_rejecting("bo", "chapter two is not written yet");
    let page = Page::of(&team, &[]);
    let Some(said) = drive("work.mjs", &[&page.url]) else {
        return;
    };
    let steps: Vec<&str> = said.lines().collect();
    assert_eq!(
        steps,
        [
            "refused: error: no teammate is named \"nobody\", or has this role",
            "kept: Greet politely",
            "task: 1 Greet politely",
            "back from the form: #/task/1",
            "cancelled: cancelled",
            "open again: pending",
            "reloaded: 1 Greet politely",
            "selected: 1 Greet politely",
            "rejected: error: bo rejected the shutdown: chapter two is not written yet",
            "calls: 3 | echo old > a.txt; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $i; done",
            "lines: line 1,line 2,line 3,line 4,line 9,line 10,line 11,line 12 | 4 more lines",
            "changed: -old,+new",
            "failed: ✕ exit 3",
            "found: 1",
            "end: #/requests",
        ]
    );
    assert_eq!(team.request(&id)["reason"], "keep the cache");
}
