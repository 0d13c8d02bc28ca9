//! `teamctl status`: who is on the roster, and what everybody does. It reads files and `/proc` only, so it
//! works without a daemon, and then says that nobody keeps the roster up to date.

use std::time::Duration;

use anstyle::Style;
use serde_json::{Value, json};
use teamd_shared::amount::{told, told_size};
use teamd_shared::clock::wall;
use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::member::{Bounds, Emptied, Exit, Gate, SandboxMode};
use teamd_shared::settings::DEFAULT_TURNS;
use teamd_shared::team_dir::{DirError, TeamDir};
use teamd_shared::transcript::Usage;

use crate::ctl::args::StatusArgs;
use crate::ctl::context::Context;
use crate::ctl::output::paint;
use crate::ctl::render::{BAD, BOLD, DIM, exit, status_style, under};
use crate::ctl::resources::{Processes, Resources};
use crate::ctl::table::{Cell, Table, cut};
use crate::ctl::{clock, roster, tokens};
use crate::error::CommandResult;
use crate::exit_code::ExitCode;

/// How much of a role the table shows, in columns.
const ROLE: usize = 24;
/// How much of a model's name it shows.
const MODEL: usize = 28;

/// A member, with what the roster alone does not tell.
struct Row<'r> {
    member: &'r RosterMember,
    /// None where the inbox cannot be read.
    unread: Option<u64>,
    /// It has ended, and no daemon was there to record it.
    unnoticed: bool,
    /// What its processes use; none if they are not asked for, or it does not run.
    resources: Option<Resources>,
}

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &StatusArgs) -> CommandResult {
    let dir = match TeamDir::open(&context.path) {
        Ok(dir) => dir,
        Err(DirError::Missing(path)) if args.name.is_none() => {
            context.out.note(format_args!("there is no team at {} yet", path.display()));
            context.out.hint("`teamd start` makes one");
            if context.out.is_json() {
                context.out.json(&document(&Roster::default(), &[]))?;
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
    let kept = roster::daemon_pid(&roster).is_some();
    // The table has no room for it, and a look at every process of the machine takes its time.
    let wanted = context.out.is_json() || args.name.is_some();
    let processes = wanted.then(Processes::read);
    let resources = |member| processes.as_ref().and_then(|it| it.of(&roster, member, args.name.is_some()));
    let rows = shown
        .into_iter()
        .map(|member| Row { resources: resources(member), ..row(&dir, &roster, member, kept) });
    let rows = rows.collect::<Vec<_>>();
    if context.out.is_json() {
        context.out.json(&document(&roster, &rows))?;
    } else if args.name.is_some() {
        context.out.text(rows.iter().map(details).collect::<String>())?;
    } else if rows.is_empty() {
        context.out.note("nobody is on the roster");
        context.out.hint("`teamctl spawn NAME` starts a teammate");
    } else {
        context.out.text(table(&rows).render(context.out.width()) + &sum(&roster))?;
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

/// `kept`: a daemon keeps the roster up to date.
fn row<'r>(dir: &TeamDir, roster: &Roster, member: &'r RosterMember, kept: bool) -> Row<'r> {
    // One odd inbox must not hide the others.
    let unread = roster::unread(dir, member).ok();
    Row { member, unread, unnoticed: !kept && roster::is_gone(roster, member), resources: None }
}

fn document(roster: &Roster, rows: &[Row<'_>]) -> Value {
    let pid = roster::daemon_pid(roster);
    let members: Vec<Value> = rows.iter().map(Row::to_json).collect();
    json!({"team_name": roster.team_name, "daemon": {"running": pid.is_some(), "pid": pid},
        "sandbox": roster.sandbox, "usage": total(roster), "members": members})
}

/// Sums up what the whole team has cost.
fn total(roster: &Roster) -> Usage {
    let mut total = Usage::default();
    roster.members.iter().for_each(|member| total += member.usage);
    total
}

/// Says what the team has cost, where it has cost anything.
fn sum(roster: &Roster) -> String {
    let total = total(roster);
    if total.is_nothing() { String::new() } else { format!("tokens of the team: {}\n", tokens::cost(&total)) }
}

impl Row<'_> {
    fn to_json(&self) -> Value {
        let mut value = json!(self.member);
        value["unread"] = json!(self.unread);
        value["resources"] = json!(self.resources);
        value
    }

    /// Since when it does not answer the daemon, if there is one.
    fn silent_since(&self) -> Option<f64> {
        self.member.silent_since.filter(|_| !self.unnoticed && !self.member.status.is_ended())
    }

    fn status_style(&self) -> Style {
        if self.unnoticed { BAD } else { status_style(self.member.status) }
    }

    fn activity(&self) -> String {
        if let Some(since) = self.silent_since() {
            let silent = Duration::try_from_secs_f64(wall() - since).unwrap_or_default();
            return format!("not responding for {}", told(silent));
        }
        if let Some(waiting) = self.member.waiting.as_ref().filter(|_| !self.unnoticed) {
            return waiting.told(wall());
        }
        match (&self.member.exit, self.unnoticed) {
            (_, true) => "its process is gone".to_owned(),
            (Some(it), _) if self.member.status.is_ended() => match &it.note {
                Some(note) => format!("{}; {note}", exit(it)),
                None => exit(it),
            },
            _ => self.member.activity.clone(),
        }
    }

    fn activity_cell(&self) -> Cell {
        if self.silent_since().is_some() {
            return Cell::styled(self.activity(), BAD);
        }
        // Whatever it does: a shell without walls is not to be overlooked.
        let unconfined = self.member.sandbox.mode == SandboxMode::Off && !self.member.status.is_ended();
        match (self.activity(), unconfined) {
            (activity, false) => Cell::new(activity),
            (activity, true) if activity.is_empty() => Cell::styled("SANDBOX OFF", BAD),
            (activity, true) => Cell::new(format!("SANDBOX OFF; {activity}")),
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
    // A team of scripts has no tokens, and no need for a column of them.
    let costs = rows.iter().any(|row| !row.member.usage.is_nothing());
    let mut titles = vec!["NAME", "ROLE", "STATUS", "SINCE", "UNREAD", "GATE", "PID", "MODEL"];
    titles.extend(costs.then_some("TOKENS"));
    // Where nobody crashed, nobody was started again.
    let restarts = rows.iter().any(|row| row.member.restarts > 0);
    titles.extend(restarts.then_some("RESTARTS"));
    titles.push("DOING");
    let mut table = Table::new(&titles);
    for row in rows {
        let member = row.member;
        let gate = match member.gate {
            Gate::Open => Cell::styled(member.gate.as_str(), DIM),
            Gate::Closed => Cell::styled(member.gate.as_str(), BOLD),
        };
        let mut cells = vec![
            Cell::styled(member.name.as_str(), BOLD),
            Cell::new(cut(if member.role.is_empty() { "-" } else { &member.role }, Some(ROLE))),
            Cell::styled(member.status.as_str(), row.status_style()),
            Cell::new(clock::age(member.updated_at)),
            row.unread_cell(),
            gate,
            Cell::new(pid(member)),
            Cell::new(cut(&member.model, Some(MODEL))),
        ];
        cells.extend(costs.then(|| match member.usage.is_nothing() {
            true => Cell::styled("-", DIM),
            false => Cell::new(tokens::cost(&member.usage)),
        }));
        cells.extend(restarts.then(|| match member.restarts {
            0 => Cell::styled("-", DIM),
            some => Cell::styled(some.to_string(), BOLD),
        }));
        cells.push(row.activity_cell());
        table.row(cells);
    }
    table
}

fn pid(member: &RosterMember) -> String {
    member.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string())
}

/// Shows all four counters of a conversation.
fn spent(usage: &Usage) -> String {
    if usage.is_nothing() {
        return String::new();
    }
    format!(
        "{}: {} read ({} from the cache, {} put into it), {} written",
        tokens::cost(usage),
        usage.input(),
        usage.cache_read_input_tokens,
        usage.cache_creation_input_tokens,
        usage.output_tokens
    )
}

/// Shows what one piece of work may cost.
fn budget(member: &RosterMember) -> String {
    let turns = member.limits.max_turns.unwrap_or(DEFAULT_TURNS);
    let tokens = member.limits.max_tokens.map(|most| format!(", {} tokens", tokens::count(most)));
    format!("{turns} model calls{} for a piece of work", tokens.unwrap_or_default())
}

/// Shows what one life may use, and who sees to that.
fn bounds(member: &RosterMember) -> String {
    let Bounds { memory, cpu_time, max_procs, max_time } = member.bounds;
    let seconds = |most| told(Duration::from_secs(most));
    let sum = member.cgroup.clone().unwrap_or_default();
    let of_memory =
        if sum.memory { "all together (cgroup), and each process (rlimit)" } else { "each process (rlimit)" };
    let of_procs = if sum.procs {
        "all together (cgroup), and each command (its keeper)"
    } else {
        "each command (its keeper)"
    };
    let bounds = [
        memory.map(|most| format!("memory {}, {of_memory}", told_size(most))),
        cpu_time.map(|most| format!("CPU time {}, each process (rlimit)", seconds(most))),
        max_procs.map(|most| format!("{most} processes, {of_procs}")),
        max_time.map(|most| format!("{} for a life (the daemon)", seconds(most))),
    ];
    bounds.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Shows how it was established that nothing of a life is left, and what had to be killed for that.
fn left(exit: &Exit) -> String {
    let how = match exit.emptied {
        Some(Emptied::Cgroup) => "its life lock is free, and its cgroup is empty",
        Some(Emptied::Keepers) => "its life lock is free, and no stray child is left",
        Some(Emptied::Lock) => "its life lock is free",
        None => return String::new(),
    };
    let killed = match exit.left_behind {
        None => String::new(),
        Some(0) => "; nothing had to be killed".to_owned(),
        Some(1) => "; 1 process had to be killed".to_owned(),
        Some(many) => format!("; {many} processes had to be killed"),
    };
    format!("nothing: {how}{killed}")
}

/// Shows how the commands of a member are confined.
fn sandbox(member: &RosterMember) -> String {
    let sandbox = &member.sandbox;
    let mode = match sandbox.mode {
        SandboxMode::WorkspaceWrite => "workspace-write",
        SandboxMode::ReadOnly => "read-only",
        SandboxMode::Off => return "OFF: its commands may do whatever you may".to_owned(),
    };
    let network = if sandbox.no_network { ", no network" } else { "" };
    match sandbox.writable.as_slice() {
        // Of one that may change nothing, no path may be changed either.
        _ if sandbox.mode == SandboxMode::ReadOnly => format!("{mode}{network}"),
        [] => format!("{mode}{network}"),
        paths => format!("{mode}{network}; writable too: {}", paths.join(", ")),
    }
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
    line("doing", &if member.status.is_ended() { String::new() } else { row.activity() });
    line("unread", &row.unread.map_or_else(|| "?".to_owned(), |unread| unread.to_string()));
    line("gate", member.gate.as_str());
    line("pid", &pid(member));
    line("incarnation", &member.incarnation.to_string());
    line("model", &member.model);
    line("tokens", &spent(&member.usage));
    line("budget", &budget(member));
    line("limits", &bounds(member));
    line("cgroup", member.cgroup.as_ref().map_or("", |cgroup| &cgroup.path));
    line("workspace", &member.workspace);
    line("sandbox", &sandbox(member));
    line("uses", &row.resources.as_ref().map(Resources::told).unwrap_or_default());
    line("spawned", &clock::time_of_day(member.spawned_at));
    line("restarts", &if member.restarts > 0 { member.restarts.to_string() } else { String::new() });
    let (life, ended) = match &member.exit {
        Some(ended) => ("ended", Some(ended)),
        None => ("last life", member.last_exit.as_ref()),
    };
    if let Some(it) = ended {
        let seen = format!("{}, {}, {} unread", clock::time_of_day(it.at), exit(it), it.unread);
        let request = it.request_id.as_ref().map_or(String::new(), |id| format!(", by request {id}"));
        line(life, &format!("{seen}{request}"));
        line("note", it.note.as_deref().unwrap_or_default());
        line("left", &left(it));
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
    use teamd_shared::team_file::TeamFile;

    fn status(dir: &TeamDir, name: Option<&str>, json: bool) -> (CommandResult, Captured, Captured) {
        let (out, stdout, stderr) = captured(json);
        let context = Context {
            out,
            path: dir.root().to_owned(),
            settings: Settings::default(),
            file: Ok(TeamFile::default()),
        };
        let args = StatusArgs { name: name.map(|name| Name::new(name).unwrap()) };
        (run(&context, &args), stdout, stderr)
    }

    fn roster() -> Value {
        let mut alice = member("alice", "working");
        (alice["role"], alice["activity"]) = (json!("coder"), json!("cargo test\x1b[2J"));
        alice["updated_at"] = json!(wall() - 125.0);
        let mut bob = member("bob", "crashed");
        (bob["pid"], bob["updated_at"]) = (json!(null), json!(wall() + 30.0));
        bob["exit"] = json!({"code": null, "signal": 9, "at": 1.0, "request_id": null, "unread": 2, "note": "3 restarts in 60 s"});
        json!([alice, bob])
    }

    #[test]
    fn the_table_shows_everybody() {
        let mut members = roster();
        members[0]["pid"] = json!(4242);
        let members: Vec<RosterMember> = serde_json::from_value(members).unwrap();
        let row =
            |member, unread, unnoticed| Row { member, unread: Some(unread), unnoticed, resources: None };
        let rows = [row(&members[0], 3, false), row(&members[1], 0, false), row(&members[0], 0, true)];
        let shown = anstream::adapter::strip_str(&table(&rows).render(None)).to_string();
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
        members[0]["sandbox"] = json!({"mode": "off"});
        members[1]["usage"] = usage(2_000_100, 0);
        members[1]["sandbox"] = json!({"mode": "read-only", "no_network": true, "writable": ["/a", "/b"]});
        members
    }

    #[test]
    fn tokens_are_shown_where_there_are_some_and_summed_up() {
        let (_scratch, dir) = team(&costly());
        let (_, stdout, _) = status(&dir, None, false);
        let shown = anstream::adapter::strip_str(&stdout.text()).to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].ends_with("MODEL         TOKENS                          DOING"), "{shown}");
        assert!(lines[1].contains("10k in (80% cached) / 1.2k out"), "{shown}");
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
            assert!(stdout.text().contains(&format!("  {told}\n")), "{}", stdout.text());
            let (_, stdout, _) = status(&dir, name, true);
            let shown: Value = serde_json::from_str(&stdout.text()).unwrap();
            assert_eq!(shown["members"][0]["activity"], "thinking", "as in config.json");
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
        assert!(alice.contains("budget      9 model calls, 200k tokens for a piece of work\n"), "{alice}");
        assert!(alice.contains("sandbox     OFF: its commands may do whatever you may\n"), "{alice}");
        let bob = shown("bob");
        assert!(bob.contains("sandbox     read-only, no network\n"), "{bob}");
        assert!(bob.contains("budget      50 model calls for a piece of work\n"), "{bob}");
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
        let context = Context {
            out,
            path: scratch.path().join(".team"),
            settings: Settings::default(),
            file: Ok(TeamFile::default()),
        };
        assert_eq!(run(&context, &StatusArgs { name: None }), Ok(ExitCode::Done));
        assert!(stderr.text().ends_with("hint: `teamd start` makes one\n"), "{}", stderr.text());
    }
}
