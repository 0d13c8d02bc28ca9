//! `teamctl status`: who is on the roster, and what everybody does. It reads files and `/proc` only, so it
//! works without a daemon, and then says that nobody keeps the roster up to date.

use anstyle::Style;
use serde_json::{Value, json};
use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::member::Gate;
use teamd_shared::team_dir::{DirError, TeamDir};

use crate::ctl::args::StatusArgs;
use crate::ctl::context::Context;
use crate::ctl::output::paint;
use crate::ctl::render::{BAD, BOLD, DIM, exit, status_style, under};
use crate::ctl::table::{Cell, Table, cut};
use crate::ctl::{clock, roster};
use crate::error::CommandResult;
use crate::exit_code::ExitCode;

/// How much of a role the table shows, in columns.
const ROLE: usize = 24;

/// A member, with what the roster alone does not tell.
struct Row<'r> {
    member: &'r RosterMember,
    /// None where the inbox cannot be read.
    unread: Option<u64>,
    /// It has ended, and no daemon was there to record it.
    unnoticed: bool,
}

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &StatusArgs) -> CommandResult {
    let dir = match TeamDir::open(&context.path) {
        Ok(dir) => dir,
        Err(DirError::Missing(path)) if args.name.is_none() => {
            context.out.note(format_args!("there is no team at {} yet", path.display()));
            context.out.hint("`teamd start` makes one");
            if context.out.is_json() {
                context.out.json(&document(
                    &Roster {
                        version: 1,
                        seq: 0,
                        team_name: String::new(),
                        daemon: None,
                        sandbox: None,
                        members: Vec::new(),
                    },
                    &[],
                ))?;
            }
            return Ok(ExitCode::Done);
        }
        Err(error) => return Err(error.into()),
    };
    let roster = roster::load(&dir)?;
    let shown = match &args.name {
        Some(name) => vec![roster::find(&roster, name)?],
        None => roster.members.iter().collect(),
    };
    let rows = shown.into_iter().map(|member| row(&dir, &roster, member)).collect::<Vec<_>>();
    if context.out.is_json() {
        context.out.json(&document(&roster, &rows))?;
    } else if args.name.is_some() {
        context.out.text(rows.iter().map(details).collect::<String>())?;
    } else if rows.is_empty() {
        context.out.note("nobody is on the roster");
        context.out.hint("`teamctl spawn NAME` starts a teammate");
    } else {
        context.out.text(table(&rows).render(context.out.width()))?;
    }
    if roster::daemon_pid(&roster).is_none() {
        context.out.note("the daemon is not running: this is what the files say");
    }
    if let Some(why) = roster.sandbox.as_ref().and_then(|sandbox| sandbox.weak.as_ref()) {
        context.out.note(format_args!("the sandbox is weak, as somebody has allowed; not held: {why}"));
    }
    for row in rows.iter().filter(|row| row.unnoticed) {
        context
            .out
            .note(format_args!("the process of {} is gone: `teamd start` will record it", row.member.name));
    }
    Ok(ExitCode::Done)
}

fn row<'r>(dir: &TeamDir, roster: &Roster, member: &'r RosterMember) -> Row<'r> {
    // One odd inbox must not hide the others.
    let unread = roster::unread(dir, member).ok();
    Row { member, unread, unnoticed: roster::ended_unnoticed(roster, member) }
}

fn document(roster: &Roster, rows: &[Row<'_>]) -> Value {
    let pid = roster::daemon_pid(roster);
    let members: Vec<Value> = rows.iter().map(Row::to_json).collect();
    json!({"team_name": roster.team_name, "daemon": {"running": pid.is_some(), "pid": pid}, "sandbox": roster.sandbox, "members": members})
}

impl Row<'_> {
    fn to_json(&self) -> Value {
        let mut value = json!(self.member);
        value["unread"] = json!(self.unread);
        value
    }

    fn status_style(&self) -> Style {
        if self.unnoticed { BAD } else { status_style(self.member.status) }
    }

    fn activity(&self) -> String {
        match (&self.member.exit, self.unnoticed) {
            (_, true) => "its process is gone".to_owned(),
            (Some(it), _) if self.member.status.is_ended() => match &it.note {
                Some(note) => format!("{}; {note}", exit(it)),
                None => exit(it),
            },
            _ => self.member.activity.clone(),
        }
    }

    fn unread_cell(&self) -> Cell {
        match self.unread {
            None => Cell::styled("?", BOLD),
            Some(0) => Cell::styled("-", DIM),
            Some(unread) => Cell::styled(unread.to_string(), BOLD),
        }
    }
}

fn table(rows: &[Row<'_>]) -> Table {
    let mut table = Table::new(&["NAME", "ROLE", "STATUS", "SINCE", "UNREAD", "GATE", "PID", "DOING"]);
    for row in rows {
        let member = row.member;
        let gate = match member.gate {
            Gate::Open => Cell::styled(member.gate.as_str(), DIM),
            Gate::Closed => Cell::styled(member.gate.as_str(), BOLD),
        };
        table.row(vec![
            Cell::styled(member.name.as_str(), BOLD),
            Cell::new(cut(if member.role.is_empty() { "-" } else { &member.role }, Some(ROLE))),
            Cell::styled(member.status.as_str(), row.status_style()),
            Cell::new(clock::age(member.updated_at)),
            row.unread_cell(),
            gate,
            Cell::new(pid(member)),
            Cell::new(row.activity()),
        ]);
    }
    table
}

fn pid(member: &RosterMember) -> String {
    member.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string())
}

