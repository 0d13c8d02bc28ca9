//! A token that was handed to an agent.

use std::borrow::Cow;
use std::fmt;

/// What stands in the place of a token.
const NOT_SHOWN: &str = "[the token is not shown]";

/// A token that was handed to an agent. What the agent says ends up in files of the team, so the
/// token is taken out of it. Never prints it.
#[derive(Clone)]
pub struct HandedToken(String);

impl HandedToken {
    /// Makes it of the value of its variable.
    pub fn new(token: String) -> Self {
        Self(token)
    }

    /// Returns the value, for the environment of the agent.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns a text without it.
    pub fn hide<'t>(&self, text: Cow<'t, str>) -> Cow<'t, str> {
        if self.0.is_empty() || !text.contains(&self.0) {
            return text;
        }
        text.replace(&self.0, NOT_SHOWN).into()
    }
}

impl fmt::Debug for HandedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandedToken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_does_not_show_the_token() {
        let token = HandedToken::new("sk-ant-oat01-x".to_owned());
        assert_eq!(
            token.hide("A=sk-ant-oat01-x B=sk-ant-oat01-x".into()),
            format!("A={NOT_SHOWN} B={NOT_SHOWN}")
        );
        assert!(matches!(
            token.hide("nothing".into()),
            Cow::Borrowed("nothing")
        ));
        assert!(!format!("{token:?}").contains("sk-ant"));
    }
}
