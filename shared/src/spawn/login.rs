//! How the agent of a teammate logs in: as the user's own configuration says now, whatever was
//! recorded when it was spawned first.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::config::RosterMember;
use crate::control::SpawnOrder;
use crate::environment::CLAUDE_TOKEN;
use crate::installed::InstalledPrograms;
use crate::terms::{AgentProgram, Gate, Login, Protocol, TOKEN_HOST};
use crate::user_config::{UserConfig, UserConfigError};

/// Why an agent cannot log in as the user's own configuration says. Fits behind "error: ".
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The user's own configuration cannot be used.
    #[error(transparent)]
    Config(#[from] UserConfigError),
    /// What is installed cannot be seen.
    #[error("cannot see what is installed: {0}")]
    Installed(#[from] io::Error),
    /// There is no token.
    #[error("the agent {agent} is to log in with a token, and {CLAUDE_TOKEN} is not set")]
    NoToken {
        /// The agent.
        agent: String,
        /// The user's own configuration.
        config: PathBuf,
    },
    /// A closed gate is not closed as a plan promises.
    #[error(
        "the agent {agent} logs in with a token, so a closed gate reaches {TOKEN_HOST} (any account there): \
         a plan would not promise that nothing leaves the sandbox before the approval"
    )]
    Plan {
        /// The agent.
        agent: String,
        /// The user's own configuration.
        config: PathBuf,
    },
}

impl LoginError {
    /// Returns what to do next. Fits behind "hint: ".
    pub fn hint(&self) -> String {
        match self {
            Self::Config(error) => error.hint().to_owned(),
            Self::Installed(_) => "check the owner and the mode of ~/.local/share/teamd".to_owned(),
            Self::NoToken { agent, config } => format!(
                "`claude setup-token` makes one; or remove `login` of `[agents.{agent}]` in {}",
                config.display()
            ),
            Self::Plan { agent, config } => format!(
                "write `plan_with_token = true` into `[agents.{agent}]` of {} if a plan is worth it all the same, or leave out the plan",
                config.display()
            ),
        }
    }
}

