//! A file of the ACP registry (`registry.json`): which agents it lists, and how each is fetched.
//!
//! The format is that of `FORMAT.md` in <https://github.com/agentclientprotocol/registry>.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::error::CommandError;
use crate::exit_code::ExitCode;
use crate::print::escape;

use super::{failed, refused};

/// An agent of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedAgent {
    /// Its command, which begins with a launcher.
    pub command: Vec<String>,
    /// The variables that it is to be started with.
    pub variables: BTreeMap<String, String>,
}

/// What is read of the file.
#[derive(Deserialize)]
struct RegistryFile {
    agents: Vec<RegistryEntry>,
}

#[derive(Deserialize)]
struct RegistryEntry {
    id: String,
    distribution: Distribution,
}

#[derive(Deserialize)]
struct Distribution {
    npx: Option<Package>,
    uvx: Option<Package>,
    #[serde(default)]
    binary: BTreeMap<String, Archive>,
}

#[derive(Deserialize)]
struct Package {
    package: String,
    cmd: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Archive {
    archive: String,
    cmd: String,
    #[serde(default)]
    args: Vec<String>,
}

/// Finds an agent in a file of the ACP registry.
///
/// # Errors
/// [`ExitCode::NotFound`] if it does not list the agent, [`ExitCode::Failed`] if the file cannot be
/// read, or the agent comes as an archive alone.
pub fn listed_agent(file: &Path, id: &str) -> Result<ListedAgent, CommandError> {
    let shown = file.display().to_string();
    let text = fs::read(file).map_err(|error| refused(&format!("cannot read {shown}"), &error))?;
    let registry: RegistryFile = serde_json::from_slice(&text).map_err(|error| {
        failed(format!("{shown} is no file of the ACP registry: {error}")).hint(
            "the file is https://cdn.agentclientprotocol.com/registry/v1/latest/registry.json",
        )
    })?;
    let entry = registry.agents.iter().find(|entry| entry.id == id);
    let Some(entry) = entry else {
        let ids: Vec<&str> = registry
            .agents
            .iter()
            .map(|entry| entry.id.as_str())
            .collect();
        return Err(
            CommandError::new(ExitCode::NotFound, format!("{shown} lists no agent {id}"))
                .hint(format!("it lists {}", escape::line(&ids.join(", ")))),
        );
    };
    let Distribution { npx, uvx, binary } = &entry.distribution;
    if let Some(package) = npx {
        return Ok(package.launched_by(&["npx", "-y"], "--package"));
    }
    if let Some(package) = uvx {
        return Ok(package.launched_by(&["uvx"], "--from"));
    }
    let error = failed(format!(
        "{id} comes as an archive alone, which is not installed by this command"
    ));
    let platform = format!("linux-{}", std::env::consts::ARCH);
    let Some(Archive { archive, cmd, args }) = binary.get(&platform) else {
        return Err(error.hint(format!("{shown} names none for {platform}")));
    };
    let arguments: String = args.iter().map(|word| format!(", {word:?}")).collect();
    let hint = format!(
        "unpack {archive} yourself, and write `[agents.{id}]` with `command = [\"/PATH/TO/{}\"{arguments}]` and `protocol = \"acp\"` into team.toml",
        cmd.trim_start_matches("./")
    );
    Err(error.hint(escape::line(&hint)))
}

impl Package {
    fn launched_by(&self, launcher: &[&str], option: &str) -> ListedAgent {
        let Self {
            package,
            cmd,
            args,
            env,
        } = self;
        let mut command: Vec<String> = launcher.iter().map(|&word| word.to_owned()).collect();
        if let Some(cmd) = cmd {
            command.extend([option.to_owned(), package.clone(), cmd.clone()]);
        } else {
            command.push(package.clone());
        }
        command.extend(args.iter().cloned());
        ListedAgent {
            command,
            variables: env.clone(),
        }
    }
}
