//! The frames between home and a host daemon: one JSON object a line, in both directions.
//!
//! *Home* is the machine whose daemon has the journal. A *host* is another machine that runs
//! teammates of the team, under a host daemon. A link carries frames and remembers nothing: after
//! each connect both sides say anew what holds. What home says of an inbox names lines of home's
//! files; what a host says of an outbox names lines of the host's files.
//!
//! The stream of the host begins with [`MAGIC`], since a login shell can print something before it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::control::{FromWorker, MAX_FRAME, ToWorker, WorkerState};
use crate::environment::{CLAUDE_TOKEN, Environment, SECRETS, is_model_key};
use crate::host::{HostVitals, LogPiece};
use crate::id::RequestId;
use crate::inbox::{LinePlace, UnreadMail};
use crate::job::{GitOrder, JobReport};
use crate::member::{Emptied, Member};
use crate::message::Message;
use crate::name::Name;
use crate::process::Identity;
use crate::terms::{McpServer, Terms};

/// The line with which the stream of a host begins.
pub const MAGIC: &str = "teamd-link";

/// The version of the frames. Another one is refused, with the next step.
pub const LINK_PROTOCOL: u16 = 4;

/// The longest frame, in bytes, without its newline: it also passes the control socket of the host
/// daemon as one frame. A message of 1 MiB whose every character is escaped twice fits.
pub const MAX_LINK_FRAME: usize = MAX_FRAME - 64;

/// The most that a login shell may print before [`MAGIC`], in bytes.
pub const MAX_BANNER: usize = 64 << 10;

/// The prefixes of variables that a worker on a host gets beside keys.
const GIVEN: [&str; 4] = ["TEAM_", "ANTHROPIC_", "OPENAI_", "GOOGLE_GEMINI_"];

/// Those that say something about home alone.
const OF_HOME: [&str; 2] = ["TEAM_DIR", "TEAM_FILE"];

/// An incarnation of a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Whose {
    /// The member.
    pub name: Name,
    /// Its incarnation.
    pub incarnation: u32,
}

/// Who home is: a host obeys one home for a team.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomeIdentity {
    /// Made at the first `host add` of the team.
    pub home: Uuid,
    /// The machine (`machine-id(5)`): a copied team directory has another one.
    pub machine: String,
    /// Grows with each start of the daemon at home: an older copy has a smaller one.
    pub starts: u64,
}

/// What home says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ToHost {
    /// The first frame.
    Hello(HomeHello),
    /// The team now: said at the beginning and at every change.
    Team(TeamNow),
    /// What has changed in the roster, which workers read.
    Roster(RosterChange),
    /// How far home has taken the outboxes of the host: said once, behind the first
    /// [`ToHost::Team`]. Those that are not named were not taken at all. The host sends no
    /// [`FromHost::Mail`] before.
    Outboxes {
        /// Of all that were taken.
        taken: Vec<OwnerAt>,
        /// How long the copies of the transcripts are.
        copies: Vec<CopyAt>,
    },
    /// Start a process for an incarnation. Repeated, it starts one.
    Start(Box<StartOrder>),
    /// Hand a frame to a worker, if it is connected.
    Say {
        /// The worker.
        to: Whose,
        /// The frame.
        says: Box<ToWorker>,
    },
    /// Send SIGTERM.
    Terminate(Whose),
    /// Send SIGKILL.
    Kill(Whose),
    /// A line of home's inbox of a member of this host.
    Mail(MailLine),
    /// Answer: what home has said last was not followed by anything.
    Ping {
        /// Comes back in the answer.
        number: u64,
    },
    /// Do a job: [`FromHost::JobEnded`] follows. Its paths are the host's, which fills them in. The
    /// files that belong to it cross beside the link ([`crate::bundle`]).
    Job {
        /// Of this job, on this connection.
        number: u64,
        /// What is to be done.
        order: Box<GitOrder>,
    },
    /// A job is not wanted any more.
    EndJob {
        /// The job.
        number: u64,
    },
    /// Say how far home's inbox of a member of this host is taken, behind what was sent before.
    SayTaken {
        /// The member.
        owner: Name,
    },
    /// Say what the machine has to give: asked only while a person or a spawn waits for it.
    SayVitals,
    /// In the place of [`ToHost::Hello`]: a person says that the host obeys this home from now on,
    /// whichever it has obeyed.
    Take(HomeHello),
    /// Send a piece of the log of a member of this host.
    SayLog {
        /// Comes back in the answer.
        number: u64,
        /// The member.
        owner: Name,
        /// Where the piece begins, in bytes; none: near the end.
        from: Option<u64>,
    },
    /// Dial home to take a file: asked only of a host that dials.
    TakeFile {
        /// The name of the file.
        name: Uuid,
        /// How long it is, in bytes.
        length: u64,
    },
    /// Dial home to give a file, which is removed then.
    GiveFile {
        /// The name of the file.
        name: Uuid,
    },
}

