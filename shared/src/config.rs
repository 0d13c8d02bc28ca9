//! `config.json`: the roster for people and tools. Its shape, and reading it; only the daemon
//! writes it.
//!
//! **Who writes**: the daemon alone, by rename: a reader sees the old roster or the new one. **Who
//! reads**: any process. It is a projection of the journal plus the last reports of the workers,
//! written again at every start of a daemon: nothing is lost with it.

use std::io;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::checkout::Checkout;
use crate::journal::Daemon;
use crate::json;
use crate::member::{Agent, Bounds, Cgroup, Exit, Gate, Limits, MemberStatus, Sandbox, Waiting};
use crate::message::IdleReason;
use crate::name::Name;
use crate::process::Identity;
use crate::sandbox::{Layers, Namespaces};
use crate::team_dir::{DirError, TeamDir, TeamPath};
use crate::usage::{OtherModels, Usage, UsageByModel};

/// The version that is written.
pub const VERSION: u32 = 1;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Roster {
    /// The version of the shape. A newer one is read if it has all fields of this one.
    pub version: u32,
    /// The last line of the journal that it shows.
    pub seq: u64,
    /// The name of the team.
    pub team_name: String,
    /// The daemon; null when it ended in order.
    pub daemon: Option<Daemon>,
    /// How commands are confined; null before a daemon has reported it.
    pub sandbox: Option<TeamSandbox>,
    /// Every member that is not forgotten, in the order of their names.
    pub members: Vec<RosterMember>,
}

/// Returns the text of the file: what stands before the members, and then one of them a line, which
/// [`Roster::load_one`] counts on, and which suits `grep` and `diff`.
pub fn roster_text<'m>(head: &str, members: impl Iterator<Item = &'m str>) -> String {
    let members: Vec<&str> = members.collect();
    format!("{head}\"members\":[\n{}\n]}}\n", members.join(",\n"))
}

/// How the commands of a team are confined.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TeamSandbox {
    /// The layers that work on this machine, as [`crate::sandbox::Layers`] is written.
    pub layers: String,
    /// The promises that cannot be kept although a team needs them, which the user has allowed.
    /// Null where all are kept.
    pub weak: Option<String>,
}

impl TeamSandbox {
    /// Tells whether the gate of an agent changes while it runs.
    pub fn has_live_gate(&self) -> bool {
        self.layers
            .parse()
            .is_ok_and(|Layers { namespaces, .. }| namespaces == Namespaces::Own)
    }
}

json::record!(Roster);

impl Default for Roster {
    /// The roster of a team without a daemon and without members.
    fn default() -> Self {
        let team_name = String::new();
        let members = Vec::new();
        Self {
            version: VERSION,
            seq: 0,
            team_name,
            daemon: None,
            sandbox: None,
            members,
        }
    }
}

/// One member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RosterMember {
    /// Its name.
    pub name: Name,
    /// What it is for.
    pub role: String,
    /// Its status.
    pub status: MemberStatus,
    /// The process id of its worker; null when it has ended.
    pub pid: Option<u32>,
    /// Clock ticks between the boot and the start of that process.
    pub start_ticks: Option<u64>,
    /// The cgroup of that process, and which limits it holds; null where it has none of its own.
    pub cgroup: Option<Cgroup>,
    /// Which incarnation it is: 1, 2, 3 …
    pub incarnation: u32,
    /// The model, as `PROVIDER[:MODEL]`.
    pub model: String,
    /// The program that is its mind; null for the built-in agent.
    pub agent: Option<Agent>,
    /// The host that it runs on; left out at home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Name>,
    /// The process id of its worker on that host; left out at home, and when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_pid: Option<u32>,
    /// How far that worker has read its inbox at home, in bytes; left out at home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_read: Option<u64>,
    /// Since when that host cannot be reached, seconds since 1970; left out while it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable_since: Option<f64>,
    /// The directory that it works in.
    pub workspace: String,
    /// Its own clone of the repository, if it works in one.
    pub checkout: Option<Checkout>,
    /// Whether it may change anything.
    pub gate: Gate,
    /// How its commands are confined while its gate is open.
    pub sandbox: Sandbox,
    /// The MCP servers whose tools it has, by their names.
    #[serde(default)]
    pub mcp: Vec<String>,
    /// What one piece of its work may cost.
    pub limits: Limits,
    /// What one incarnation may use.
    pub bounds: Bounds,
    /// What its conversation has cost so far, in tokens.
    pub usage: Usage,
    /// The model that answers in the place of its own while the service is overloaded; left out
    /// where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_model: Option<String>,
    /// What other models have used of `usage`; left out where none has.
    #[serde(default, skip_serializing_if = "OtherModels::is_nothing")]
    pub other_models: OtherModels,
    /// What it does, in a few words; when it waits, why it could not continue, or nothing.
    pub activity: String,
    /// While it is idle: how its last piece of work ended; null if there was none.
    pub idle_reason: Option<IdleReason>,
    /// The pause in its model call, if it makes one; else null.
    pub waiting: Option<Waiting>,
    /// Seconds since 1970, when this incarnation began.
    pub spawned_at: f64,
    /// Seconds since 1970, of the last change of its status.
    pub updated_at: f64,
    /// The line of the journal in which it was spawned.
    pub spawned_seq: u64,
    /// How it ended; null while it runs.
    pub exit: Option<Exit>,
    /// How often the policy has started it again since it was spawned.
    pub restarts: u32,
    /// How the incarnation before ended; null in a first one, and when this one has ended.
    pub last_exit: Option<Exit>,
    /// Since when it has not answered the daemon, seconds since 1970; null while it answers, or
    /// need not answer.
    pub silent_since: Option<f64>,
}

