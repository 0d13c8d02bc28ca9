//! The view without a terminal: a team in memory, keys, and the screen as text.

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};
use teamd_client::args::TeamctlCommand;
use teamd_client::testing::{member, spawned};
use teamd_shared::clock::wall;
use teamd_shared::config::Roster;
use teamd_shared::control::TaskOrder;
use teamd_shared::id::RequestId;
use teamd_shared::journal::reader::fold;
use teamd_shared::journal::{Line, Team};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::price::Prices;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use super::app::{App, Pane, Wish};
use super::draw::TopScene;
use crate::model::{Feed, FeedStep, Past, SeenTeam, Side, TeamFiles, rows, sort};
use crate::review::Reviewed;
use crate::terminal::SETTLES;

/// A team, what a person does with it, and the screen.
struct ViewUnderTest {
    app: App,
    dir: TeamDir,
    _scratch: tempfile::TempDir,
    roster: Roster,
    journal: Vec<String>,
    now: Instant,
    size: (u16, u16),
}

const PLAN: &str = "# Plan\n\nSplit the parser\n\n1. Move the lexer.\n2. Give `Token` a span.\n3. Run the tests.\n4. Tell finn.\n5. Measure.\n6. Write it down.\n7. Ship it.\n8. Rest.";

impl ViewUnderTest {
    fn new(members: &Value, size: (u16, u16)) -> Self {
        let (scratch, dir) = teamd_client::testing::team(members);
        let roster = teamd_client::read::roster::load(&dir).unwrap();
        let app = App::default();
        let journal = Vec::new();
        let now = Instant::now();
        let mut stage = Self {
            app,
            dir,
            _scratch: scratch,
            roster,
            journal,
            now,
            size,
        };
        let names: Vec<String> = stage
            .roster
            .members
            .iter()
            .map(|it| it.name.to_string())
            .collect();
        for name in names {
            let seq = stage.next();
            stage.journal.push(spawned(seq, &name));
        }
        stage
    }

    fn next(&self) -> u64 {
        self.journal.len() as u64 + 1
    }

    fn line(&mut self, mut line: Value) {
        line["seq"] = json!(self.next());
        line["at"] = json!(1_000.0 + self.next() as f64);
        line["done"] = json!(0);
        self.journal.push(format!("{line}\n"));
    }

    /// A request of a member, or of the lead to it.
    fn request(&mut self, (id, name): (&str, &str), kind: &str, status: &str, text: &str) {
        let (from, to) = if kind == "shutdown" {
            ("lead", name)
        } else {
            (name, "lead")
        };
        let payload = match kind {
            "shutdown" => json!({"reason": text, "decide_within": 30.0, "force_after": null}),
            "review" => {
                json!({"task": 5, "submission": 2, "subject": "Task 5", "summary": text, "by": "person"})
            }
            _ => json!({"plan": text}),
        };
        let event = if status == "pending" { "asked" } else { status };
        let created = wall() - 41.5;
        let resolved = (status != "pending").then(|| wall() - 37.5);
        self.line(json!({"record": "request", "event": event, "request_id": id, "kind": kind, "from": from, "to": to,
            "status": status, "payload": payload, "incarnation": 1,
            "message_id": "018f0000-0000-7000-8000-000000000000", "created_at": created, "resolved_at": resolved,
            "reason": resolved.map(|_| "chapter two is not written yet")}));
    }

    fn task(&mut self, id: u32, status: &str, fields: &Value) {
        let mut task = json!({"record": "task", "event": "created", "by": "user", "id": id, "subject": format!("Task {id}"),
            "description": "", "status": status, "owner": null, "blocked_by": [], "blocks": [], "for": null, "priority": 0,
            "check": null, "attempts": 0, "returns": 0, "reminders": 0, "idle_releases": 0, "max_attempts": 3, "result": null, "created_by": "user", "created_at": 1.0,
            "updated_at": f64::from(id)});
        task.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        self.line(task);
    }

    fn team(&self) -> Team {
        fold(self.journal.concat().as_bytes(), |_, _| {}).unwrap()
    }