/// What home says to a host that dials, in a line behind [`MAGIC`] and before any frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomeOffer {
    /// [`LINK_PROTOCOL`].
    pub protocol: u16,
    /// The version of the program.
    pub version: String,
    /// The id of the home, by which the host daemon is found.
    pub home: Uuid,
    /// Whether a host daemon that runs is to be replaced.
    pub replace: bool,
}

/// What a host that dials asks for, as the command of its `ssh`: its link, or a file that follows. No
/// program has such a name, where another key has let it in.
pub const LINK_WISH: &str = "teamd-link";
/// See [`LINK_WISH`].
pub const FILE_WISH: &str = "teamd-file";

/// With this begins the line in which either side says why a connection that a host has made comes to
/// nothing. It stands in the place of an offer, a frame, or [`TAKEN`].
pub const REFUSED: &str = "teamd refuses: ";

/// The line with which a host says that it has taken a whole file.
pub const TAKEN: &str = "taken";

/// The first frame of home.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HomeHello {
    /// [`LINK_PROTOCOL`].
    pub protocol: u16,
    /// The version of the program.
    pub version: String,
    /// Who it is.
    pub home: HomeIdentity,
    /// What home calls the host.
    pub host: Name,
    /// The name of the team.
    pub team_name: String,
}

/// The team as home knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TeamNow {
    /// The incarnations of members of this host that have not ended: what else runs there of the
    /// team is ended.
    pub hosted: Vec<Whose>,
    /// The members of this host, ended or not. Their inboxes are at the host.
    pub owners: Vec<Name>,
    /// All other members. Their inboxes at the host are outboxes; what belongs to other names is
    /// put into the archive.
    pub others: Vec<Name>,
}

/// A change of the roster. The lines of members that [`TeamNow`] does not name any more go without
/// being named here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RosterChange {
    /// Whether it is the first one on this connection: earlier lines count for nothing.
    pub begins: bool,
    /// What stands before the members in `config.json`.
    pub head: String,
    /// The members that have changed.
    pub members: Vec<RosterLine>,
    /// Whether another frame completes this one.
    pub more: bool,
}

/// A member in the roster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RosterLine {
    /// The member.
    pub name: Name,
    /// Its line in `config.json`, without what separates it from the next one.
    pub text: String,
}

/// An order to start an incarnation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StartOrder {
    /// The member as the journal has it. Its workspace may begin with `~/`, the login directory.
    pub member: Member,
    /// The line of home's inbox behind which the conversation begins; none: at its beginning.
    pub begins_after: Option<LinePlace>,
    /// The line of home's inbox up to which mail has come back to its senders.
    pub returned_up_to: Option<LinePlace>,
    /// Keys and settings, in memory only on both sides.
    pub variables: Vec<Variable>,
    /// What the spawn order itself names to be written, which is refused if it cannot be. An
    /// earlier version does not say.
    #[serde(default)]
    pub asked: Vec<String>,
}

/// A variable of the environment.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value, which may be a key.
    pub value: String,
}

impl std::fmt::Debug for Variable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}=…", self.name)
    }
}

