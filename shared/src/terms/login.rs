//! How an agent logs in at its vendor.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::CLAUDE_TOKEN;

/// The host that an agent with a token of its own reaches whatever its gate: that of its vendor.
pub const TOKEN_HOST: &str = "api.anthropic.com";

/// How an agent logs in at its vendor. Only the user's own configuration chooses a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Login {
    /// By the gateway: the key stays outside of its sandbox.
    #[default]
    Key,
    /// By a token of the user's own subscription, which is handed to it.
    Token,
    /// The same, and the user lets it work behind a closed gate all the same.
    TokenWithPlan,
}

impl Login {
    /// Tells whether a token is handed to the agent.
    pub fn is_token(self) -> bool {
        self != Self::Key
    }

    /// Tells whether its gate may be closed: a closed gate of an agent with a token is not quite
    /// closed.
    pub fn may_plan(self) -> bool {
        self != Self::Token
    }

    /// Returns what a token costs, in a few words; none without one.
    pub fn costs(self) -> Option<TokenCosts> {
        self.is_token().then_some(TokenCosts)
    }
}

/// What a login by a token costs, in a few words.
#[derive(Debug, Clone, Copy)]
pub struct TokenCosts;

impl fmt::Display for TokenCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the token is inside the sandbox ({CLAUDE_TOKEN}); budgets rest on what the agent reports; \
             closed gate: reaches {TOKEN_HOST} (any account there)"
        )
    }
}