    /// Draws a frame, as the loop does, and returns the screen.
    fn draw(&mut self) -> String {
        let team = self.team();
        let mut feed = Feed::default();
        let lines = self
            .journal
            .iter()
            .map(|line| serde_json::from_str::<Line>(line).unwrap());
        let lines: Vec<Line> = lines.collect();
        let mut past = Past::default();
        for line in lines.iter() {
            past.line(line);
        }
        feed.add(lines.iter().filter_map(FeedStep::of_line));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _in_it = runtime.enter();
        let mut files = TeamFiles::begin(&self.dir, true).unwrap();
        if let Some(name) = self.app.agent_of_selected(&team) {
            files.follow(&name);
        }
        let running = teamd_client::read::roster::running_names(&self.roster);
        let mut rows = rows(&self.roster.members, &running, &team, &Prices::built_in());
        sort(&mut rows);
        self.app.set(&rows, &team, &past, feed.items());
        let (read, _) = files.seen();
        let roster = &self.roster;
        let running = &running;
        let trouble = None;
        let seen = SeenTeam {
            roster,
            running,
            team: &team,
            past: &past,
            feed: &feed,
            trouble,
            ..read
        };
        let mut scene = TopScene {
            rows,
            seen,
            has_daemon: true,
            now: wall(),
            look: &mut |_, closely| {
                (
                    Side {
                        unread: Some(3),
                        ..Side::default()
                    },
                    closely.then_some(18 << 20),
                )
            },
            write_task: &|id| match past.tasks.get(&id) {
                Some(past) => crate::act::task_text(&self.dir, (roster, &team), &past.task),
                None => String::new(),
            },
        };
        let mut terminal = Terminal::new(TestBackend::new(self.size.0, self.size.1)).unwrap();
        terminal
            .draw(|frame| self.app.draw(frame, &mut scene))
            .unwrap();
        self.app.reading.drawn(self.now);
        if let Some(review) = &mut self.app.review {
            review.drawn(self.now);
        }
        let cells = terminal.backend().buffer().content();
        let rows = cells.chunks(self.size.0.into()).map(|row| {
            row.iter()
                .map(ratatui::buffer::Cell::symbol)
                .collect::<String>()
                .trim_end()
                .to_owned()
                + "\n"
        });
        without_times(&rows.collect::<String>())
    }

    /// Presses keys, each on a screen that has been there for a while.
    fn press(&mut self, keys: &str) -> Vec<Wish> {
        let mut wishes = Vec::new();
        for key in keys.chars() {
            self.draw();
            self.now += SETTLES;
            wishes.extend(self.key(key));
        }
        wishes
    }

    fn key(&mut self, key: char) -> Option<Wish> {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        self.app
            .key(KeyEvent::new(code, KeyModifiers::NONE), self.now)
    }
}

/// The time of day depends on where the test runs.
fn without_times(screen: &str) -> String {
    let mut shown = String::new();
    let mut rest = screen;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        shown.push_str(before);
        let is_time = from.len() > 8
            && from.bytes().take(8).enumerate().all(|(n, b)| {
                if n % 3 == 2 {
                    b == b':'
                } else {
                    b.is_ascii_digit()
                }
            });
        let (this, next) = if is_time {
            ("HH:MM:SS", &from[8..])
        } else {
            from.split_at(1)
        };
        shown.push_str(this);
        rest = next;
    }
    (shown + rest).replace("Dec 31 1969", "Jan 01 1970")
}

fn members() -> Value {
    let of = |name: &str, status: &str, age: f64| {
        let mut member = member(name, status);
        member["role"] = json!("coder");
        member["updated_at"] = json!(wall() - age);
        member
    };
    let mut dee = of("dee", "working", 130.5);
    dee["activity"] = json!("bash: cargo test --workspace");
    dee["usage"] = json!({"input_tokens": 56_000, "output_tokens": 1_200, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0});
    dee["model"] = json!("anthropic:m1");
    let mut ana = of("ana", "awaiting_approval", 41.5);
    ana["gate"] = json!("closed");
    let mut hana = of("hana", "crashed", 29.5);
    hana["exit"] = json!({"code": null, "signal": 9, "at": 1.0, "request_id": null, "unread": 0, "inbox": Position::START, "note": "3 times in 60 s"});
    json!([
        ana,
        dee,
        of("finn", "idle", 37.5),
        hana,
        of("gus", "shutdown", 99.5)
    ])
}

