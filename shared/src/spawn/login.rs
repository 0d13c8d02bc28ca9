//! How the agent of a teammate logs in: as the user's own configuration says now, whatever was
//! recorded when it was spawned first.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::config::RosterMember;
use crate::control::SpawnOrder;
use crate::environment::CLAUDE_TOKEN;
use crate::terms::{AgentProgram, Gate, Login, Protocol, TOKEN_HOST};
use crate::user_config::{UserConfig, UserConfigError};

/// Why an agent cannot log in as the user's own configuration says. Fits behind "error: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The user's own configuration cannot be used.
    #[error(transparent)]
    Config(#[from] UserConfigError),
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
    let login = config.login(&name, &program);
    if login.is_token() && order.environment.value(CLAUDE_TOKEN).is_none() {
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
