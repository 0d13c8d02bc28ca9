//! `team.toml`: the settings of a user for a team, beside the team directory.
//!
//! Parsing is pure; only [`TeamFile::load`] reads a file. **Who reads**: the commands that start
//! something. The daemon and the workers never do: they get its content in the spawn order, or as
//! variables of the same meaning. So a file that is broken later stops no worker. Nothing in here
//! writes the file, and no key to a model's service is read from it.

mod error;
mod hosts;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

pub use error::{LineColumn, TeamFileError};
pub use hosts::HostTable;

use crate::amount::{parse_period, parse_window, written};
use crate::effects::KeyEffects;
use crate::message::LEAD;
use crate::name::Name;
use crate::settings::Settings;
use crate::terms::{AgentProgram, BUILT_IN, McpDefinition, McpName, TermsPatch};
use crate::variable::Lookup;
use crate::variable::absolute;

/// Its name.
pub const FILE: &str = "team.toml";
/// The variable that names another file than the one beside the team directory.
pub const VARIABLE: &str = "TEAM_FILE";
/// The largest file that is read, in bytes.
pub const MAX_SIZE: u64 = 1 << 20;

/// The content of the file. What it leaves out is none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TeamFile {
    /// The file; empty where there is none.
    pub path: PathBuf,
    /// The settings of daemon and commands: what it says, else the defaults.
    pub settings: Settings,
    /// How the models' services are reached.
    pub service: Service,
    /// The top level: the terms of every member, unless its role or its own table says otherwise.
    pub team: TermsPatch,
    /// The terms of a role, by its name.
    pub roles: BTreeMap<String, TermsPatch>,
    /// The terms of a member.
    pub members: BTreeMap<Name, TermsPatch>,
    /// How many teammates a member stands for, where it has a `count`.
    pub counts: BTreeMap<Name, u32>,
    /// The terms of the lead agent.
    pub lead: TermsPatch,
    /// The agents that are programs of the user, by their names.
    pub agents: BTreeMap<String, AgentProgram>,
    /// The MCP servers, by their names.
    pub mcp: BTreeMap<McpName, McpDefinition>,
    /// The hosts, by their names.
    pub hosts: BTreeMap<Name, HostTable>,
}

/// How the models' services are reached.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Service {
    /// Which certificate authorities are trusted: `platform`, `embedded`, or a file.
    pub ca: Option<String>,
    /// The longest silence in an answer.
    #[serde(deserialize_with = "period")]
    pub timeout: Option<Duration>,
    /// How many tokens a prompt and its answer may have together.
    #[serde(deserialize_with = "window")]
    pub context_window: Option<u64>,
}

impl Service {
    /// Reports what each key does.
    pub(crate) fn effects(&self, to: &mut KeyEffects<'_>) {
        let Self {
            ca,
            timeout: _,
            context_window: _,
        } = self;
        // It decides which servers are trusted as a model's service, and such a server speaks for
        // the model.
        to.widens("service.ca", ca.iter().filter(|ca| !is_built_in(ca)));
        to.neither(["service.timeout", "service.context_window"]);
    }
}

/// The tables below the top level.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TableNames {
    service: Service,
    roles: BTreeMap<String, TermsPatch>,
    members: BTreeMap<Name, TermsPatch>,
    lead: TermsPatch,
    agents: BTreeMap<String, AgentProgram>,
    mcp: BTreeMap<McpName, McpDefinition>,
    hosts: BTreeMap<Name, HostTable>,
}

/// How many teammates a member stands for.
#[derive(Deserialize)]
struct MemberCount {
    #[serde(deserialize_with = "count")]
    count: u32,
}

/// The largest count: a larger one is a slip of the hand.
const MOST: u32 = 1000;

const TABLES: [&str; 7] = [
    "service", "roles", "members", "lead", "agents", "mcp", "hosts",
];

/// The terms that make no sense in a table.
const NOT_AT_TOP: [&str; 7] = [
    "role",
    "prompt",
    "workspace",
    "instructions",
    "program",
    "servers",
    "total",
];
const NOT_OF_A_ROLE: [&str; 6] = [
    "role",
    "workspace",
    "instructions",
    "program",
    "servers",
    "total",
];
const NOT_OF_A_MEMBER: [&str; 4] = ["instructions", "program", "servers", "total"];
const NOT_OF_THE_LEAD: [&str; 11] = [
    "role",
    "workspace",
    "plan",
    "approve_by",
    "restart",
    "auto",
    "checkout",
    "instructions",
    "program",
    "servers",
    "total",
];