fn stage(size: (u16, u16)) -> ViewUnderTest {
    let mut stage = ViewUnderTest::new(&members(), size);
    stage.request(("7b468522", "ana"), "plan_approval", "pending", PLAN);
    stage.request(
        ("a1b2c3d4", "finn"),
        "shutdown",
        "pending",
        "we need the slot",
    );
    stage.request(
        ("a1b2c3d4", "finn"),
        "shutdown",
        "rejected",
        "we need the slot",
    );
    stage.task(
        1,
        "pending",
        &json!({"subject": "Fix the parser: it loses the last line", "blocks": [2]}),
    );
    stage.task(2, "pending", &json!({"blocked_by": [1]}));
    stage.task(3, "in_progress", &json!({"owner": "dee", "attempts": 1}));
    stage.task(4, "failed", &json!({"attempts": 3}));
    stage.task(5, "in_review", &json!({"owner": "finn"}));
    let entry = |event: Value| {
        let mut line = json!({"at": 1.0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}});
        line.as_object_mut()
            .unwrap()
            .extend(event.as_object().unwrap().clone());
        format!("{line}\n")
    };
    let call = json!([{"type": "text", "text": "I run **all** tests."},
        {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "cargo test"}}]);
    let entries = [
        entry(
            json!({"entry": "incarnation", "incarnation": 1, "conversation": 1, "prompt": "Run the tests."}),
        ),
        entry(
            json!({"entry": "answer", "usage": {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}, "content": call}),
        ),
        entry(
            json!({"entry": "result", "tool_use_id": "t", "content": "one\ntwo\nall ok\n", "is_error": false}),
        ),
    ];
    let dee = TeamPath::transcript(&Name::new("dee").unwrap());
    teamd_shared::fs::replace(&stage.dir, &dee, entries.concat().as_bytes()).unwrap();
    stage
}

#[test]
fn each_pane_fits_a_small_and_a_large_screen() {
    for size in [(80, 24), (200, 50)] {
        for (number, pane) in ["team", "requests", "tasks", "feed"]
            .into_iter()
            .enumerate()
        {
            let mut stage = stage(size);
            stage.press(&format!("{}", number + 1));
            insta::assert_snapshot!(format!("{pane}-{}", size.0), stage.draw());
        }
        let mut stage = stage(size);
        // Needs you: ana, finn. Stuck: hana. Then dee works.
        stage.press("jjj\n");
        insta::assert_snapshot!(format!("conversation-{}", size.0), stage.draw());
        stage.press("o");
        assert!(stage.draw().contains("    two"));
    }
}

#[test]
fn the_smallest_screen_shows_what_is_selected() {
    for (pane, shown) in [("1", "▌ ana"), ("2", "▌ ana"), ("3", "▌ 1 Fix"), ("4", "▌")] {
        let mut stage = stage((20, 5));
        stage.press(pane);
        let screen = stage.draw();
        assert!(screen.contains(shown), "{pane}: {screen}");
    }
}

#[test]
fn the_smallest_screen_shows_all_of_a_plan_and_takes_the_answer() {
    let mut stage = stage((20, 5));
    assert!(stage.press("2a").is_empty());
    assert!(
        stage.app.notice.contains("Enter shows one"),
        "{}",
        stage.app.notice
    );
    stage.press("\n");
    let mut shown = String::new();
    for _ in 0..40 {
        shown.push_str(&stage.draw());
        stage.press("j");
    }
    for line in PLAN.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(
            words.iter().all(|word| shown.contains(word)),
            "{line}:\n{shown}"
        );
    }
    assert!(matches!(&stage.press("a")[..], [Wish::Answer(verdict)] if verdict.approve));
    stage.press("\x1b");
    assert!(stage.draw().contains("▌ ana"));
}

