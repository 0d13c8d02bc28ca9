use clap::Parser;
use teamd_client::print::grouping::{Facts, MemberStanding};
use teamd_client::testing::{Captured, context, member, team};
use teamd_shared::clock::wall;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::team_dir::TeamDir;

use super::*;

fn status(dir: &TeamDir, name: Option<&str>, json: bool) -> (CommandResult, Captured, Captured) {
    let (context, stdout, stderr) = context(dir, json);
    let args = StatusArgs {
        name: name.map(|name| Name::new(name).unwrap()),
        ..StatusArgs::default()
    };
    (run(&context, &args), stdout, stderr)
}

fn roster() -> Value {
    let mut alice = member("alice", "working");
    alice["role"] = json!("coder");
    alice["activity"] = json!("cargo test\x1b[2J");
    alice["updated_at"] = json!(wall() - 125.0);
    let mut bob = member("bob", "crashed");
    bob["pid"] = json!(null);
    bob["updated_at"] = json!(wall() + 30.0);
    bob["exit"] = json!({"code": null, "signal": 9, "at": 1.0, "request_id": null, "unread": 2, "inbox": Position::START, "note": "3 restarts in 60 s"});
    json!([alice, bob])
}

#[test]
fn the_table_shows_all_members() {
    let mut members = roster();
    members[0]["pid"] = json!(4242);
    let members: Vec<RosterMember> = serde_json::from_value(members).unwrap();
    let row = |member, unread, unnoticed| {
        let facts = Facts {
            unnoticed,
            ..Facts::default()
        };
        let standing = MemberStanding::of(member, facts, wall());
        MemberRow {
            member,
            standing,
            task: None,
            request: None,
            cost: None,
            unread: Some(unread),
            unnoticed,
            resources: None,
            serves: Vec::new(),
            mcp_servers: Vec::new(),
        }
    };
    let rows = [
        row(&members[0], 3, false),
        row(&members[1], 0, false),
        row(&members[0], 0, true),
    ];
    let shown = anstream::adapter::strip_str(&table::wide(&rows).render(None)).to_string();
    insta::assert_snapshot!(shown, @r"
    NAME   ROLE   STATUS   SINCE  UNREAD  GATE  PID   MODEL   DOING
    alice  coder  working  2m     3       open  4242  script  cargo test\u{1b}[2J
    bob    -      crashed  0s     -       open  -     script  signal 9; 3 restarts in 60 s
    alice  coder  working  2m     -       open  4242  script  its process is gone
    ");
}

fn costly() -> Value {
    let mut members = roster();
    let usage = |input, output| {
        json!({"input_tokens": input, "output_tokens": output, "cache_read_input_tokens": 8000,
            "cache_creation_input_tokens": 1900})
    };
    members[0]["usage"] = usage(100, 1234);
    members[0]["model"] = json!("anthropic:m1");
    members[0]["limits"] = json!({"max_turns": 9, "max_tokens": 200_000});
    members[0]["sandbox"]["mode"] = json!("off");
    members[1]["usage"] = usage(2_000_100, 0);
    members[1]["sandbox"]["mode"] = json!("read-only");
    members[1]["sandbox"]["no_network"] = json!(true);
    members[1]["sandbox"]["writable"] = json!(["/a", "/b"]);
    members[1]["sandbox"]["hidden"] = json!(["/k"]);
    members
}

#[test]
fn tokens_are_shown_where_there_are_some_and_summed_up() {
    let (_scratch, dir) = team(&costly());
    let (_, stdout, _) = status(&dir, None, false);
    let shown = anstream::adapter::strip_str(&stdout.text()).to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines[0].ends_with("MODEL         TOKENS                          DOING"),
        "{shown}"
    );
    assert!(
        lines[1].contains("10k in (80% cached) / 1.2k out"),
        "{shown}"
    );
    assert!(lines[1].contains("SANDBOX OFF; cargo test"), "{shown}");
    assert_eq!(lines[3], "tokens of the team: 2M in / 1.2k out");
    let (_, stdout, _) = status(&dir, None, true);
    let shown: Value = serde_json::from_str(&stdout.text()).unwrap();
    assert_eq!(shown["usage"]["input_tokens"], 2_000_200);
    assert_eq!(shown["usage"]["cache_read_input_tokens"], 16_000);
    assert_eq!(shown["members"][0]["usage"]["output_tokens"], 1234);
    assert_eq!(shown["members"][0]["limits"]["max_tokens"], 200_000);
}

#[test]
fn a_pause_in_a_model_call_is_shown_with_what_is_left_of_it() {
    let mut members = roster();
    members[0]["activity"] = json!("thinking");
    members[0]["waiting"] = json!({"until": wall() + 17.5, "why": "overloaded (529)"});
    let (_scratch, dir) = team(&members);
    let told = "waiting 18 s: overloaded (529)";
    for name in [None, Some("alice")] {
        let (_, stdout, _) = status(&dir, name, false);
        assert!(
            stdout.text().contains(&format!("  {told}\n")),
            "{}",
            stdout.text()
        );
        let (_, stdout, _) = status(&dir, name, true);
        let shown: Value = serde_json::from_str(&stdout.text()).unwrap();
        assert_eq!(
            shown["members"][0]["activity"], "thinking",
            "as in config.json"
        );
        assert_eq!(shown["members"][0]["waiting"]["why"], "overloaded (529)");
    }
}

#[test]
fn of_one_teammate_all_counters_the_budget_and_the_sandbox_are_shown() {
    let (_scratch, dir) = team(&costly());
    let shown =
        |name| anstream::adapter::strip_str(&status(&dir, Some(name), false).1.text()).to_string();
    let alice = shown("alice");
    assert!(
        alice.contains(": 10000 read (8000 from the cache, 1900 put into it), 1234 written\n"),
        "{alice}"
    );
    assert!(
        alice.contains("budget      9 model calls, 200k tokens for a piece of work\n"),
        "{alice}"
    );
    assert!(
        alice.contains("sandbox     OFF: its commands may do whatever you may\n"),
        "{alice}"
    );
    let bob = shown("bob");
    assert!(
        bob.contains("sandbox     read-only, no network; hidden: /k\n"),
        "{bob}"
    );
    assert!(
        bob.contains("budget      50 model calls for a piece of work\n"),
        "{bob}"
    );
}

#[test]
fn without_a_daemon_the_files_are_shown_and_that_is_said() {
    let (_scratch, dir) = team(&roster());
    let (result, stdout, stderr) = status(&dir, None, false);
    assert_eq!(result, Ok(ExitCode::Done));
    assert_eq!(stdout.text().lines().count(), 3);
    let said = "note: the daemon is not running; showing the last recorded state\n\
                hint: `teamctl spawn bob --resume` continues its conversation\n";
    assert_eq!(stderr.text(), said);
}

#[test]
fn json_holds_the_roster_as_it_is_and_the_unread_messages() {
    let (_scratch, dir) = team(&roster());
    std::fs::File::create(dir.root().join("inbox/alice.jsonl")).unwrap();
    let line = r#"{"type":"message","from":"user","content":"hi"}"#;
    teamd_shared::fs::replace(
        &dir,
        &TeamPath::inbox(&Name::new("bob").unwrap()),
        format!("{line}\n").as_bytes(),
    )
    .unwrap();
    let (result, stdout, _) = status(&dir, None, true);
    assert_eq!(result, Ok(ExitCode::Done));
    let shown: Value = serde_json::from_str(&stdout.text()).unwrap();
    assert_eq!(
        shown["daemon"],
        json!({"running": false, "pid": null, "trouble": null})
    );
    assert_eq!(
        (
            &shown["members"][0]["unread"],
            &shown["members"][1]["unread"]
        ),
        (&json!(0), &json!(1))
    );
    assert_eq!(shown["members"][0]["activity"], "cargo test\x1b[2J");
}

#[test]
fn one_teammate_is_shown_in_full_and_an_unknown_one_is_not_found() {
    let (_scratch, dir) = team(&roster());
    let (_, stdout, _) = status(&dir, Some("bob"), false);
    assert!(
        stdout
            .text()
            .starts_with("bob  crashed for 0s\n  unread      0\n"),
        "{}",
        stdout.text()
    );
    assert!(
        stdout
            .text()
            .contains("signal 9, 2 unread\n  note        3 restarts in 60 s\n"),
        "{}",
        stdout.text()
    );
    assert_eq!(
        status(&dir, Some("carol"), false).0.unwrap_err().code(),
        ExitCode::NotFound
    );
}

#[test]
fn where_no_team_is_the_way_to_one_is_shown() {
    let (scratch, dir) = team(&json!([]));
    let (mut context, ..) = context(&dir, false);
    context.path = scratch.path().join("none/.team");
    let error = run(&context, &StatusArgs::default()).unwrap_err();
    assert_eq!(error.code(), ExitCode::NotRunning);
    assert!(
        error
            .next_step()
            .unwrap()
            .starts_with("`teamd start` creates one here"),
        "{error:?}"
    );
}

/// One teammate of each sort, with a model and long texts.
fn mixed() -> Vec<RosterMember> {
    let usage = json!({"input_tokens": 100, "output_tokens": 1234, "cache_read_input_tokens": 181_000,
        "cache_creation_input_tokens": 1900});
    let row = |name: &str, status: &str, activity: &str, reason: &str| {
        let mut row = member(name, status);
        row["role"] = json!("coder");
        row["activity"] = json!(activity);
        row["model"] = json!("anthropic:claude-sonnet-4-5");
        row["usage"] = usage.clone();
        row["idle_reason"] = json!(Some(reason).filter(|it| !it.is_empty()));
        row["updated_at"] = json!(wall() - 125.0);
        row
    };
    let failed = "failed: 127.0.0.1:11434 refused the connection; is the service of the model running, and is the address \
        in ANTHROPIC_BASE_URL the right one?";
    let members = json!([
        row("w10", "idle", "", "available"),
        row("w2", "idle", "", "available"),
        row("jun", "idle", failed, "failed"),
        row(
            "implementer-of-feature-number-01",
            "working",
            "bash: cargo test --workspace --all-targets --no-fail-fast",
            ""
        ),
        row("ana", "awaiting_approval", "waiting for approval", ""),
        row("gus", "shutdown", "", ""),
        row("ida", "killed", "", ""),
        row("evil", "working", "bash: \u{1b}[2J\u{202e}txt.exe", ""),
    ]);
    serde_json::from_value(members).unwrap()
}

fn at_width(members: &[RosterMember], terminal: usize) -> String {
    let mut roster = Roster {
        members: members.to_vec(),
        ..Roster::default()
    };
    for member in &mut roster.members {
        member.pid = Some(4242);
    }
    let team = Team::default();
    let mut rows = rows(
        &roster.members,
        &Default::default(),
        &team,
        &Prices::built_in(),
    );
    for row in &mut rows {
        row.unread = Some(3);
        row.unnoticed = false;
        row.standing = MemberStanding::of(row.member, Facts::default(), wall());
    }
    sort(&mut rows);
    let shown = list(Some(terminal), &StatusArgs::default(), &rows);
    anstream::adapter::strip_str(&shown).to_string()
}

#[test]
fn the_list_fits_every_width_and_tells_the_reason_of_trouble() {
    let members = mixed();
    for terminal in (60..220).step_by(3) {
        let shown = at_width(&members, terminal);
        for line in shown.lines() {
            assert!(
                teamd_client::print::table::width(line) <= terminal,
                "{terminal}: {line}"
            );
        }
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("failed") && words.contains("127.0.0.1:11434"),
            "{terminal}:\n{shown}"
        );
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
    }
    for terminal in [60, 80, 120, 200] {
        insta::assert_snapshot!(format!("list-{terminal}"), at_width(&members, terminal));
    }
}