/// A line of an outbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MailLine {
    /// Whose inbox it is for.
    pub owner: Name,
    /// Where it stands on the machine that sends it.
    pub line: LinePlace,
    /// The line, without its newline.
    pub text: String,
}

/// What a host says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum FromHost {
    /// The first frame, before it has heard anything.
    Hello(HostHello),
    /// It does not obey this home, and says why. The last frame.
    Refused {
        /// Why. Fits behind "box: ".
        why: String,
        /// The next step.
        hint: Option<String>,
    },
    /// What it has of the team: the first answer to [`ToHost::Hello`].
    Present(HostNow),
    /// A process was started, or could not be.
    Started {
        /// The incarnation.
        of: Whose,
        /// The process, or why there is none.
        process: Result<Identity, String>,
    },
    /// A started worker has greeted: it waits for its welcome.
    Greeted(Whose),
    /// A worker that ran before is connected to the host daemon.
    Connected {
        /// The incarnation.
        of: Whose,
        /// What it reports.
        state: Box<WorkerReport>,
        /// What home had given it: after a restart of home's daemon only the worker has that.
        variables: Vec<Variable>,
    },
    /// A worker says something.
    Says {
        /// The worker.
        of: Whose,
        /// What it says: neither a state nor a submission.
        frame: Box<FromWorker>,
    },
    /// A worker reports its state.
    State {
        /// The worker.
        of: Whose,
        /// Its report.
        state: Box<WorkerReport>,
    },
    /// A worker has submitted a line of the outbox to the lead. That line was sent before.
    Submitted {
        /// The worker.
        of: Whose,
        /// The request.
        request_id: RequestId,
        /// The line there; none if there is no such line.
        line: Option<LinePlace>,
    },
    /// The connection of a worker with the host daemon is closed.
    Disconnected(Whose),
    /// Nothing of an incarnation is left. Said on every connect for the last incarnation of each
    /// member.
    Ended {
        /// The incarnation.
        of: Whose,
        /// How it ended.
        end: Box<HostedEnd>,
    },
    /// A line of an outbox.
    Mail(MailLine),
    /// The answer to [`ToHost::Ping`].
    Pong {
        /// That of the question.
        number: u64,
    },
    /// A piece of a transcript, which home keeps a copy of.
    Transcript {
        /// Whose.
        name: Name,
        /// Where the piece begins, in bytes.
        offset: u64,
        /// The piece, which ends behind a line.
        text: String,
    },
    /// Something that the person at home should know. Fits behind "box: ".
    Warning {
        /// What.
        text: String,
    },
    /// A job has ended.
    JobEnded {
        /// The job.
        number: u64,
        /// Its report, or why it has none.
        ended: Box<Result<JobReport, String>>,
    },
    /// The answer to [`ToHost::SayTaken`].
    Taken(OwnerAt),
    /// The answer to [`ToHost::SayVitals`].
    Vitals(HostVitals),
    /// The answer to [`ToHost::SayLog`].
    Log {
        /// That of the question.
        number: u64,
        /// The piece, or why there is none.
        piece: Result<LogPiece, String>,
    },
    /// A file of [`ToHost::TakeFile`] or [`ToHost::GiveFile`] does not cross.
    NoFile {
        /// Its name.
        name: Uuid,
        /// Why.
        why: String,
    },
}

/// The first frame of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostHello {
    /// [`LINK_PROTOCOL`].
    pub protocol: u16,
    /// The version of the program.
    pub version: String,
    /// The process of the host daemon.
    pub process: Identity,
    /// Why commands of teammates cannot be confined there as promised, if they cannot.
    pub weakness: Option<String>,
}

/// What a host has of the team.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostNow {
    /// The incarnations of which something is left, with their processes.
    pub running: Vec<HostedProcess>,
    /// The last incarnations that have ended: [`FromHost::Ended`] follows for each.
    pub ended: Vec<Whose>,
    /// The last line of home's file in each inbox: home's pump goes on behind it.
    pub inboxes: Vec<OwnerAt>,
}

