//! Reads a text from the command line that may begin with a dash, such as an item of a list.

use std::ffi::OsStr;

use clap::builder::{StringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

/// Reads a text. A flag of the same command is refused: then the text was left out.
#[derive(Debug, Clone, Copy)]
pub struct FreeText;

impl TypedValueParser for FreeText {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let text = StringValueParser::new().parse_ref(command, argument, value)?;
        let flag = text
            .strip_prefix("--")
            .map(|flag| flag.split_once('=').map_or(flag, |(name, _)| name));
        if !flag.is_some_and(|flag| {
            command
                .get_arguments()
                .any(|argument| argument.get_long() == Some(flag))
        }) {
            return Ok(text);
        }
        let mut missing = clap::Error::new(ErrorKind::InvalidValue).with_cmd(command);
        let named = argument.map(ToString::to_string).unwrap_or_default();
        missing.insert(ContextKind::InvalidArg, ContextValue::String(named));
        missing.insert(
            ContextKind::InvalidValue,
            ContextValue::String(String::new()),
        );
        Err(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &[&str]) -> Result<(Option<String>, Option<String>, bool), String> {
        let text = |id: &'static str| {
            Arg::new(id)
                .allow_hyphen_values(true)
                .value_parser(FreeText)
        };
        let flag = Arg::new("no-check")
            .long("no-check")
            .action(clap::ArgAction::SetTrue);
        let command = Command::new("x")
            .arg(text("subject"))
            .arg(text("description").long("description"))
            .arg(flag);
        let mut matches = command
            .try_get_matches_from([&["x"], line].concat())
            .map_err(|it| it.to_string())?;
        let no_check = matches.get_flag("no-check");
        Ok((
            matches.remove_one("subject"),
            matches.remove_one("description"),
            no_check,
        ))
    }

    #[test]
    fn a_text_may_begin_with_a_dash_and_takes_no_flag() {
        for text in [
            "- [ ] one",
            "-x",
            "-",
            "---\ntitle: x\n---",
            "-- all",
            "--maybe not",
            "-h is help",
        ] {
            assert_eq!(
                said(&[text, "--no-check"]),
                Ok((Some(text.to_owned()), None, true))
            );
            assert_eq!(
                said(&["--no-check", "--description", text]),
                Ok((None, Some(text.to_owned()), true))
            );
        }
        let missing = said(&["one", "--description", "--no-check"]).unwrap_err();
        assert!(
            missing.contains("a value is required for '--description <description>'"),
            "{missing}"
        );
    }
}