#[test]
fn what_does_not_fit_is_cut_with_a_mark_and_an_empty_column_takes_no_room() {
    let mut stage = stage((60, 20));
    stage.task(
        6,
        "pending",
        &json!({"subject": "A subject that is longer than a line of the feed on this screen"}),
    );
    stage.press("4");
    let screen = stage.draw();
    let line = screen.lines().find(|line| line.contains("task 6")).unwrap();
    assert!(line.ends_with('…'), "{screen}");
    stage.press("3");
    assert!(stage.draw().contains("IN PROGRESS 1"));
    stage.task(3, "completed", &json!({}));
    let screen = stage.draw();
    assert!(
        !screen.contains("IN PRO") && screen.contains("IN REVIEW 1"),
        "{screen}"
    );
}

#[test]
fn the_keys_are_listed_and_a_question_is_asked_before_a_teammate_leaves() {
    let mut stage = stage((80, 24));
    stage.press("?");
    insta::assert_snapshot!("help-80", stage.draw());
    stage.press("\x1bx");
    let screen = stage.draw();
    assert!(
        screen.contains("Ask ana to shut down?") && screen.contains("y yes"),
        "{screen}"
    );
    assert!(stage.press("n").is_empty() && !stage.draw().contains("Ask ana"));
    let wishes = stage.press("xy");
    assert!(
        matches!(&wishes[..], [Wish::Call(command)] if matches!(&**command, TeamctlCommand::Shutdown(args)
        if args.names[0].as_str() == "ana" && !args.force))
    );
}

#[test]
fn a_request_is_approved_only_when_each_line_of_it_was_on_the_screen() {
    // The list, the heading and eight of twelve lines.
    let mut stage = stage((80, 19));
    assert!(stage.press("a").is_empty());
    assert!(
        stage
            .draw()
            .contains("nothing was answered: the text continues here")
    );
    let mut scrolled = self::stage((80, 19));
    assert_eq!(scrolled.press(" a").len(), 1);
    let wishes = stage.press("a");
    let [Wish::Answer(verdict)] = &wishes[..] else {
        panic!("{wishes:?}\n{}", stage.draw())
    };
    assert_eq!(
        (verdict.request_id.as_str(), verdict.approve),
        ("7b468522", true)
    );
    assert_eq!(verdict.what, "plan 7b468522 of ana");
}

#[test]
fn an_answer_is_for_the_request_that_was_on_the_screen_long_enough() {
    let mut stage = stage((80, 40));
    stage.draw();
    assert!(stage.key('a').is_none());
    assert!(
        stage.app.notice.contains("look again"),
        "{}",
        stage.app.notice
    );
    stage.now += SETTLES;
    let Some(Wish::Answer(verdict)) = stage.key('a') else {
        panic!()
    };
    assert_eq!(verdict.request_id.as_str(), "7b468522");
    // Another plan has come in its place, in the very frame.
    stage.request(("7b468522", "ana"), "plan_approval", "approved", PLAN);
    stage.request(
        ("99999999", "ana"),
        "plan_approval",
        "pending",
        "Delete everything",
    );
    stage.draw();
    stage.now += SETTLES - Duration::from_millis(1);
    assert!(stage.key('a').is_none() && stage.key('r').is_none());
    // What is covered by another text cannot be answered.
    stage.press("?");
    stage.draw();
    stage.now += SETTLES;
    assert!(stage.key('a').is_none());
}

#[test]
fn a_rejection_says_why_and_an_approval_may() {
    let mut stage = stage((80, 40));
    assert!(stage.press("r\n").is_empty());
    assert!(
        stage
            .draw()
            .contains("reject plan 7b468522 of ana, because"),
        "{}",
        stage.draw()
    );
    let wishes = stage.press("no q\n");
    let [Wish::Answer(verdict)] = &wishes[..] else {
        panic!("{wishes:?}")
    };
    assert_eq!(
        (verdict.approve, verdict.feedback.as_str()),
        (false, "no q")
    );
    let wishes = stage.press("Aok\n");
    let [Wish::Answer(verdict)] = &wishes[..] else {
        panic!("{wishes:?}")
    };
    assert_eq!((verdict.approve, verdict.feedback.as_str()), (true, "ok"));
}

