//! `[hosts.NAME]`: how a host is to be. The journal has the hosts; a command that uses one records
//! what the file says of it.

use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer};

use crate::effects::KeyEffects;
use crate::environment::CLAUDE_TOKEN;
use crate::host::{Host, HostTerms, HostWay};
use crate::name::Name;
use crate::terms::{count, variables};

/// The table of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostTable {
    /// Where `ssh` finds it; none: by its name.
    ssh: Option<String>,
    /// How many teammates run there at the most.
    #[serde(deserialize_with = "count")]
    max: Option<u32>,
    /// Where those work that name no directory.
    workspace: Option<String>,
    /// The names of further variables that they get.
    #[serde(deserialize_with = "variables_of_host")]
    env: Vec<String>,
}

/// Reads names of variables. The token of a person's subscription is kept at home unless it is named
/// here; the keys of models cross anyway.
fn variables_of_host<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let mut others = names.clone();
    others.retain(|name| name != CLAUDE_TOKEN);
    let checked: Result<_, D::Error> = variables(others.into_deserializer());
    checked.map(|_| names)
}

impl HostTable {
    /// Tells whether it says where `ssh` finds the host.
    pub fn names_place(&self) -> bool {
        self.ssh.is_some()
    }

    /// Returns the host as it is to be recorded. `recorded` is the host as it is now.
    pub fn host(&self, name: &Name, recorded: Option<&Host>) -> Host {
        let recorded_way = recorded.map(|host| &host.way);
        let way = match (&self.ssh, recorded_way) {
            (Some(place), _) => HostWay::Ssh(place.clone()),
            // A person has invited it.
            (None, Some(way)) if way.dials_home() => way.clone(),
            (None, _) => HostWay::Ssh(name.to_string()),
        };
        Host {
            name: name.clone(),
            way,
            // Only a person says that, with `host add`.
            allow_weak_sandbox: recorded.is_some_and(|host| host.allow_weak_sandbox),
            terms: HostTerms {
                max: self.max,
                workspace: self.workspace.clone(),
                env: self.env.clone(),
            },
        }
    }

    /// Reports what each key does: the owner of a host has the keys and the work of the teammates
    /// there.
    pub(crate) fn effects(&self, name: &Name, to: &mut KeyEffects<'_>) {
        let Self {
            ssh,
            max,
            workspace,
            env,
        } = self;
        to.widens("ssh", [ssh.as_deref().unwrap_or(name.as_str())]);
        to.widens("workspace", workspace);
        to.widens("env", env);
        to.limits("max", max.map(f64::from), None);
    }
}