/// A process at a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostedProcess {
    /// The incarnation.
    pub of: Whose,
    /// Its process.
    pub process: Identity,
}

/// How far an outbox was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnerAt {
    /// Whose inbox.
    pub owner: Name,
    /// The last line that was taken; none: nothing yet.
    pub line: Option<LinePlace>,
}

/// How much of a transcript home has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyAt {
    /// Whose.
    pub name: Name,
    /// In bytes.
    pub length: u64,
}

/// The report of a worker, as it crosses a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// As the worker said it. Its position counts at the host only.
    pub state: WorkerState,
    /// The last line of home's inbox that it has consumed; none: nothing yet.
    pub read: Option<LinePlace>,
}

/// How an incarnation ended at a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostedEnd {
    /// The exit code.
    pub code: Option<i32>,
    /// The signal.
    pub signal: Option<i32>,
    /// The last line of home's inbox that was in its inbox when it ended; none: nothing.
    pub inbox: Option<LinePlace>,
    /// How many messages it had not read.
    pub unread: u64,
    /// The first of them that can come back.
    pub mail: Vec<UnreadMail>,
    /// How many more of those there are.
    pub more_mail: u64,
    /// How the host daemon knew that nothing of it is left.
    pub emptied: Option<Emptied>,
    /// Why no incarnation can begin where it has worked, if that was examined.
    pub unworkable: Option<String>,
    /// Whether SIGTERM ended it, by its own account.
    pub left: bool,
}

impl MailLine {
    /// Makes the line of a message at a place.
    pub fn of(owner: Name, offset: u64, message: &Message) -> Self {
        Self {
            owner,
            line: LinePlace {
                offset,
                id: message.id,
            },
            text: message.to_json().to_string(),
        }
    }
}

/// The variable with the names of further variables that a worker on a host gets.
const NAMES: &str = "TEAM_HOST_ENV";

/// The variable with the names of those that its MCP servers get.
const NAMES_OF_SERVERS: &str = "TEAM_HOST_MCP_ENV";

/// Names further variables that a worker on a host gets: those that `team.toml` names for all on
/// this host, and those of its MCP servers. The token of a person's subscription is only for an
/// agent that logs in with it, and only if it is named for the host.
pub fn name_for_hosts(environment: &mut Environment, names: &[String], terms: &Terms) {
    let uses_token = terms.program.as_ref().is_some_and(|it| it.login.is_token());
    let names = names.iter().map(String::as_str);
    let names: Vec<&str> = names
        .filter(|name| uses_token || *name != CLAUDE_TOKEN)
        .collect();
    let of_servers: Vec<&str> = terms.mcp.iter().flat_map(McpServer::variables).collect();
    for (variable, mut names) in [(NAMES, names), (NAMES_OF_SERVERS, of_servers)] {
        environment.unset(variable);
        // It would name two.
        names.retain(|name| !name.contains(' '));
        if !names.is_empty() {
            environment.set(variable, &names.join(" "));
        }
    }
}

/// Returns what a worker on a host gets of an environment at home: keys and settings of its model's
/// service, and what is named for it. Nothing else means anything on another machine, and neither
/// does a path. What a server would get as each command does, such as `PATH`, is the host's.
pub fn given_to_hosts(environment: &Environment) -> Vec<Variable> {
    let is_key = |name: &str| SECRETS.contains(&name) && name != CLAUDE_TOKEN;
    let named = environment.value(NAMES).unwrap_or_default();
    let is_named = |name: &str| named.split(' ').any(|it| it == name);
    let of_servers = environment.value(NAMES_OF_SERVERS).unwrap_or_default();
    let is_of_server =
        |name: &str| !is_model_key(name.as_bytes()) && of_servers.split(' ').any(|it| it == name);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let mut given = Vec::new();
    for (name, value) in &environment.secrets {
        if let (Some(name), Some(value)) = (text(name), text(value))
            && (is_key(&name) || is_named(&name) || is_of_server(&name))
        {
            given.push(Variable { name, value });
        }
    }
    for (name, value) in &environment.variables {
        if let (Some(name), Some(value)) = (text(name), text(value))
            && (is_named(&name) || (is_setting(&name) && !value.starts_with('/')))
        {
            given.push(Variable { name, value });
        }
    }
    given
}