#[test]
fn what_is_typed_or_pasted_is_text_and_never_a_key() {
    let mut stage = stage((80, 24));
    stage.press("s");
    stage.app.paste("q\r\ny\ra");
    let wishes = stage.press("x\n");
    let [Wish::Send(name, text)] = &wishes[..] else {
        panic!("{wishes:?}")
    };
    assert_eq!((name.as_str(), text.as_str()), ("ana", "q\ny\nax"));
    stage.app.paste("qqq");
    assert!(stage.press("s\x1b").is_empty());
    let wishes = stage.press("nzoe --role coder");
    assert!(wishes.is_empty());
    stage.app.paste("\nFix it, all of it.");
    let wishes = stage.press("\n");
    assert!(
        matches!(&wishes[..], [Wish::Call(command)] if matches!(&**command, TeamctlCommand::Spawn(args)
        if args.name.as_str() == "zoe" && args.terms.prompt.as_deref() == Some("Fix it, all of it.")))
    );
    for (wrong, told) in [
        ("Zoe", "is not a name"),
        ("zoe --prompt-file -", "stdin is the terminal"),
    ] {
        assert!(stage.press(&format!("n{wrong}\n")).is_empty());
        assert!(stage.app.notice.contains(told), "{}", stage.app.notice);
    }
}

#[test]
fn tasks_are_added_tried_again_and_cancelled() {
    let mut stage = stage((80, 24));
    stage.press("3a");
    stage.app.paste("Write it down\nAll of it.");
    let wishes = stage.press("\nlllt\n");
    let [
        Wish::Task(TaskOrder::Add { tasks, .. }),
        Wish::Task(TaskOrder::Retry(4, _)),
        Wish::ShowTask(4),
    ] = &wishes[..]
    else {
        panic!("{wishes:?}")
    };
    assert_eq!(tasks[0].subject.as_deref(), Some("Write it down"));
    assert_eq!(tasks[0].description.as_deref(), Some("All of it."));
    let wishes = stage.press("hcy");
    assert!(
        matches!(&wishes[..], [Wish::Task(TaskOrder::Cancel(5))]),
        "{wishes:?}"
    );
}

#[test]
fn a_click_selects_and_does_nothing_else() {
    let mut stage = stage((80, 24));
    stage.draw();
    let click = |stage: &mut ViewUnderTest, row| {
        let kind = MouseEventKind::Down(MouseButton::Left);
        stage.app.mouse(MouseEvent {
            kind,
            column: 4,
            row,
            modifiers: KeyModifiers::NONE,
        });
        stage.draw();
    };
    click(&mut stage, 4);
    assert_eq!(stage.app.agent().map(Name::as_str), Some("finn"));
    stage.app.mouse(MouseEvent {
        kind: MouseEventKind::Down(MouseButton::Left),
        column: 12,
        row: 1,
        modifiers: KeyModifiers::NONE,
    });
    assert_eq!(stage.app.pane, Pane::Requests);
}

#[test]
fn the_filter_leaves_only_what_it_is_found_in() {
    let mut stage = stage((80, 24));
    stage.press("/CARGO\n");
    let screen = stage.draw();
    assert!(
        screen.contains("dee") && !screen.contains("NEEDS YOU"),
        "{screen}"
    );
    assert!(screen.contains("/CARGO"), "{screen}");
    assert!(
        screen.contains("● 2 need you"),
        "the header counts all: {screen}"
    );
    stage.press("\x1b");
    assert!(stage.draw().contains("NEEDS YOU"));
    stage.press("/no such\n");
    let screen = stage.draw();
    assert!(
        screen.contains("Esc shows all") && screen.contains("2 Requests 1"),
        "{screen}"
    );
    assert!(
        !screen.contains("shut down"),
        "no teammate is selected: {screen}"
    );
}