/// Sets how the agent of an order logs in, and returns it. `recorded` is the roster's record of a
/// teammate that is resumed; `variable` looks up the environment of the user. The configuration is
/// read for an agent that it can hand a token to, and for no other.
///
/// # Errors
/// [`LoginError`] if it cannot log in like that.
pub fn resolve_login(
    order: &mut SpawnOrder,
    recorded: Option<&RosterMember>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Login, LoginError> {
    let before = recorded.and_then(|member| member.agent.as_ref());
    let terms = &mut order.terms;
    let (name, mut program) = match (&terms.agent, &terms.program, before) {
        (Some(name), Some(program), _) => (name.clone(), program.clone()),
        (None, _, Some(agent)) => {
            let program = AgentProgram {
                command: agent.command.clone(),
                protocol: agent.protocol,
                login: agent.login,
            };
            (agent.name.clone(), program)
        }
        _ => return Ok(Login::Key),
    };
    if program.protocol != Protocol::Claude {
        return Ok(Login::Key);
    }
    let config = UserConfig::load(variable)?;
    let mut asked_for = program.clone();
    // What is recorded is what was installed for it then.
    let installed = InstalledPrograms::of_environment(&order.environment)?;
    // What is installed here is no program of a host, which may have one of its own.
    let is_hosted = terms.host.is_some() || recorded.is_some_and(|member| member.host.is_some());
    if !is_hosted
        && installed.runs_known(&name, &program.command)?
        && let Some(known) = AgentProgram::known(&name)
    {
        asked_for.command = known.command;
    }
    let login = config.login(&name, &asked_for);
    // That host may have a token of its own, and says so otherwise.
    if login.is_token() && !is_hosted && order.environment.value(CLAUDE_TOKEN).is_none() {
        return Err(LoginError::NoToken {
            agent: name,
            config: config.path,
        });
    }
    let is_closed = recorded.is_some_and(|member| member.gate == Gate::Closed);
    if !login.may_plan() && (terms.plan == Some(true) || is_closed) {
        return Err(LoginError::Plan {
            agent: name,
            config: config.path,
        });
    }
    if login != program.login {
        program.login = login;
        terms.agent = Some(name);
        terms.program = Some(program);
    }
    Ok(login)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;
    use crate::environment::Environment;
    use crate::name::Name;

    const TOKEN: &str = "sk-ant-oat01-never-to-be-seen";

    /// A user whose own configuration says this.
    fn user(text: &str) -> (tempfile::TempDir, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path().canonicalize().unwrap();
        std::fs::create_dir(home.join("teamd")).unwrap();
        let mut file = std::fs::File::create(home.join("teamd/config.toml")).unwrap();
        io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        (scratch, home)
    }

    fn order(agent: Option<&str>, plan: bool, has_token: bool) -> SpawnOrder {
        let mut environment = Environment::default();
        if has_token {
            let token = (CLAUDE_TOKEN.into(), TOKEN.into());
            environment.secrets.push(token);
        }
        let name = Name::new("alice").unwrap();
        let mut order = SpawnOrder::new(name, environment);
        order.terms.agent = agent.map(str::to_owned);
        order.terms.program = agent.and_then(AgentProgram::known);
        order.terms.plan = plan.then_some(true);
        order
    }

    fn recorded(login: &Value, gate: &str) -> RosterMember {
        let agent =
            json!({"name": "claude", "command": ["claude"], "protocol": "claude", "login": login});
        let fields = json!({"name": "alice", "status": "shutdown", "agent": agent, "gate": gate});
        serde_json::from_value(crate::testing::roster_member(&fields)).unwrap()
    }

    fn resolved(
        order: &mut SpawnOrder,
        recorded: Option<&RosterMember>,
        home: &Path,
    ) -> Result<Login, String> {
        let variable = |name: &str| (name == "XDG_CONFIG_HOME").then(|| home.into());
        resolve_login(order, recorded, variable).map_err(|error| {
            let text = format!("{error} ({})", error.hint());
            assert!(!text.contains(TOKEN));
            text
        })
    }

    #[test]
    fn a_token_is_used_only_if_the_user_says_so() {
        let (_without, home) = user("");
        let mut unset = order(Some("claude"), true, true);
        assert_eq!(resolved(&mut unset, None, &home), Ok(Login::Key));
        let (_scratch, home) = user("[agents.claude]\nlogin = 'token'\n");
        let mut set = order(Some("claude"), false, true);
        let token = Login::Token;
        assert_eq!(resolved(&mut set, None, &home), Ok(token));
        assert_eq!(set.terms.program.unwrap().login, token);
        for other in [None, Some("codex")] {
            let mut order = order(other, true, true);
            assert_eq!(resolved(&mut order, None, &home), Ok(Login::Key));
        }
        let missing = resolved(&mut order(Some("claude"), false, false), None, &home);
        assert!(missing.unwrap_err().contains("`claude setup-token`"));
    }

    #[test]
    fn a_host_says_itself_whether_it_has_a_token() {
        let (_scratch, home) = user("[agents.claude]\nlogin = 'token'\n");
        let mut hosted = order(Some("claude"), false, false);
        hosted.terms.host = Some(Name::new("box").unwrap());
        assert_eq!(resolved(&mut hosted, None, &home), Ok(Login::Token));
        hosted.terms.plan = Some(true);
        assert!(resolved(&mut hosted, None, &home).is_err());
    }

    #[test]
    fn a_plan_with_a_token_is_the_users_decision() {
        let (_scratch, home) = user("[agents.claude]\nlogin = 'token'\n");
        let refused = resolved(&mut order(Some("claude"), true, true), None, &home).unwrap_err();
        for text in [
            "reaches api.anthropic.com (any account there)",
            "`plan_with_token = true`",
        ] {
            assert!(refused.contains(text), "{refused}");
        }
        let member = recorded(&json!("key"), "closed");
        let resumed = resolved(&mut order(None, false, true), Some(&member), &home);
        assert_eq!(resumed.unwrap_err(), refused);
        let (_scratch, home) = user("[agents.claude]\nlogin = 'token'\nplan_with_token = true\n");
        let login = resolved(&mut order(Some("claude"), true, true), None, &home);
        assert_eq!(login, Ok(Login::TokenWithPlan));
    }

    /// What was recorded is what the user said then.
    #[test]
    fn a_teammate_that_is_resumed_logs_in_as_the_user_says_now() {
        let token = json!("token");
        let (_scratch, home) = user("");
        let mut resumed = order(None, false, true);
        let member = recorded(&token, "open");
        assert_eq!(resolved(&mut resumed, Some(&member), &home), Ok(Login::Key));
        assert_eq!(resumed.terms.program.unwrap().login, Login::Key);
        assert_eq!(resumed.terms.agent.as_deref(), Some("claude"));
        let (_scratch, home) = user("[agents.claude]\nlogin = 'token'\n");
        let mut resumed = order(None, false, true);
        let login = resolved(&mut resumed, Some(&recorded(&token, "open")), &home);
        assert!(login.unwrap().is_token());
        assert_eq!(resumed.terms.program, None, "it is recorded like that");
    }
}