#[test]
fn columns_can_be_chosen_and_members_left_out() {
    let members = json!(mixed());
    let (_scratch, dir) = team(&members);
    let shown = |line: &[&str]| {
        let cli = teamd_client::args::Cli::try_parse_from([&["teamctl", "status"], line].concat())
            .unwrap();
        let teamd_client::args::TeamctlCommand::Status(args) = cli.command else {
            panic!()
        };
        let (context, stdout, stderr) = context(&dir, false);
        run(&context, &args).unwrap();
        (stdout.text(), stderr.text())
    };
    let (text, _) = shown(&["--running", "-o", "status,name"]);
    assert!(text.starts_with("STATUS"), "{text}");
    assert!(
        text.lines()
            .any(|line| line.split_whitespace().eq(["failed", "jun"])),
        "{text}"
    );
    assert!(!text.contains("gus"), "{text}");
    let (text, _) = shown(&["--waiting", "-o", "name"]);
    assert!(text.starts_with("NAME\nana\n"), "{text}");
    let (text, _) = shown(&[]);
    let names: Vec<&str> = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(
        &names[..8],
        [
            "ana",
            "evil",
            "gus",
            "ida",
            "implementer-of-feature-number-01",
            "jun",
            "w2",
            "w10"
        ]
    );
    for wrong in [["-o", "colour"], ["alice", "--wide"]] {
        let line = [&["teamctl", "status"], &wrong[..]].concat();
        assert!(
            teamd_client::args::Cli::try_parse_from(line).is_err(),
            "{wrong:?}"
        );
    }
}