/// The keys that only the user's own configuration may have.
const OF_A_LOGIN: [&str; 2] = ["login", "plan_with_token"];

impl TeamFile {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// [`TeamFileError`] for a mistake, with its place.
    pub fn parse(text: &str) -> Result<Self, TeamFileError> {
        // Some editors write a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let document =
            DeTable::parse(text).map_err(|error| TeamFileError::of_toml(text, &error))?;
        let span = document.span();
        let mut document = document.into_inner();
        refuse_hooks(text, &document)?;
        refuse_logins(text, &document)?;
        refuse_misplaced(text, &document)?;
        let counts = take_counts(text, &mut document)?;
        let mut settings = DeTable::new();
        let mut tables = DeTable::new();
        let mut team = DeTable::new();
        for (key, value) in document {
            let part = match key.get_ref().as_ref() {
                // The same key says whether a teammate has a checkout, and how checkouts are made.
                "checkout" if !value.get_ref().is_table() => &mut team,
                key if Settings::KEYS.split(' ').any(|it| it == key) => &mut settings,
                key if TABLES.contains(&key) => &mut tables,
                _ => &mut team,
            };
            part.insert(key, value);
        }
        let tables = part_of(text, Spanned::new(span.clone(), tables))?;
        let TableNames {
            service,
            roles,
            members,
            lead,
            agents,
            mcp,
            hosts,
        } = tables;
        let settings: Settings = part_of(text, Spanned::new(span.clone(), settings))?;
        let mut team: TermsPatch = part_of(text, Spanned::new(span, team))?;
        team.checkout = team.checkout.or(settings.checkout.always.then_some(true));
        Ok(Self {
            path: PathBuf::new(),
            settings,
            service,
            team,
            roles,
            members,
            counts,
            lead,
            agents,
            mcp,
            hosts,
        })
    }

    /// Returns where the file of a team is: where the variable [`VARIABLE`] says, else beside the
    /// team directory as the user names it (beside the link, where it is reached through one).
    pub fn locate(team_dir: &Path, lookup: impl Fn(&str) -> Option<String>) -> PathBuf {
        if let Some(named) = lookup(VARIABLE).filter(|path| !path.is_empty()) {
            return PathBuf::from(named);
        }
        // The parent of a path such as `..` is not known from the path alone.
        let resolved = team_dir
            .file_name()
            .is_none()
            .then(|| team_dir.canonicalize().ok())
            .flatten();
        let team_dir = resolved.as_deref().unwrap_or(team_dir);
        team_dir.parent().unwrap_or(team_dir).join(FILE)
    }

    /// Reads a file; a missing one counts as empty. Its paths are made absolute: `~` is the user's
    /// home, any other path counts from the directory of the file.
    ///
    /// # Errors
    /// [`TeamFileError`] if it cannot be read, is not the user's, or has a mistake.
    pub fn load(path: &Path, lookup: Lookup<'_>) -> Result<Self, TeamFileError> {
        let Some(bytes) = bytes_of(path)? else {
            return Ok(Self::default());
        };
        let mut file = Self::parse_bytes(&bytes).map_err(|error| error.in_file(path))?;
        path.clone_into(&mut file.path);
        file.make_absolute(lookup)?;
        Ok(file)
    }

