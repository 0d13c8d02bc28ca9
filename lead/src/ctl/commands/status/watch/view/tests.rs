use super::*;
use crate::ctl::grouping::Standing;
use serde_json::{Value, json};
use teamd_shared::config::RosterMember;
use teamd_shared::request::Request;

const SIZE: (usize, usize) = (80, 24);

/// A team as a test describes it: name, group, word, what it says, and the id of its plan.
#[derive(Default)]
struct Stage {
    members: Vec<RosterMember>,
    plans: Vec<Option<Request>>,
    standings: Vec<Standing>,
}

impl Stage {
    fn of(rows: &[(&str, Group, &'static str, &str, &str)]) -> Self {
        let mut stage = Self::default();
        for &(name, group, word, what, plan) in rows {
            let member =
                json!({"name": name, "status": "idle", "gate": "open", "role": "coder", "model": "script"});
            stage.members.push(serde_json::from_value(member).unwrap());
            stage.standings.push(Standing { group, word, what: what.to_owned(), since: 0.0 });
            stage.plans.push((!plan.is_empty()).then(|| request(name, plan)));
        }
        stage
    }

    fn frame(&self, view: &mut View, size: (usize, usize)) -> Vec<String> {
        let rows: Vec<Row<'_>> = self
            .members
            .iter()
            .zip(&self.plans)
            .zip(&self.standings)
            .map(|((member, plan), standing)| {
                let (standing, plan) = (standing.clone(), plan.as_ref());
                Row {
                    member,
                    standing,
                    task: None,
                    plan,
                    cost: None,
                    unread: None,
                    unnoticed: false,
                    resources: None,
                }
            })
            .collect();
        let frame = view.frame(&rows, &Roster::default(), size);
        frame.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }
}

fn request(from: &str, id: &str) -> Request {
    let value: Value = json!({"request_id": id, "kind": "plan_approval", "from": from, "to": "lead", "status": "pending",
        "payload": {"plan": "# Plan\n\nSplit the parser\u{202e}\u{1b}[2J\n"}, "incarnation": 1,
        "message_id": "018f0000-0000-7000-8000-000000000000", "created_at": 1.0, "resolved_at": null, "reason": null});
    serde_json::from_value(value).unwrap()
}

fn press(view: &mut View, key: char, now: Instant) -> Option<Wish> {
    let code = match key {
        '\n' => KeyCode::Enter,
        '\u{1b}' => KeyCode::Esc,
        other => KeyCode::Char(other),
    };
    view.key(KeyEvent::new(code, KeyModifiers::NONE), now)
}

/// Two plans, `ana` first.
fn two() -> Stage {
    Stage::of(&[
        ("ana", Group::NeedsYou, "plan", "a1a1a1a1 Split the parser", "a1a1a1a1"),
        ("bo", Group::NeedsYou, "plan", "b2b2b2b2 Drop the cache", "b2b2b2b2"),
        ("cy", Group::Working, "working", "bash: make", ""),
    ])
}

fn id(wish: Option<Wish>) -> Option<String> {
    match wish {
        Some(Wish::Answer(verdict)) => Some(verdict.request_id.as_str().to_owned()),
        _ => None,
    }
}

#[test]
fn a_key_acts_on_the_plan_that_was_on_the_screen() {
    let (mut view, start) = (View::default(), Instant::now());
    two().frame(&mut view, SIZE);
    view.drawn(start);
    let later = start + SETTLES;
    assert_eq!(id(press(&mut view, 'a', start)), None, "the row has just appeared");
    // The first key shows the plan, which must settle too; the second one approves.
    assert_eq!(id(press(&mut view, 'a', later)), None);
    assert!(two().frame(&mut view, SIZE)[1].starts_with("a1a1a1a1  plan of ana, 3 lines:"));
    view.drawn(later);
    assert_eq!(id(press(&mut view, 'a', later)), None);
    let later = later + SETTLES;
    // The list is reordered: the selection stays with the teammate.
    let reordered = Stage::of(&[
        ("bo", Group::NeedsYou, "plan", "b2b2b2b2 Drop the cache", "b2b2b2b2"),
        ("ana", Group::NeedsYou, "plan", "a1a1a1a1 Split the parser", "a1a1a1a1"),
    ]);
    press(&mut view, '\u{1b}', later);
    let frame = reordered.frame(&mut view, SIZE);
    assert!(frame[4].starts_with("> ana"), "{frame:#?}");
    let later = open(&reordered, &mut view, later);
    // Another plan of the same teammate: the old id until it is drawn, nothing for a moment, then the new one.
    let mut next = reordered;
    next.plans[1] = Some(request("ana", "c3c3c3c3"));
    assert_eq!(press(&mut view, 'r', later), None);
    assert!(next.frame(&mut view, SIZE)[22].starts_with("reject a1a1a1a1 of ana"));
    view.drawn(later);
    press(&mut view, '\u{1b}', later);
    assert_eq!(id(press(&mut view, 'a', later + SETTLES / 2)), None);
    assert!(next.frame(&mut view, SIZE)[22].contains("has just changed"));
    let later = open(&next, &mut view, later);
    assert_eq!(id(press(&mut view, 'a', later)).as_deref(), Some("c3c3c3c3"));
}

/// Opens the details of the selected teammate, and returns when they have settled.
fn open(stage: &Stage, view: &mut View, now: Instant) -> Instant {
    press(view, '\n', now);
    stage.frame(view, SIZE);
    view.drawn(now);
    now + SETTLES
}

#[test]
fn a_plan_is_approved_only_when_all_of_it_was_on_the_screen() {
    let mut stage = two();
    let long = json!({"plan": (1..=60).map(|n| format!("step {n}\n")).collect::<String>()});
    stage.plans[0].as_mut().unwrap().payload = serde_json::from_value(long).unwrap();
    let (mut view, start) = (View::default(), Instant::now());
    stage.frame(&mut view, SIZE);
    view.drawn(start);
    let mut now = open(&stage, &mut view, start);
    for shown in [41, 60] {
        assert_eq!(id(press(&mut view, 'a', now)), None);
        let frame = stage.frame(&mut view, SIZE);
        assert!(frame.iter().any(|line| *line == format!("step {shown}")), "{frame:#?}");
        view.drawn(now);
        now += SETTLES;
    }
    assert_eq!(id(press(&mut view, 'a', now)).as_deref(), Some("a1a1a1a1"));
    // The next plan is selected when the answered one has left the list.
    stage.plans[0] = None;
    stage.standings[0].group = Group::Idle;
    stage.members.rotate_left(1);
    stage.plans.rotate_left(1);
    stage.standings.rotate_left(1);
    let frame = stage.frame(&mut view, SIZE);
    assert!(frame.iter().any(|line| line.starts_with("> bo")), "{frame:#?}");
}

#[test]
fn when_the_selected_teammate_is_gone_the_next_row_must_settle_first() {
    let (mut view, start) = (View::default(), Instant::now());
    two().frame(&mut view, SIZE);
    view.drawn(start);
    let later = start + SETTLES;
    let left = Stage::of(&[("bo", Group::NeedsYou, "plan", "b2b2b2b2 Drop the cache", "b2b2b2b2")]);
    left.frame(&mut view, SIZE);
    view.drawn(later);
    assert_eq!(id(press(&mut view, 'a', later)), None);
    let later = open(&left, &mut view, later);
    assert_eq!(id(press(&mut view, 'a', later)).as_deref(), Some("b2b2b2b2"));
    Stage::default().frame(&mut view, SIZE);
}

#[test]
fn feedback_is_asked_on_one_line_and_pasted_text_is_never_a_key() {
    let (mut view, start) = (View::default(), Instant::now());
    two().frame(&mut view, SIZE);
    view.drawn(start);
    let later = start + SETTLES;
    view.paste("a\r");
    assert_eq!(press(&mut view, 'j', later), None);
    two().frame(&mut view, SIZE);
    view.drawn(later);
    let later = later + SETTLES;
    assert_eq!(press(&mut view, 'r', later), None);
    for key in "no\u{1b}".chars().take(2) {
        press(&mut view, key, later);
    }
    view.paste(", keep\nthe cache\u{202e}");
    // What changes meanwhile changes nothing in what is answered.
    let frame =
        Stage::of(&[("cy", Group::NeedsYou, "plan", "d4d4d4d4 x", "d4d4d4d4")]).frame(&mut view, SIZE);
    view.drawn(later);
    assert_eq!(frame[22], "reject b2b2b2b2 of bo, because: no, keep the cache\\u{202e}█");
    let Some(Wish::Answer(verdict)) = press(&mut view, '\n', later) else { panic!("no answer") };
    assert_eq!((verdict.request_id.as_str(), verdict.approve), ("b2b2b2b2", false));
    assert_eq!(verdict.feedback, "no, keep the cache\u{202e}");
    assert_eq!(press(&mut view, 'q', later), Some(Wish::Quit));
}

#[test]
fn the_details_show_the_whole_plan_and_nothing_a_terminal_acts_on() {
    let (mut view, start) = (View::default(), Instant::now());
    two().frame(&mut view, SIZE);
    view.drawn(start);
    press(&mut view, '\n', start);
    let shown = two().frame(&mut view, (60, 40)).join("\n");
    assert!(shown.contains("Split the parser\\u{202e}\\u{1b}[2J"), "{shown}");
    assert!(shown.contains("⏎ back"), "{shown}");
    press(&mut view, '\u{1b}', start);
    assert!(two().frame(&mut view, SIZE)[2].starts_with("  NEEDS YOU 2"));
}

#[test]
fn each_line_fits_and_the_selected_row_is_on_the_screen() {
    let long = "the model failed: ".to_owned() + &"読む ".repeat(1 << 16);
    let names: Vec<String> = (0..300).map(|n| format!("implementer-of-the-feature-{n}")).collect();
    let rows: Vec<_> =
        names.iter().map(|name| (name.as_str(), Group::Stuck, "failed", long.as_str(), "")).collect();
    let stage = Stage::of(&rows[..30]);
    let many =
        Stage::of(&names.iter().map(|n| (n.as_str(), Group::Idle, "idle", "", "")).collect::<Vec<_>>());
    for size in [(60, 20), (80, 24), (200, 60), (20, 5)] {
        let mut view = View::default();
        for frame in [stage.frame(&mut view, size), many.frame(&mut view, size)] {
            assert_eq!(frame.len(), size.1.max(FRAME + 1));
            for line in frame.iter().filter(|_| size.0 >= 60) {
                assert!(width(line) <= size.0, "{size:?} {line}");
            }
        }
        for step in 0..299 {
            view.key(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE), Instant::now());
            let frame = many.frame(&mut view, size);
            let selected = format!("> {}", names[step + 1]);
            assert!(
                frame.iter().any(|line| line.starts_with(&selected[..size.0.min(selected.len())])),
                "{step}"
            );
        }
    }
}
