//! Claude Code, Codex and an agent that speaks ACP as teammates. Each scenario runs with a stub of each, which speaks the
//! protocol of its agent, and does what the messages say (`tests/fixtures/orders.py`).

mod acp_alone;
mod channel;
mod google;
mod kills;
mod life;
mod metered;
mod questions;
mod real;
mod recovery;
mod token;

use serde_json::Value;

use crate::support::Team;
use crate::support::cgroup::note;
use crate::support::process::{descendants, is_agent};
use crate::support::python;
use channel::*;
use life::*;
use metered::*;
use questions::*;
use recovery::*;

pub(crate) const KEY: &str = "sk-fake-0123456789-never-to-be-seen";

/// An agent, and its stub.
pub(crate) struct Stub {
    pub(crate) agent: &'static str,
    pub(crate) protocol: &'static str,
    /// Its arguments, as they stand in team.toml.
    arguments: &'static str,
    pub(crate) program: &'static str,
    /// The variable of its key.
    pub(crate) key: &'static str,
    /// Where its sessions are, below its state directory.
    pub(crate) sessions: &'static str,
    /// What its model calls the tool that runs a command.
    pub(crate) command: &'static str,
}

pub(crate) const CLAUDE: Stub = Stub {
    agent: "claude",
    protocol: "claude",
    arguments: "",
    program: include_str!("../../fixtures/claude-stub.py"),
    key: "ANTHROPIC_API_KEY",
    sessions: "claude/projects/*/*.jsonl",
    command: "Bash",
};

pub(crate) const CODEX: Stub = Stub {
    agent: "codex",
    protocol: "codex",
    arguments: "",
    program: include_str!("../../fixtures/codex-stub.py"),
    key: "OPENAI_API_KEY",
    sessions: "codex/sessions/*/*/*/*.jsonl",
    command: "exec_command",
};

pub(crate) const ACP: Stub = Stub {
    agent: "opencode",
    protocol: "acp",
    arguments: ", 'acp'",
    program: include_str!("../../fixtures/acp-stub.py"),
    key: "OPENAI_API_KEY",
    sessions: "stub/*.jsonl",
    command: "execute",
};

/// One that takes messages into its turn.
const STEERED: Stub = Stub {
    arguments: ", 'acp', '--steers'",
    ..ACP
};

/// Makes a test of each scenario, for each stub.
macro_rules! scenarios {
    ($($scenario:ident)*) => {
        mod acp { $( #[test] fn $scenario() { super::$scenario(&super::ACP); } )* }
        mod claude { $( #[test] fn $scenario() { super::$scenario(&super::CLAUDE); } )* }
        mod codex { $( #[test] fn $scenario() { super::$scenario(&super::CODEX); } )* }
    };
}

scenarios! {
    one_process_works_through_many_messages_and_leaves_at_once_when_idle
    a_message_joins_the_work_that_is_done_and_so_does_a_shutdown_request
    a_plan_ends_the_turn_and_its_verdict_arrives_as_a_message
    what_an_agent_does_behind_its_plan_is_answered_at_once
    what_an_agent_does_behind_its_plan_is_recorded_when_it_happens
    a_call_behind_a_plan_may_have_run_when_its_worker_is_killed
    an_agent_that_goes_on_and_on_behind_its_plan_is_stopped
    a_message_that_an_interrupted_call_was_told_is_the_next_work
    calls_of_one_answer_are_one_turn
    a_busy_agent_that_does_not_answer_is_ended_at_the_deadline
    a_killed_agent_goes_on_with_its_session_and_is_told_nothing_twice
    a_worker_that_is_killed_behind_a_plan_tells_its_agent_the_verdict_at_once
    a_session_that_is_gone_is_begun_anew_and_told_so
    what_an_agent_does_wrong_fails_a_piece_of_work_at_most
    what_it_says_is_seen_at_once_and_what_it_waits_for
    an_agent_that_cannot_begin_is_an_error_of_spawn
    a_question_of_the_agent_is_a_request_that_a_person_answers
    a_question_is_over_when_the_agent_has_ended
    no_program_that_a_tool_starts_speaks_as_the_agent
    what_a_tool_asks_of_a_model_counts_and_is_refused_over_the_budget
    what_a_tool_asks_of_a_model_is_held_to_the_tokens
    no_model_is_asked_while_no_turn_runs
    an_agent_has_the_tools_of_mcp_servers
}

/// A team whose agents are these stubs; none without Python.
fn team_of(stubs: &[&Stub], layers: &str) -> Option<Team> {
    team_around(Team::new(), stubs, layers)
}

/// As [`team_of`], with the variables of a team that was begun.
fn team_around(team: Team, stubs: &[&Stub], layers: &str) -> Option<Team> {
    let team = team.with("TEAM_SANDBOX_LAYERS", layers);
    let team = stubs
        .iter()
        .fold(team, |team, stub| team.with(stub.key, KEY));
    if !python::is_here() {
        note("skipped: the stub of an agent needs python3");
        return None;
    }
    team.write("orders.py", include_str!("../../fixtures/orders.py"));
    team.write(
        "team.toml",
        &stubs
            .iter()
            .map(|stub| {
                let path = team.root().join(format!("{}-stub.py", stub.agent));
                let agent = stub.agent;
                team.write(path.to_str().unwrap(), stub.program);
                format!(
                    "[agents.{agent}]\ncommand = [{}, '{}'{}]\nprotocol = '{}'\n",
                    python::STUB,
                    path.display(),
                    stub.arguments,
                    stub.protocol
                )
            })
            .collect::<String>(),
    );
    team.trust();
    team.teamd(["start"]).ok();
    Some(team)
}

const LIVE: &str = "namespaces,landlock,seccomp";

const SETS: [&str; 2] = [LIVE, "landlock,seccomp"];

fn spawn(team: &Team, stub: &Stub, flags: &[&str]) {
    team.teamctl(
        ["spawn", "carol", "--agent", stub.agent]
            .iter()
            .chain(flags),
    )
    .ok();
}

/// Sends a message, and returns what carol told the lead when that piece of work had ended.
fn runs(team: &Team, message: &str) -> Value {
    let before = team.notices("carol").len();
    team.send("carol", message);
    team.until_finished("carol", before + 1);
    team.notices("carol").pop().unwrap()
}

/// What the stub has kept of its session.
fn session(team: &Team, stub: &Stub) -> String {
    let cat = format!(
        "cat $HOME/.local/state/teamd/agents/*/carol/{}",
        stub.sessions
    );
    let mut found = team.command("bash", ["-c", &cat]);
    String::from_utf8(found.output().unwrap().stdout).unwrap()
}

/// The process of the agent itself.
fn agent_of(team: &Team) -> i32 {
    agent_if_any(team).unwrap_or_else(|| panic!("no agent: {:?}", team.processes()))
}

fn agent_if_any(team: &Team) -> Option<i32> {
    descendants(team.pid("carol"))
        .into_iter()
        .find(|&pid| is_agent(pid))
}