    /// Parses the bytes of a file.
    ///
    /// # Errors
    /// [`TeamFileError`] for the first mistake.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, TeamFileError> {
        let text = std::str::from_utf8(bytes);
        Self::parse(text.map_err(|error| TeamFileError::not_utf8(bytes, error.valid_up_to()))?)
    }

    /// Returns the terms of a teammate in the file. The teammates of a member with a count have its
    /// terms, unless they have their own.
    pub fn member(&self, name: &Name) -> Option<&TermsPatch> {
        if let Some(own) = self.members.get(name) {
            return Some(own);
        }
        let counted = self
            .counts
            .keys()
            .find(|member| self.teammates(member).contains(name))?;
        self.members.get(counted)
    }

    /// Returns the teammates that a member stands for: `coder-1`, `coder-2` … with a count, else
    /// itself.
    pub fn teammates(&self, member: &Name) -> Vec<Name> {
        match self.counts.get(member) {
            Some(count) => (1..=*count)
                .filter_map(|number| member.numbered(number))
                .collect(),
            None => vec![member.clone()],
        }
    }

    pub(crate) fn make_absolute(&mut self, lookup: Lookup<'_>) -> Result<(), TeamFileError> {
        let Self {
            path,
            service,
            team,
            roles,
            members,
            lead,
            settings,
            ..
        } = self;
        let base = path.parent().unwrap_or(Path::new("/"));
        for terms in [team, lead]
            .into_iter()
            .chain(roles.values_mut())
            .chain(members.values_mut())
        {
            terms.make_absolute(base, lookup)?;
        }
        if let Some(at) = &mut settings.checkouts {
            *at = absolute(base, at, lookup)?;
        }
        if let Some(ca) = service.ca.as_mut().filter(|ca| !is_built_in(ca)) {
            *ca = absolute(base, ca, lookup)?;
        }
        Ok(())
    }

    /// Returns what its keys do to what a team may do.
    pub(crate) fn effects(&self) -> KeyEffects<'_> {
        let mut effects = KeyEffects {
            file: Some(&self.path),
            ..KeyEffects::default()
        };
        let TeamFile {
            path: _,
            settings,
            service,
            team,
            roles,
            members,
            counts: _,
            lead,
            agents,
            mcp,
            hosts,
        } = self;
        // The number of teammates does not change what each may do.
        effects.neither([
            "count", "roles", "members", "lead", "agents", "service", "sandbox", "work", "team",
            "hosts",
        ]);
        settings.effects(&mut effects);
        service.effects(&mut effects);
        team.effects(&[], &mut effects);
        effects.table = "lead.".to_owned();
        lead.effects(&[team], &mut effects);
        for (name, role) in roles {
            effects.table = format!("roles.{name:?}.");
            role.effects(&[team], &mut effects);
        }
        // A member can have any role: so what one of the roles forbids is forbidden.
        let above_members: Vec<&TermsPatch> = [team].into_iter().chain(roles.values()).collect();
        for (name, member) in members {
            effects.table = format!("members.{name}.");
            member.effects(&above_members, &mut effects);
        }
        for (name, agent) in agents {
            agent.effects(name, &mut effects);
        }
        for (name, server) in mcp {
            server.effects(name, &mut effects);
        }
        for (name, host) in hosts {
            effects.table = format!("hosts.{name}.");
            host.effects(name, &mut effects);
        }
        effects
    }
}

/// Tells whether `ca` names authorities that need no file.
pub fn is_built_in(ca: &str) -> bool {
    matches!(ca, "platform" | "embedded")
}

/// Removes the counts from the tables of members, which leaves terms.
fn take_counts(
    text: &str,
    document: &mut DeTable<'_>,
) -> Result<BTreeMap<Name, u32>, TeamFileError> {
    let mut counts = BTreeMap::new();
    let Some(DeValue::Table(members)) = document.get_mut("members").map(Spanned::get_mut) else {
        return Ok(counts);
    };
    for (member, value) in members.iter_mut() {
        let DeValue::Table(terms) = value.get_mut() else {
            continue;
        };
        let Some((key, count)) = terms.remove_entry("count") else {
            continue;
        };
        let span = key.span();
        let table = DeTable::from_iter([(key, count)]);
        let MemberCount { count } = part_of(text, Spanned::new(span.clone(), table))?;
        // An invalid name of a member is reported when its terms are read.
        let Ok(member) = Name::new(member.get_ref()) else {
            continue;
        };
        if member.numbered(count).is_none() {
            return Err(TeamFileError::wrong(
                LineColumn::of(text.as_bytes(), span.start),
                format!("{member}-{count} would be too long for a name"),
            ));
        }
        counts.insert(member, count);
    }
    Ok(counts)
}

fn part_of<T: DeserializeOwned>(
    text: &str,
    table: Spanned<DeTable<'_>>,
) -> Result<T, TeamFileError> {
    T::deserialize(toml::Deserializer::from(table))
        .map_err(|error| TeamFileError::of_toml(text, &error))
}

/// Refuses hooks: a repository that was cloned must not run commands outside of a sandbox.
fn refuse_hooks(text: &str, document: &DeTable<'_>) -> Result<(), TeamFileError> {
    let Some((key, _)) = document.get_key_value("hooks") else {
        return Ok(());
    };
    let what = "hooks do not belong into team.toml: they run outside of the sandbox";
    let hint = "write `[hooks]` into your own ~/.config/teamd/config.toml";
    Err(
        TeamFileError::wrong(LineColumn::of(text.as_bytes(), key.span().start), what)
            .with_hint(hint),
    )
}