/// Shows everything about one member.
fn details(row: &Row<'_>) -> String {
    let member = row.member;
    let status = paint(row.status_style(), member.status.as_str());
    let mut lines =
        vec![format!("{}  {status} for {}", paint(BOLD, &member.name), clock::age(member.updated_at))];
    let mut line = |label: &str, text: &str| {
        if !text.is_empty() {
            lines.push(under(&format!("  {} ", paint(DIM, format_args!("{label:<11}"))), text));
        }
    };
    line("role", &member.role);
    line("doing", &member.activity);
    line("unread", &row.unread.map_or_else(|| "?".to_owned(), |unread| unread.to_string()));
    line("gate", member.gate.as_str());
    line("pid", &pid(member));
    line("incarnation", &member.incarnation.to_string());
    line("model", &member.model);
    line("workspace", &member.workspace);
    line("spawned", &clock::time_of_day(member.spawned_at));
    if let Some(it) = &member.exit {
        let life = if member.status.is_ended() { "ended" } else { "last life" };
        let seen = format!("{}, {}, {} unread", clock::time_of_day(it.at), exit(it), it.unread);
        let request = it.request_id.as_ref().map_or(String::new(), |id| format!(", by request {id}"));
        line(life, &format!("{seen}{request}"));
        line("note", it.note.as_deref().unwrap_or_default());
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::output::tests::{Captured, captured};
    use crate::ctl::roster::tests::{member, team};
    use teamd_shared::name::Name;
    use teamd_shared::settings::Settings;

    fn status(dir: &TeamDir, name: Option<&str>, json: bool) -> (CommandResult, Captured, Captured) {
        let (out, stdout, stderr) = captured(json);
        let context = Context { out, path: dir.root().to_owned(), settings: Settings::default() };
        let args = StatusArgs { name: name.map(|name| Name::new(name).unwrap()) };
        (run(&context, &args), stdout, stderr)
    }

    fn roster() -> Value {
        let mut alice = member("alice", "working");
        (alice["role"], alice["activity"]) = (json!("coder"), json!("cargo test\x1b[2J"));
        alice["updated_at"] = json!(teamd_shared::clock::wall() - 125.0);
        let mut bob = member("bob", "crashed");
        (bob["pid"], bob["updated_at"]) = (json!(null), json!(teamd_shared::clock::wall() + 30.0));
        bob["exit"] = json!({"code": null, "signal": 9, "at": 1.0, "request_id": null, "unread": 2, "note": "3 restarts in 60 s"});
        json!([alice, bob])
    }

    #[test]
    fn the_table_shows_everybody() {
        let mut members = roster();
        members[0]["pid"] = json!(4242);
        let members: Vec<RosterMember> = serde_json::from_value(members).unwrap();
        let row = |member, unread, unnoticed| Row { member, unread: Some(unread), unnoticed };
        let rows = [row(&members[0], 3, false), row(&members[1], 0, false), row(&members[0], 0, true)];
        let shown = anstream::adapter::strip_str(&table(&rows).render(None)).to_string();
        insta::assert_snapshot!(shown, @r"
        NAME   ROLE   STATUS   SINCE  UNREAD  GATE  PID   DOING
        alice  coder  working  2m     3       open  4242  cargo test\u{1b}[2J
        bob    -      crashed  0s     -       open  -     signal 9; 3 restarts in 60 s
        alice  coder  working  2m     -       open  4242  its process is gone
        ");
    }

    #[test]
    fn without_a_daemon_the_files_are_shown_and_that_is_said() {
        let (_scratch, dir) = team(&roster());
        let (result, stdout, stderr) = status(&dir, None, false);
        assert_eq!(result, Ok(ExitCode::Done));
        assert_eq!(stdout.text().lines().count(), 3);
        assert_eq!(stderr.text(), "note: the daemon is not running: this is what the files say\n");
    }

    #[test]
    fn json_holds_the_roster_as_it_is_and_the_unread_messages() {
        let (_scratch, dir) = team(&roster());
        std::fs::File::create(dir.root().join("inbox/alice.jsonl")).unwrap();
        let line = r#"{"type":"message","from":"user","content":"hi"}"#;
        teamd_shared::fs::replace(
            &dir,
            &teamd_shared::team_dir::TeamPath::inbox(&Name::new("bob").unwrap()),
            format!("{line}\n").as_bytes(),
        )
        .unwrap();
        let (result, stdout, _) = status(&dir, None, true);
        assert_eq!(result, Ok(ExitCode::Done));
        let shown: Value = serde_json::from_str(&stdout.text()).unwrap();
        assert_eq!(shown["daemon"], json!({"running": false, "pid": null}));
        assert_eq!((&shown["members"][0]["unread"], &shown["members"][1]["unread"]), (&json!(0), &json!(1)));
        assert_eq!(shown["members"][0]["activity"], "cargo test\x1b[2J");
    }

    #[test]
    fn one_teammate_is_shown_in_full_and_an_unknown_one_is_not_found() {
        let (_scratch, dir) = team(&roster());
        let (_, stdout, _) = status(&dir, Some("bob"), false);
        assert!(stdout.text().starts_with("bob  crashed for 0s\n  unread      0\n"), "{}", stdout.text());
        assert!(
            stdout.text().contains("signal 9, 2 unread\n  note        3 restarts in 60 s\n"),
            "{}",
            stdout.text()
        );
        assert_eq!(status(&dir, Some("carol"), false).0.unwrap_err().code(), ExitCode::NotFound);
    }

    #[test]
    fn where_no_team_is_the_way_to_one_is_shown() {
        let scratch = tempfile::tempdir().unwrap();
        let (out, _, stderr) = captured(false);
        let context = Context { out, path: scratch.path().join(".team"), settings: Settings::default() };
        assert_eq!(run(&context, &StatusArgs { name: None }), Ok(ExitCode::Done));
        assert!(stderr.text().ends_with("hint: `teamd start` makes one\n"), "{}", stderr.text());
    }
}