/// Why the roster cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(transparent)]
    Dir(#[from] DirError),
    /// The file is no roster.
    #[error("config.json is not a roster: {0}")]
    Malformed(serde_json::Error),
}

impl RosterMember {
    /// Returns the agent and its model, as a person calls them: `anthropic:MODEL` for the built-in
    /// agent, else `claude:MODEL`.
    #[must_use]
    pub fn mind(&self) -> String {
        match (&self.agent, self.model.split_once(':')) {
            (None, _) => self.model.clone(),
            (Some(agent), None) => agent.name.clone(),
            (Some(agent), Some((_, model))) => format!("{}:{model}", agent.name),
        }
    }

    /// Returns what its conversation has cost, by the models that used it.
    #[must_use]
    pub fn usage_by_model(&self) -> UsageByModel {
        UsageByModel::parted(&self.usage, self.other_models.usage.clone())
    }

    /// Returns the directories and files that its commands may write while its gate is open.
    pub fn where_it_writes(&self) -> impl Iterator<Item = &str> {
        [&self.workspace]
            .into_iter()
            .chain(&self.sandbox.writable)
            .map(String::as_str)
    }
}

impl Roster {
    /// Reads the roster; none if no daemon ever ran here.
    ///
    /// # Errors
    /// [`ConfigError`] if the file cannot be read or understood.
    pub fn load(dir: &TeamDir) -> Result<Option<Self>, ConfigError> {
        Self::read(dir, json::read)
    }

    /// Reads the roster as far as it concerns one member; the others are left out. A message to one
    /// of a thousand teammates must not cost a parse of all.
    ///
    /// # Errors
    /// As [`Roster::load`].
    pub fn load_one(dir: &TeamDir, name: &Name) -> Result<Option<Self>, ConfigError> {
        Self::read(dir, |bytes| {
            let one = only(bytes, name).and_then(|one| json::read(&one).ok());
            // The file may have another layout than this version writes.
            let mut roster: Self = one.map_or_else(|| json::read(bytes), Ok)?;
            roster.members.retain(|member| member.name == *name);
            Ok(roster)
        })
    }

