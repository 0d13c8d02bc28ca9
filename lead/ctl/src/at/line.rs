//! The command line for the shell of another machine. Pure.
//!
//! `sshd` gives it to the login shell of the user as one text. It means the same to bash, dash, zsh,
//! fish and tcsh. (Only a line break in an argument is an error to tcsh.)

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;

/// The most bytes that Linux passes to a program in one argument, here `ssh` and there the shell:
/// MAX_ARG_STRLEN, with a NUL.
const LONGEST: usize = (128 << 10) - 1;

/// What is to be run there.
pub(super) struct FarLine<'a> {
    /// The directory; none is the home.
    pub(super) dir: Option<&'a OsStr>,
    /// What is set for the command.
    pub(super) variables: &'a [(&'a str, OsString)],
    /// The arguments of `teamctl`.
    pub(super) args: &'a [OsString],
}

/// Writes the line.
///
/// # Errors
/// [`ExitCode::Usage`] if it is too long.
pub(super) fn far_line(line: &FarLine<'_>) -> Result<OsString, CommandError> {
    let mut text = Vec::new();
    if let Some(dir) = line.dir {
        text.extend(b"cd ");
        // `CDPATH` has no say then, and no directory looks like an option.
        if !dir.as_bytes().starts_with(b"/") {
            text.extend(b"./");
        }
        quote(dir.as_bytes(), &mut text);
        text.extend(b" && ");
    }
    // The shell makes way: the parent of `teamctl` is the one that serves the connection, and a
    // signal reaches `teamctl` itself. `env` sets variables in the same way for each shell.
    text.extend(b"exec env ");
    // A shell that is no login shell has not read the files in which installers of programs extend
    // the PATH. `cargo install` and our archive put them here. Two strings: tcsh would read `$PATH:`
    // as a modifier.
    text.extend(br#"PATH="$PATH"":$HOME/.local/bin:$HOME/.cargo/bin""#);
    for (name, value) in line.variables {
        text.push(b' ');
        text.extend(name.as_bytes());
        text.push(b'=');
        quote(value.as_bytes(), &mut text);
    }
    text.extend(b" teamctl");
    for arg in line.args {
        text.push(b' ');
        quote(arg.as_bytes(), &mut text);
    }
    if line.dir.is_some() {
        text.extend(format!("; exit {}", super::NO_DIRECTORY).as_bytes());
    }
    if text.len() > LONGEST {
        let message = "the arguments are too long for the command line of another machine";
        return Err(CommandError::new(ExitCode::Usage, message)
            .hint("write `-` instead of a long text, and pipe the text to this command"));
    }
    Ok(OsString::from_vec(text))
}

/// Quotes one word. A quote ends what is quoted, and so does a backslash, which fish reads between
/// quotes too, and an exclamation mark, which tcsh does.
fn quote(word: &[u8], to: &mut Vec<u8>) {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_./:@,+-".contains(byte);
    if !word.is_empty() && word.iter().all(is_plain) {
        return to.extend(word);
    }
    to.push(b'\'');
    for &byte in word {
        if b"'\\!".contains(&byte) {
            to.extend([b'\'', b'\\', byte, b'\'']);
        } else {
            to.push(byte);
        }
    }
    to.push(b'\'');
}

/// Quotes a word for a line that a person types.
pub(crate) fn quoted(word: &str) -> String {
    let mut text = Vec::new();
    quote(word.as_bytes(), &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(dir: Option<&str>, args: &[&str]) -> String {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let line = far_line(&FarLine {
            dir: dir.map(OsStr::new),
            variables: &[("SEEN", "a b".into())],
            args: &args,
        });
        line.unwrap().into_string().unwrap()
    }

    const ENV: &str =
        r#"exec env PATH="$PATH"":$HOME/.local/bin:$HOME/.cargo/bin" SEEN='a b' teamctl"#;

    #[test]
    fn a_line_never_begins_as_an_option_and_its_words_are_quoted() {
        assert_eq!(line(None, &["status"]), format!("{ENV} status"));
        assert_eq!(
            line(Some("-x"), &["send", "alice", "a 'b' $(c)"]),
            format!(r"cd ./-x && {ENV} send alice 'a '\''b'\'' $(c)'; exit 121")
        );
        assert_eq!(
            line(Some("/srv/a b"), &["", "\\", "x\ny!"]),
            format!("cd '/srv/a b' && {ENV} '' ''\\\\'' 'x\ny'\\!''; exit 121")
        );
    }

    #[test]
    fn a_line_that_no_shell_would_get_is_refused() {
        let long = |length| {
            far_line(&FarLine {
                dir: None,
                variables: &[],
                args: &[OsString::from("x".repeat(length))],
            })
        };
        assert!(long(100_000).is_ok());
        assert_eq!(long(LONGEST).unwrap_err().code(), ExitCode::Usage);
    }
}