#[test]
fn no_size_and_no_text_breaks_the_screen() {
    let hostile = format!(
        "\u{1b}[2J\u{202e}x\t{}\u{1b}]0;t\u{7}\u{200b}",
        "小明".repeat(300)
    );
    let mut members = members();
    for member in members.as_array_mut().unwrap() {
        member["role"] = json!(hostile);
        member["activity"] = json!(hostile);
        member["model"] = json!(hostile);
    }
    let mut stage = ViewUnderTest::new(&members, (80, 24));
    stage.request(
        ("7b468522", "ana"),
        "plan_approval",
        "pending",
        &format!("{hostile}\n{hostile}"),
    );
    stage.task(
        1,
        "pending",
        &json!({"subject": hostile, "description": hostile, "for": hostile}),
    );
    for size in [
        (1, 1),
        (2, 30),
        (20, 5),
        (40, 3),
        (80, 24),
        (300, 2),
        (119, 24),
        (121, 6),
        (220, 70),
    ] {
        stage.size = size;
        for keys in [
            "1", "2", "3", "4", "5", "?", "\x1b", "3\n", "\x1b", "4\n", "\x1bs", "\x1b", "x", "n",
        ] {
            stage.press(keys);
            let screen = stage.draw();
            assert!(
                !screen.contains(['\u{1b}', '\u{202e}', '\u{200b}', '\u{7}']),
                "{size:?}:\n{screen}"
            );
        }
    }
}

/// A name of a file and lines that would act on a terminal.
const HOSTILE_DIFF: &str = "diff --git \"a/a\\nb\\033[2J\" \"b/a\\nb\\033[2J\"\nnew file mode 100755\n--- /dev/null\n+++ \"b/a\\nb\\033[2J\"\n\
    @@ -0,0 +1,3 @@\n+fn a() {}\n+\u{1b}[2J\u{202e}x\u{1b}]0;t\u{7}\u{200b}\n+小明\n";

fn diff_of(lines: usize) -> String {
    let added: String = (1..=lines).map(|n| format!("+let x{n} = {n};\n")).collect();
    format!(
        "diff --git a/calc.rs b/calc.rs\n--- a/calc.rs\n+++ b/calc.rs\n@@ -1,0 +1,{lines} @@\n{added}"
    )
}

/// A team in which finn's work waits for a review, and ana's plan.
fn submitted(size: (u16, u16)) -> ViewUnderTest {
    let mut stage = stage(size);
    stage.task(
        5,
        "in_review",
        &json!({"owner": "finn", "submission": {"number": 2, "by": "finn", "summary": "done", "checks": [],
            "stage": "reviewing", "request_id": "5e5e5e5e"}}),
    );
    stage.request(("5e5e5e5e", "finn"), "review", "pending", "done");
    stage
}

impl ViewUnderTest {
    /// Has the work read for which the person waits.
    fn read(&mut self, diff: &str, since: Option<&str>) {
        let team = self.team();
        let id: RequestId = serde_json::from_value(json!("5e5e5e5e")).unwrap();
        let task = team.tasks.values().find(|task| task.id.to_string() == "5");
        let request = team.requests[&id].clone();
        let reviewed = Reviewed::of_diff(task.unwrap().clone(), request, diff, since);
        self.app.reviewed(&id, Ok(reviewed));
    }

    fn has_review(&self) -> bool {
        self.app.review.is_some()
    }
}

#[test]
fn a_review_is_opened_from_the_request_the_task_and_its_author() {
    for keys in ["2j\n", "2ja", "3ll\n", "j\n", "ja"] {
        let mut stage = submitted((80, 24));
        let wishes = stage.press(keys);
        assert!(
            matches!(&wishes[..], [Wish::Review(id)] if id.as_str() == "5e5e5e5e"),
            "{keys}: {wishes:?}\n{}",
            stage.draw()
        );
        assert!(stage.draw().contains("the work is being read"), "{keys}");
        // Nothing of it can be answered, and the work comes to no one who has left.
        assert!(stage.press("ar1A").is_empty() && stage.has_review());
        stage.press("q");
        stage.read(&diff_of(3), None);
        assert!(!stage.has_review(), "{keys}");
    }
}

#[test]
fn a_review_fits_the_screens_and_stands_beside_the_list_on_a_large_one() {
    for size in [(80, 24), (60, 20), (160, 50)] {
        let mut stage = submitted(size);
        stage.press("2j\n");
        let small = "diff --git a/calc.rs b/calc.rs\n--- a/calc.rs\n+++ b/calc.rs\n@@ -1,2 +1,2 @@ fn total\n context\n-let a = 1;\n+let a = 2;\n";
        stage.read(small, None);
        insta::assert_snapshot!(format!("review-{}", size.0), stage.draw());
    }
}