    fn read(
        dir: &TeamDir,
        parse: impl FnOnce(&[u8]) -> serde_json::Result<Self>,
    ) -> Result<Option<Self>, ConfigError> {
        match dir.read(&TeamPath::config()) {
            Ok(bytes) => parse(&bytes).map(Some).map_err(ConfigError::Malformed),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells whether the process that this roster shows for a member is gone, though the roster
    /// does not say so yet. False for an incarnation that has none yet.
    ///
    /// # Errors
    /// The system's error if that cannot be determined, for example because no descriptor is left.
    pub fn process_is_gone(&self, member: &RosterMember) -> io::Result<bool> {
        // A worker began in the same boot as the daemon that shows it.
        let boot_id = self
            .daemon
            .as_ref()
            .map(|daemon| daemon.process.boot_id.clone());
        match (member.pid, member.start_ticks, boot_id) {
            (Some(pid), Some(start_ticks), Some(boot_id)) => Identity {
                pid,
                start_ticks,
                boot_id,
            }
            .runs()
            .map(|runs| !runs),
            _ => Ok(false),
        }
    }

    /// Returns a member by its name.
    pub fn member(&self, name: &Name) -> Option<&RosterMember> {
        self.members.iter().find(|member| member.name == *name)
    }
}

/// The text before the members, each of which has a line of its own, and after them.
const FRAME: (&[u8], &[u8]) = (b"\n\"members\":[\n", b"\n]}\n");

/// Cuts the lines of the other members out of a roster, as the daemon writes it; none if it is
/// written otherwise.
fn only(roster: &[u8], name: &Name) -> Option<Vec<u8>> {
    let (before, behind) = FRAME;
    let head = roster
        .windows(before.len())
        .position(|window| window == before)?
        + before.len();
    let members = roster[head..].strip_suffix(behind)?;
    let begin = format!("{{\"name\":\"{name}\",");
    let mut lines = members.split(|&byte| byte == b'\n');
    let line = lines
        .find(|line| line.starts_with(begin.as_bytes()))
        .unwrap_or_default();
    let line = line.strip_suffix(b",").unwrap_or(line);
    Some([&roster[..head], line, behind].concat())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::roster_member;

    /// As the daemon writes it: the name is first.
    fn member(name: &str, role: &str) -> String {
        let member = roster_member(&json!({"name": name, "role": role, "status": "idle"}));
        let member: RosterMember = serde_json::from_value(member).unwrap();
        serde_json::to_string(&member).unwrap()
    }

    fn load(roster: &str, who: &str) -> Vec<(String, String)> {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        crate::fs::replace(&dir, &TeamPath::config(), roster.as_bytes()).unwrap();
        let one = Roster::load_one(&dir, &Name::of_inbox(who).unwrap())
            .unwrap()
            .unwrap();
        let all = Roster::load(&dir).unwrap().unwrap();
        assert_eq!(
            (&one.team_name, one.seq, &one.daemon),
            (&all.team_name, all.seq, &all.daemon)
        );
        let found: Vec<_> = all
            .members
            .into_iter()
            .filter(|it| it.name == one.members[0].name)
            .collect();
        assert_eq!(one.members, found);
        one.members
            .into_iter()
            .map(|it| (it.name.to_string(), it.role))
            .collect()
    }

    #[test]
    fn a_foreign_agent_stands_in_the_place_of_the_provider() {
        let mind = |model: &str, agent: &Value| {
            let fields = json!({"name": "alice", "status": "idle", "model": model, "agent": agent});
            let member: RosterMember = serde_json::from_value(roster_member(&fields)).unwrap();
            member.mind()
        };
        let agent =
            json!({"name": "claude", "command": ["claude"], "protocol": "claude", "login": "key"});
        assert_eq!(mind("openai:gpt", &Value::Null), "openai:gpt");
        assert_eq!(mind("anthropic", &agent), "claude");
        assert_eq!(mind("anthropic:opus", &agent), "claude:opus");
    }

    #[test]
    fn one_member_is_read_without_the_others_however_the_roster_is_written() {
        let role = r#"says "name":"bob", or ]}"#;
        let members = [
            member("al", role),
            member("alice", "coder"),
            member("bob", ""),
        ];
        let ours = format!(
            "{{\"version\":1,\"seq\":7,\"team_name\":\"t\",\n\"daemon\":null,\n\"sandbox\":null,\n\"members\":[\n{}\n]}}\n",
            members.join(",\n")
        );
        let value: Value = serde_json::from_str(&ours).unwrap();
        for roster in [
            ours.clone(),
            value.to_string(),
            serde_json::to_string_pretty(&value).unwrap(),
        ] {
            assert_eq!(
                load(&roster, "alice"),
                [("alice".to_owned(), "coder".to_owned())]
            );
            assert_eq!(
                load(&roster, "al"),
                [("al".to_owned(), r#"says "name":"bob", or ]}"#.to_owned())]
            );
            assert_eq!(load(&roster, "bob"), [("bob".to_owned(), String::new())]);
        }
        // The others are not even parsed.
        let name = Name::new("bob").unwrap();
        let cut = String::from_utf8(only(ours.as_bytes(), &name).unwrap()).unwrap();
        assert!(!cut.contains("alice") && cut.contains("bob"), "{cut}");
        let none = only(ours.as_bytes(), &Name::new("carol").unwrap()).unwrap();
        assert_eq!(serde_json::from_slice::<Roster>(&none).unwrap().members, []);
    }
}
