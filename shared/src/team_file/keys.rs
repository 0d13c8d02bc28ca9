//! Every key of `team.toml`: where it may stand, and what belongs there. Pure.

/// Where a key may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// At the top: for the whole team.
    Top,
    /// `[service]`.
    Service,
    /// `[sandbox]`, and the same below a role, a member or the lead.
    Sandbox,
    /// `[roles.NAME]`.
    Role,
    /// `[members.NAME]`.
    Member,
    /// `[lead]`.
    Lead,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Top, Self::Service, Self::Sandbox, Self::Role, Self::Member, Self::Lead];

    /// Returns the table as a person writes it; `top level` for what stands in none.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Top => "top level",
            Self::Service => "[service]",
            Self::Sandbox => "[sandbox]",
            Self::Role => "[roles.NAME]",
            Self::Member => "[members.NAME]",
            Self::Lead => "[lead]",
        }
    }
}

/// A key.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// How it is written.
    pub name: &'static str,
    /// Where it may stand.
    pub tables: &'static [Table],
    /// What belongs there. Fits behind "expected ".
    pub expected: &'static str,
    /// A value that fits, as it is written.
    pub example: &'static str,
    /// The variable of the same meaning, which goes before.
    pub variable: Option<&'static str>,
}

use Table::{Lead, Member, Role, Sandbox, Service, Top};

const EVERYBODY: &[Table] = &[Top, Role, Member, Lead];
const TEAMMATES: &[Table] = &[Top, Role, Member];
const TABLE: &str = "a table";

const fn key(
    name: &'static str,
    tables: &'static [Table],
    expected: &'static str,
    example: &'static str,
) -> Key {
    Key { name, tables, expected, example, variable: None }
}

const fn set(key: Key, variable: &'static str) -> Key {
    Key { variable: Some(variable), ..key }
}

/// All keys.
pub const KEYS: &[Key] = &[
    set(
        key("model", EVERYBODY, "\"script\", \"anthropic[:MODEL]\" or \"openai[:MODEL]\"", "\"script\""),
        "TEAM_MODEL",
    ),
    key("plan", TEAMMATES, "true or false", "true"),
    key("approve_by", TEAMMATES, "\"person\" or \"lead\"", "\"lead\""),
    key("restart", TEAMMATES, "\"never\" or \"on-failure\"", "\"never\""),
    set(key("max_turns", EVERYBODY, "a whole number above 0", "50"), "TEAM_MAX_TURNS"),
    set(
        key("max_tokens", EVERYBODY, "a whole number above 0, or a text such as \"200k\"", "\"200k\""),
        "TEAM_MAX_TOKENS",
    ),
    set(key("memory", EVERYBODY, "a size such as \"2G\" or \"512M\", 64M or more", "\"2G\""), "TEAM_MEMORY"),
    set(
        key("cpu_time", EVERYBODY, "a time such as \"1h\" or a number of seconds, above 0", "\"1h\""),
        "TEAM_CPU_TIME",
    ),
    set(key("max_procs", EVERYBODY, "a whole number above 0", "200"), "TEAM_MAX_PROCS"),
    set(
        key("max_time", EVERYBODY, "a time such as \"8h\" or a number of seconds, above 0", "\"8h\""),
        "TEAM_MAX_TIME",
    ),
    set(key("restart_max", &[Top], "a whole number above 0", "3"), "TEAM_RESTART_MAX"),
    set(
        key("restart_period", &[Top], "a time such as \"60s\" or a number of seconds, above 0", "\"60s\""),
        "TEAM_RESTART_PERIOD",
    ),
    set(
        key(
            "watchdog",
            &[Top],
            "a time such as \"60s\" or a number of seconds, above 0, or \"off\"",
            "\"60s\"",
        ),
        "TEAM_WATCHDOG",
    ),
    set(
        key("decide_within", &[Top], "a time such as \"30s\" or a number of seconds", "\"30s\""),
        "TEAM_DECIDE_WITHIN",
    ),
    set(
        key("shutdown_timeout", &[Top], "a time such as \"2m\" or a number of seconds", "\"2m\""),
        "TEAM_SHUTDOWN_TIMEOUT",
    ),
    set(key("grace", &[Top], "a time such as \"10s\" or a number of seconds", "\"10s\""), "TEAM_GRACE"),
    set(key("durability", &[Top], "\"disk\" or \"process\"", "\"disk\""), "TEAM_DURABILITY"),
    set(key("cgroup", &[Top], "\"auto\" or \"off\"", "\"auto\""), "TEAM_CGROUP"),
    set(key("poll", &[Top], "true or false", "false"), "TEAM_POLL"),
    key("service", &[Top], TABLE, "{}"),
    key("sandbox", EVERYBODY, TABLE, "{}"),
    key("roles", &[Top], "a table with one table for each role", "{}"),
    key("members", &[Top], "a table with one table for each member", "{}"),
    key("lead", &[Top], TABLE, "{}"),
    set(key("ca", &[Service], "\"platform\", \"embedded\" or the path of a file", "\"platform\""), "TEAM_CA"),
    set(
        key("timeout", &[Service], "a time such as \"90s\" or a number of seconds, above 0", "\"90s\""),
        "TEAM_MODEL_TIMEOUT",
    ),
    set(
        key(
            "context_window",
            &[Service],
            "a whole number of 4000 or more, or a text such as \"200k\"",
            "\"200k\"",
        ),
        "TEAM_CONTEXT_WINDOW",
    ),
    key("mode", &[Sandbox], "\"workspace-write\", \"read-only\" or \"off\"", "\"read-only\""),
    key("network", &[Sandbox], "true or false", "false"),
    key("writable", &[Sandbox], "a list of paths", "[\"~/.cache\"]"),
    key("hidden", &[Sandbox], "a list of paths", "[\"~/private\"]"),
    key("env", &[Sandbox], "a list of names of variables, none of a model's key", "[\"GH_TOKEN\"]"),
    key("role", &[Member], "a text of 1 to 64 characters on one line", "\"coder\""),
    key("prompt", &[Role, Member, Lead], "a text that is not blank", "\"Read the code first.\""),
    key("workspace", &[Member], "the path of a directory", "\"web\""),
];