#[test]
fn work_is_approved_once_all_of_it_was_on_the_screen() {
    let mut stage = submitted((80, 24));
    stage.press("2j\n");
    stage.read(&diff_of(50), None);
    stage.draw();
    // The key that was meant for what was there before.
    assert!(stage.key('a').is_none());
    let screen = stage.draw();
    assert!(screen.contains("the work has just come"), "{screen}");
    assert!(stage.press("Ga").is_empty());
    let screen = stage.draw();
    assert!(screen.contains("were not on the screen"), "{screen}");
    let wishes = stage.press("g    a");
    assert!(
        matches!(&wishes[..], [Wish::AnswerReview { request_id, approve: true, .. }] if request_id.as_str() == "5e5e5e5e"),
        "{wishes:?}\n{}",
        stage.draw()
    );
    // Once, however often the key is pressed.
    assert!(stage.press("a").is_empty() && stage.has_review());
    let id = stage.app.review.as_ref().unwrap().request_id.clone();
    stage
        .app
        .review_answered(&id, false, "error: no daemon runs".to_owned());
    let screen = stage.draw();
    assert!(screen.contains("error: no daemon runs"), "{screen}");
    assert_eq!(stage.press("a").len(), 1);
    stage
        .app
        .review_answered(&id, true, "the review 5e5e5e5e is approved".to_owned());
    let screen = stage.draw();
    assert!(!stage.has_review() && screen.contains("5e5e5e5e is approved"));
}

#[test]
fn a_rejection_carries_the_comments_and_a_key_does_not_lose_them() {
    let mut stage = submitted((80, 24));
    stage.press("2j\n");
    stage.read(&diff_of(50), Some(&diff_of(2)));
    stage.press("njjcoff by one\n");
    assert!(stage.draw().contains("» off by one"));
    assert!(stage.press("q").is_empty() && stage.has_review());
    let screen = stage.draw();
    assert!(screen.contains("1 comment would be lost"), "{screen}");
    stage.press("N");
    assert!(stage.draw().contains("(since the last submission)"));
    let wishes = stage.press("rfix it\n");
    let [
        Wish::AnswerReview {
            approve, feedback, ..
        },
    ] = &wishes[..]
    else {
        panic!("{wishes:?}")
    };
    assert!(!approve);
    assert_eq!(feedback, "fix it\n\ncalc.rs:1: off by one\n> +let x1 = 1;");
    let mut stage = submitted((80, 24));
    stage.press("2j\n");
    stage.read(&diff_of(50), None);
    stage.press("njjcoff by one\nqq");
    assert!(!stage.has_review());
}

#[test]
fn a_review_that_ends_meanwhile_takes_no_answer_and_stays_readable() {
    let mut stage = submitted((80, 24));
    stage.press("2j\n");
    stage.read(&diff_of(3), None);
    stage.press("r");
    stage.request(("5e5e5e5e", "finn"), "review", "approved", "done");
    let screen = stage.draw();
    assert!(
        screen.contains("5e5e5e5e was approved meanwhile") && !screen.contains("a approve"),
        "{screen}"
    );
    assert!(stage.press("arA").is_empty());
    let screen = stage.draw();
    assert!(screen.contains("nothing can be answered"), "{screen}");
    assert!(stage.press("j").is_empty() && stage.has_review());
}

#[test]
fn no_diff_and_no_size_breaks_a_review() {
    for size in [(1, 1), (20, 5), (60, 20), (80, 24), (141, 12), (220, 70)] {
        let mut stage = submitted(size);
        stage.press("3ll\n");
        stage.read(HOSTILE_DIFF, Some(HOSTILE_DIFF));
        for keys in [
            "j",
            "n",
            "jj",
            "c\u{202e}x\n",
            "s",
            "N",
            "o",
            "?",
            "\x1b",
            "G",
            "r",
            "\x1b",
        ] {
            stage.press(keys);
            let screen = stage.draw();
            assert!(
                !screen.contains(['\u{1b}', '\u{202e}', '\u{200b}', '\u{7}']),
                "{size:?}:\n{screen}"
            );
        }
    }
}