/// Refuses to say how an agent logs in: a repository that was cloned must not have the user's token
/// handed out.
fn refuse_logins(text: &str, document: &DeTable<'_>) -> Result<(), TeamFileError> {
    let agents = tables_below(document, "agents");
    let keys = agents.iter().flat_map(|agent| agent.keys());
    let mut keys = keys.filter(|key| OF_A_LOGIN.contains(&key.get_ref().as_ref()));
    let Some(key) = keys.next() else {
        return Ok(());
    };
    let name = key.get_ref();
    let what = format!("`{name}` does not belong into team.toml: it hands out a token of yours");
    let hint =
        format!("write `{name}` into `[agents.claude]` of your own ~/.config/teamd/config.toml");
    Err(
        TeamFileError::wrong(LineColumn::of(text.as_bytes(), key.span().start), what)
            .with_hint(&hint),
    )
}

/// Refuses terms in a table in which they make no sense, and the lead agent among the members.
fn refuse_misplaced(text: &str, document: &DeTable<'_>) -> Result<(), TeamFileError> {
    let wrong = |key: &Spanned<DeString<'_>>, what| {
        Err(TeamFileError::wrong(
            LineColumn::of(text.as_bytes(), key.span().start),
            what,
        ))
    };
    if let Some((key, _)) =
        table(document, "agents").and_then(|agents| agents.get_key_value(BUILT_IN))
    {
        return wrong(
            key,
            format!("the agent {BUILT_IN} is the one that is built in: give yours another name"),
        );
    }
    let lead = table(document, "lead").into_iter().collect();
    let places: [(Vec<&DeTable<'_>>, &[&str]); 4] = [
        (vec![document], &NOT_AT_TOP),
        (tables_below(document, "roles"), &NOT_OF_A_ROLE),
        (tables_below(document, "members"), &NOT_OF_A_MEMBER),
        (lead, &NOT_OF_THE_LEAD),
    ];
    for (tables, refused) in places {
        let keys = tables.iter().flat_map(|table| table.keys());
        if let Some(key) = keys
            .into_iter()
            .find(|key| refused.contains(&key.get_ref().as_ref()))
        {
            return wrong(
                key,
                format!("the key `{}` does not belong here", key.get_ref()),
            );
        }
    }
    match table(document, "members").and_then(|members| members.get_key_value(LEAD)) {
        Some((key, _)) => wrong(
            key,
            "the lead agent is no member: it has a table `[lead]`".to_owned(),
        ),
        None => Ok(()),
    }
}

fn period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    written(deserializer, parse_period)
}

fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let number = u32::deserialize(deserializer)?;
    let fits = (1..=MOST).contains(&number);
    fits.then_some(number)
        .ok_or_else(|| D::Error::custom(format_args!("a number from 1 to {MOST} is expected")))
}

fn window<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    written(deserializer, parse_window)
}

/// Reads a file of bounded size; none if there is none.
fn bytes_of(path: &Path) -> Result<Option<Vec<u8>>, TeamFileError> {
    let at = path.display();
    let io = |error: std::io::Error| {
        TeamFileError::of_file(
            format!("cannot read {at}: {error}"),
            "make it readable, or move it away",
        )
    };
    // Opening a FIFO must not block.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(io(errno.into())),
    };
    let stat = rustix::fs::fstat(&fd).map_err(|errno| io(errno.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        let what = format!("{at} is not a regular file");
        return Err(TeamFileError::of_file(what, "move what is there away"));
    }
    // The owner of this file can run commands with the user's rights.
    if ![0, nix::unistd::geteuid().as_raw()].contains(&stat.st_uid) {
        let what = format!("{at} belongs to another user (uid {})", stat.st_uid);
        let hint = "only what you (or root) own is followed: make a copy of your own";
        return Err(TeamFileError::of_file(what, hint));
    }
    let mut bytes = Vec::new();
    File::from(fd)
        .take(MAX_SIZE + 1)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    if bytes.len() as u64 > MAX_SIZE {
        let what = format!("{at} is larger than {MAX_SIZE} bytes");
        return Err(TeamFileError::of_file(
            what,
            "long prompts can stand in files of their own: `--prompt-file`",
        ));
    }
    Ok(Some(bytes))
}

fn table<'t, 'd>(document: &'t DeTable<'d>, key: &str) -> Option<&'t DeTable<'d>> {
    document.get(key)?.get_ref().as_table()
}

/// Returns the tables in a table of tables.
fn tables_below<'t, 'd>(document: &'t DeTable<'d>, key: &str) -> Vec<&'t DeTable<'d>> {
    let Some(tables) = table(document, key) else {
        return Vec::new();
    };
    tables
        .values()
        .filter_map(|value| value.get_ref().as_table())
        .collect()
}

#[cfg(test)]
mod tests;
