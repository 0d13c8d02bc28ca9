//! From the text of `team.toml` to what it says, pure. The first mistake in the order of the text is told.

use std::ops::Range;
use std::time::Duration;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::error::{Place, TeamFileError};
use super::keys::{Key, Table, advise, find};
use super::{Profile, SandboxProfile, Service, TeamFile};
use crate::amount::{LEAST_WINDOW, parse_count, parse_duration, parse_memory, whole_seconds};
use crate::environment::is_model_key;
use crate::name::Name;

type Value<'i> = Spanned<DeValue<'i>>;
type Result<T> = std::result::Result<T, TeamFileError>;

/// Reads a whole file.
pub(super) fn read(text: &str) -> Result<TeamFile> {
    // What some editors put in front; nobody sees it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let reader = Reader { text };
    let document = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        reader.wrong(span, error.message())
    })?;
    reader.top(document.get_ref())
}

/// What is needed to say where something stands.
#[derive(Clone, Copy)]
struct Reader<'t> {
    text: &'t str,
}

impl Reader<'_> {
    fn top(self, table: &DeTable<'_>) -> Result<TeamFile> {
        let mut file = TeamFile::default();
        self.each(Table::Top, table, |key, value| {
            match key.name {
                "durability" => file.durability = Some(self.word(key, value)?),
                "grace" => file.grace = Some(self.time(key, value)?),
                "poll" => file.poll = Some(self.flag(key, value)?),
                "decide_within" => file.decide_within = Some(self.time(key, value)?),
                "shutdown_timeout" => file.shutdown_timeout = Some(self.time(key, value)?),
                "restart_max" => file.restart_max = Some(self.small(key, value)?),
                "restart_period" => file.restart_period = Some(self.some_time(key, value)?),
                "watchdog" => {
                    let off = value.get_ref().as_str() == Some("off");
                    file.watchdog = Some(if off { None } else { Some(self.some_time(key, value)?) });
                }
                "cgroup" => file.cgroup = Some(self.word(key, value)?),
                "service" => file.service = self.service(self.table(key, value)?)?,
                "lead" => file.lead = self.profile(Table::Lead, self.table(key, value)?)?,
                "roles" => {
                    for (name, value) in in_order(self.table(key, value)?) {
                        let profile = self.profile(Table::Role, self.named(Table::Role, name, value)?)?;
                        file.roles.insert(self.role_name(name)?, profile);
                    }
                }
                "members" => {
                    for (name, value) in in_order(self.table(key, value)?) {
                        let profile = self.profile(Table::Member, self.named(Table::Member, name, value)?)?;
                        file.members.insert(self.member_name(name)?, profile);
                    }
                }
                _ => self.settle(&mut file.everybody, key, value)?,
            }
            Ok(())
        })?;
        Ok(file)
    }

    fn service(self, table: &DeTable<'_>) -> Result<Service> {
        let mut service = Service::default();
        self.each(Table::Service, table, |key, value| {
            match key.name {
                "ca" => service.ca = Some(self.line(key, value)?),
                "timeout" => service.timeout = Some(self.some_time(key, value)?),
                _ => {
                    let tokens = self.count(key, value)?;
                    service.context_window =
                        Some(self.fits(key, value, Some(tokens).filter(|&tokens| tokens >= LEAST_WINDOW))?);
                }
            }
            Ok(())
        })?;
        Ok(service)
    }

    fn profile(self, table: Table, entries: &DeTable<'_>) -> Result<Profile> {
        let mut profile = Profile::default();
        self.each(table, entries, |key, value| self.settle(&mut profile, key, value))?;
        Ok(profile)
    }

    fn settle(self, profile: &mut Profile, key: &'static Key, value: &Value<'_>) -> Result<()> {
        match key.name {
            "role" => profile.role = Some(self.line(key, value)?),
            "prompt" => {
                let text = value.get_ref().as_str().filter(|text| !text.trim().is_empty());
                profile.prompt = Some(self.fits(key, value, text.map(str::to_owned))?);
            }
            "model" => {
                let spec = value.get_ref().as_str().and_then(|text| text.parse().ok());
                profile.model = Some(self.fits(key, value, spec)?);
            }
            "workspace" => profile.workspace = Some(self.line(key, value)?),
            "plan" => profile.plan = Some(self.flag(key, value)?),
            "approve_by" => profile.approve_by = Some(self.word(key, value)?),
            "restart" => profile.restart = Some(self.word(key, value)?),
            "max_turns" => profile.max_turns = Some(self.small(key, value)?),
            "max_tokens" => profile.max_tokens = Some(self.count(key, value)?),
            "memory" => {
                let size = match value.get_ref() {
                    DeValue::String(text) => parse_memory(text),
                    DeValue::Integer(number) if number.radix() == 10 => parse_memory(number.as_str()),
                    _ => None,
                };
                profile.bounds.memory = Some(self.fits(key, value, size)?);
            }
            "cpu_time" => profile.bounds.cpu_time = whole_seconds(self.some_time(key, value)?),
            "max_procs" => profile.bounds.max_procs = Some(self.small(key, value)?),
            "max_time" => profile.bounds.max_time = whole_seconds(self.some_time(key, value)?),
            "sandbox" => profile.sandbox = self.sandbox(self.table(key, value)?)?,
            _ => return Err(self.expected(key, value)),
        }
        Ok(())
    }

    fn sandbox(self, table: &DeTable<'_>) -> Result<SandboxProfile> {
        let mut sandbox = SandboxProfile::default();
        self.each(Table::Sandbox, table, |key, value| {
            match key.name {
                "mode" => sandbox.mode = Some(self.word(key, value)?),
                "network" => sandbox.network = Some(self.flag(key, value)?),
                "env" => {
                    let names = self.fits(key, value, value.get_ref().as_array())?;
                    let names = names.iter().map(|name| {
                        let text = self.line(key, name)?;
                        let is_given = !text.contains('=') && !is_model_key(text.as_bytes());
                        self.fits(key, name, is_given.then_some(text))
                    });
                    sandbox.env = names.collect::<Result<_>>()?;
                }
                _ => {
                    let paths = self.fits(key, value, value.get_ref().as_array())?;
                    let paths = paths.iter().map(|path| self.line(key, path)).collect::<Result<_>>()?;
                    match key.name {
                        "hidden" => sandbox.hidden = paths,
                        _ => sandbox.writable = paths,
                    }
                }
            }
            Ok(())
        })?;
        Ok(sandbox)
    }

    /// Goes through a table in the order of the text.
    fn each(
        self,
        table: Table,
        entries: &DeTable<'_>,
        mut take: impl FnMut(&'static Key, &Value<'_>) -> Result<()>,
    ) -> Result<()> {
        for (name, value) in in_order(entries) {
            let Some(key) = find(table, name.get_ref()) else {
                let what = match table {
                    Table::Top => format!("unknown key `{}`", shortened(name.get_ref())),
                    _ => format!("unknown key `{}` in {}", shortened(name.get_ref()), table.as_str()),
                };
                return Err(self.wrong(name.span(), what).with_hint(advise(table, name.get_ref())));
            };
            take(key, value)?;
        }
        Ok(())
    }

    fn named<'v, 'i>(
        self,
        table: Table,
        name: &Spanned<DeString<'_>>,
        value: &'v Value<'i>,
    ) -> Result<&'v DeTable<'i>> {
        value.get_ref().as_table().ok_or_else(|| {
            let written = table.as_str().replace("NAME", &shortened(name.get_ref()));
            self.wrong(name.span(), format!("{written} is a table, not {}", self.shown(value)))
        })
    }

    fn member_name(self, name: &Spanned<DeString<'_>>) -> Result<Name> {
        Name::new(name.get_ref()).map_err(|error| {
            let wrong = self.wrong(name.span(), error.to_string());
            if name.get_ref() == "lead" {
                wrong.with_hint("the lead agent has a table `[lead]`")
            } else {
                wrong
            }
        })
    }

    fn role_name(self, name: &Spanned<DeString<'_>>) -> Result<String> {
        match is_line(name.get_ref()) {
            true => Ok(name.get_ref().trim().to_owned()),
            false => {
                Err(self.wrong(name.span(), "the name of a role is a text of 1 to 64 characters on one line"))
            }
        }
    }

    fn table<'v, 'i>(self, key: &Key, value: &'v Value<'i>) -> Result<&'v DeTable<'i>> {
        self.fits(key, value, value.get_ref().as_table())
    }

    fn flag(self, key: &Key, value: &Value<'_>) -> Result<bool> {
        self.fits(key, value, value.get_ref().as_bool())
    }

    /// A text on one line: a path, a name.
    fn line(self, key: &Key, value: &Value<'_>) -> Result<String> {
        let most = if key.name == "role" { 64 } else { 4096 };
        let text = value.get_ref().as_str().map(str::trim);
        let fits = |text: &&str| {
            !text.is_empty() && text.chars().count() <= most && !text.contains(char::is_control)
        };
        self.fits(key, value, text.filter(fits).map(str::to_owned))
    }

    /// One of the words of a type.
    fn word<T: DeserializeOwned>(self, key: &Key, value: &Value<'_>) -> Result<T> {
        let text = value.get_ref().as_str();
        let word = text.and_then(|text| serde_json::from_value(serde_json::Value::String(text.into())).ok());
        self.fits(key, value, word)
    }

    fn time(self, key: &Key, value: &Value<'_>) -> Result<Duration> {
        let time = match value.get_ref() {
            DeValue::String(text) => parse_duration(text),
            DeValue::Integer(number) if number.radix() == 10 => parse_duration(number.as_str()),
            DeValue::Float(number) => parse_duration(number.as_str()),
            _ => None,
        };
        self.fits(key, value, time)
    }

    /// A time that is not 0.
    fn some_time(self, key: &Key, value: &Value<'_>) -> Result<Duration> {
        let time = self.time(key, value)?;
        self.fits(key, value, Some(time).filter(|time| !time.is_zero()))
    }

    /// A count that no machine needs many digits for.
    fn small(self, key: &Key, value: &Value<'_>) -> Result<u32> {
        let count = self.count(key, value)?;
        self.fits(key, value, u32::try_from(count).ok())
    }

    fn count(self, key: &Key, value: &Value<'_>) -> Result<u64> {
        let count = match value.get_ref() {
            DeValue::String(text) => parse_count(text),
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        self.fits(key, value, count.filter(|&count| count > 0))
    }

    fn fits<T>(self, key: &Key, value: &Value<'_>, read: Option<T>) -> Result<T> {
        read.ok_or_else(|| self.expected(key, value))
    }

    fn expected(self, key: &Key, value: &Value<'_>) -> TeamFileError {
        let what = format!("`{}` is {}, expected {}", key.name, self.shown(value), key.expected);
        self.wrong(value.span(), what)
    }

    /// A value as it is written.
    fn shown(self, value: &Value<'_>) -> String {
        match value.get_ref() {
            DeValue::Table(_) => "a table".to_owned(),
            _ => {
                shortened(self.text.get(value.span()).unwrap_or_default().lines().next().unwrap_or_default())
            }
        }
    }

    fn wrong(self, span: Range<usize>, what: impl Into<String>) -> TeamFileError {
        TeamFileError::wrong(Place::of(self.text.as_bytes(), span.start), what)
    }
}

fn in_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<(&'t Spanned<DeString<'i>>, &'t Value<'i>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}

fn is_line(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.chars().count() <= 64 && !text.contains(char::is_control)
}

fn shortened(text: &str) -> String {
    let mut short = String::new();
    for c in text.chars().take(60) {
        if c.is_control() { short.extend(c.escape_default()) } else { short.push(c) }
    }
    if text.chars().nth(60).is_some() {
        short.push('…')
    }
    short
}