/// Returns what of that crosses where no key may: settings whose names do not say that they are
/// secret. The host has keys of its own.
pub fn settings_given_to_hosts(environment: &Environment) -> Vec<Variable> {
    let without_secrets = Environment {
        secrets: Vec::new(),
        ..environment.clone()
    };
    let mut given = given_to_hosts(&without_secrets);
    given.retain(|it| is_setting(&it.name));
    given
}

fn is_setting(name: &str) -> bool {
    GIVEN.iter().any(|prefix| name.starts_with(prefix)) && !OF_HOME.contains(&name)
}

/// Adds what home gives to the environment of a worker.
pub fn with_variables(mut environment: Environment, variables: Vec<Variable>) -> Environment {
    for Variable { name, value } in variables {
        let secrets = &mut environment.secrets;
        secrets.retain(|(known, _)| known != name.as_bytes());
        environment.unset(&name);
        if is_model_key(name.as_bytes()) {
            environment.secrets.push((name.into(), value.into()));
        } else {
            environment.set(&name, &value);
        }
    }
    environment.part(&[]);
    environment
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::terms::{Agent, Login, Protocol};

    #[test]
    fn where_no_key_may_cross_settings_alone_do() {
        let pair = |name: &str, value: &str| (name.into(), value.into());
        let home = Environment {
            variables: vec![
                pair("TEAM_HOST_ENV", "OF_HOME ANTHROPIC_CUSTOM_HEADERS"),
                pair("TEAM_MODEL_TIMEOUT", "60"),
                pair("OF_HOME", "named"),
            ],
            secrets: vec![
                pair("ANTHROPIC_API_KEY", "key"),
                pair("ANTHROPIC_CUSTOM_HEADERS", "authorization: key"),
            ],
            ..Environment::default()
        };
        let names = |given: Vec<Variable>| given.into_iter().map(|it| it.name).collect::<Vec<_>>();
        let all = names(given_to_hosts(&home));
        for name in ["ANTHROPIC_API_KEY", "ANTHROPIC_CUSTOM_HEADERS", "OF_HOME"] {
            assert!(all.iter().any(|it| it == name), "{all:?}");
        }
        let settings = names(settings_given_to_hosts(&home));
        assert_eq!(settings, ["TEAM_HOST_ENV", "TEAM_MODEL_TIMEOUT"]);
    }

    #[test]
    fn a_host_gets_the_keys_of_the_service_and_nothing_else_of_home() {
        let pair = |name: &str, value: &str| (name.into(), value.into());
        let home = Environment {
            variables: vec![
                pair("PATH", "/usr/bin"),
                pair("TEAM_DIR", "x"),
                pair("TEAM_MODEL_TIMEOUT", "60"),
                pair("GOOGLE_GEMINI_BASE_URL", "https://gateway"),
                pair("SOMETHING", "else"),
                pair("TEAM_CA", "/etc/ca.pem"),
            ],
            secrets: vec![
                pair("ANTHROPIC_API_KEY", "key"),
                pair(CLAUDE_TOKEN, "token"),
                pair("GITHUB_TOKEN", "other"),
            ],
            umask: 0o22,
        };
        let given = given_to_hosts(&home);
        let names: Vec<&str> = given.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "ANTHROPIC_API_KEY",
                "TEAM_MODEL_TIMEOUT",
                "GOOGLE_GEMINI_BASE_URL"
            ]
        );
        let there = with_variables(Environment::default(), given);
        assert_eq!(there.secrets, [pair("ANTHROPIC_API_KEY", "key")]);
        assert_eq!(there.value("TEAM_MODEL_TIMEOUT").as_deref(), Some("60"));
        assert!(!format!("{:?}", given_to_hosts(&home)).contains("\"key\""));
    }

    #[test]
    fn what_is_named_for_a_host_goes_there_and_back() {
        let mut home = Environment::default();
        home.set("CUDA_HOME", "/opt/cuda");
        home.set("EDITOR", "vi");
        let names = ["CUDA_HOME".to_owned(), "NOT_SET".to_owned()];
        name_for_hosts(&mut home, &names, &Terms::default());
        let there = with_variables(Environment::default(), given_to_hosts(&home));
        assert_eq!(there.value("CUDA_HOME").as_deref(), Some("/opt/cuda"));
        assert_eq!(there.value("EDITOR"), None);
        // A host daemon says it to the next daemon of home.
        assert_eq!(given_to_hosts(&there), given_to_hosts(&home));
    }

    fn names(given: &[Variable]) -> Vec<&str> {
        given.iter().map(|it| it.name.as_str()).collect()
    }

    #[test]
    fn a_host_gets_the_secrets_of_its_servers_and_no_place_of_home() {
        let pair = |name: &str, value: &str| (name.into(), value.into());
        let mut home = Environment {
            variables: vec![pair("HOME", "/home/u"), pair("PATH", "/usr/bin")],
            secrets: vec![
                pair("FILES_TOKEN", "token"),
                pair("OTHER_TOKEN", "other"),
                pair(CLAUDE_TOKEN, "token"),
            ],
            umask: 0o22,
        };
        let server = json!({"name": "files", "timeout": 60, "transport": {"stdio": {"command": ["f"],
            "env": ["FILES_TOKEN", "HOME", "PATH", CLAUDE_TOKEN], "hosts": []}}});
        let mut terms = Terms::default();
        terms.mcp.push(serde_json::from_value(server).unwrap());
        name_for_hosts(&mut home, &[], &terms);
        let given = given_to_hosts(&home);
        assert_eq!(names(&given), ["FILES_TOKEN", NAMES_OF_SERVERS]);
        let there = with_variables(Environment::default(), given);
        assert_eq!(there.secrets, [pair("FILES_TOKEN", "token")]);
        assert_eq!(given_to_hosts(&there), given_to_hosts(&home));
        name_for_hosts(&mut home, &[], &Terms::default());
        assert!(given_to_hosts(&home).is_empty());
    }

    #[test]
    fn the_token_of_a_person_goes_where_it_is_named_and_used() {
        let mut home = Environment::default();
        let token = (CLAUDE_TOKEN.into(), b"token".to_vec());
        home.secrets.push(token.clone());
        let mut terms = Terms::default();
        let mut agent = Agent {
            name: "claude".to_owned(),
            command: vec!["claude".to_owned()],
            protocol: Protocol::Claude,
            login: Login::Key,
        };
        let named = [CLAUDE_TOKEN.to_owned()];
        for (login, named, crosses) in [
            (None, &named[..], false),
            (Some(Login::Key), &named[..], false),
            (Some(Login::Token), &[], false),
            (Some(Login::Token), &named[..], true),
        ] {
            agent.login = login.unwrap_or_default();
            terms.program = login.map(|_| agent.clone());
            name_for_hosts(&mut home, named, &terms);
            let there = with_variables(Environment::default(), given_to_hosts(&home));
            assert_eq!(there.secrets.contains(&token), crosses, "{login:?}");
        }
    }

    #[test]
    fn keys_are_no_variables() {
        let variable = |name: &str, value: &str| Variable {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let mut before = Environment::default();
        before.set("EDITOR", "vi");
        before
            .secrets
            .push((b"OPENAI_API_KEY".to_vec(), b"old".to_vec()));
        let given = [
            variable("EDITOR", "ed"),
            variable("OPENAI_API_KEY", "new"),
            variable("ANTHROPIC_API_KEY", "k"),
        ];
        let environment = with_variables(before, given.into());
        assert_eq!(
            environment.variables,
            [(b"EDITOR".to_vec(), b"ed".to_vec())]
        );
        assert_eq!(environment.value("OPENAI_API_KEY").as_deref(), Some("new"));
        assert_eq!(environment.secrets.len(), 2);
    }
}