/// Finds a key of a table.
pub(super) fn find(table: Table, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name && key.tables.contains(&table))
}

/// Says what may be meant by a key that is none of this table.
pub(super) fn advise(table: Table, name: &str) -> String {
    if holds_a_secret(name) {
        return "keys stand in the environment only (ANTHROPIC_API_KEY, OPENAI_API_KEY): take it out of the file, \
                and if others could read the file, take the key back where it was issued"
            .to_owned();
    }
    if squeezed(name).ends_with("url") {
        return "addresses stand in the environment only (ANTHROPIC_BASE_URL, OPENAI_BASE_URL): a file that came \
                with a repository must not send your key somewhere else"
            .to_owned();
    }
    let here = KEYS.iter().filter(|key| key.tables.contains(&table));
    let near = here.clone().map(|key| (distance(&squeezed(key.name), &squeezed(name)), key.name)).min();
    if let Some((_, near)) = near.filter(|(distance, near)| *distance <= 1.max(near.len() / 3)) {
        return format!("did you mean `{near}`?");
    }
    let elsewhere = KEYS.iter().find(|key| key.name == name && key.tables != [Top]);
    if let Some(key) = elsewhere {
        let tables: Vec<&str> = key.tables.iter().map(|table| table.as_str()).collect();
        return format!("`{name}` belongs into {}", tables.join(" or "));
    }
    if KEYS.iter().any(|key| key.name == name) {
        return format!("`{name}` belongs to the top of the file, before the first [table]");
    }
    format!("known here: {}", here.map(|key| key.name).collect::<Vec<_>>().join(", "))
}

/// Tells whether somebody put a key to a service here, or a word for one.
fn holds_a_secret(name: &str) -> bool {
    let name = squeezed(name);
    ["apikey", "authtoken", "oauthtoken", "secret", "password", "token", "key"]
        .iter()
        .any(|word| name == *word || (word.len() > 5 && name.ends_with(word)))
}

fn squeezed(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).take(64).collect()
}

/// How many letters are to be added, taken out, changed or swapped with the next (Damerau and Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut earlier: Vec<usize> = Vec::new();
    let mut before: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let changed = before[j] + usize::from(a != b);
            let mut least = changed.min(row[j] + 1).min(before[j + 1] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(earlier[j - 1] + 1);
            }
            row.push(least);
        }
        earlier = std::mem::replace(&mut before, row);
    }
    before[other.len()]
}
