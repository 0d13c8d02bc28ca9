//! Text from the user: on the command line, in a file, or on stdin.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use teamd_shared::message::{MAX_LINE, MAX_SHOWN};

use crate::context::Context;
use crate::error::{CommandError, io_hint};
use crate::exit_code::ExitCode;

/// How far a text that is too long is counted: some inputs never end.
const MAX_COUNTED: u64 = 64 << 20;

/// Stands for stdin.
const STDIN: &str = "-";

/// Returns a text of the command line, or stdin where the text is `-`.
///
/// # Errors
/// [`ExitCode::Failed`] if stdin cannot be read, is not UTF-8 text, or is too long.
pub fn given(text: &str) -> Result<String, CommandError> {
    if text == STDIN {
        read("stdin", io::stdin().lock())
    } else {
        Ok(text.to_owned())
    }
}

/// Returns the text of a file, or of stdin where the file is `-`.
///
/// # Errors
/// As [`given`], and if the file cannot be opened.
pub fn from_file(path: &Path) -> Result<String, CommandError> {
    if path.as_os_str() == STDIN {
        return given(STDIN);
    }
    let shown = path.display().to_string();
    let file = File::open(path).map_err(|error| {
        let hint = io_hint(&error, Some(path));
        let error = CommandError::new(ExitCode::Failed, format!("cannot open {shown}: {error}"));
        hint.into_iter().fold(error, CommandError::hint)
    })?;
    read(&shown, file)
}

/// Refuses a blank text.
///
/// # Errors
/// [`ExitCode::Usage`] if the text is blank.
pub fn not_blank(text: String, what: &str) -> Result<String, CommandError> {
    if text.trim().is_empty() {
        return Err(
            CommandError::new(ExitCode::Usage, format!("the {what} is empty"))
                .hint("write the text in quotes, or write `-` and pipe the text to the command"),
        );
    }
    Ok(text)
}

/// Notes that a text is longer than a model is shown.
pub fn note_if_cut(context: &Context, text: &str, what: &str) {
    if let Some(note) = cut(text, what) {
        context.out.note(note);
        context.out.hint(LONGER);
    }
}

/// What to do with a text that is longer than a model is shown.
pub const LONGER: &str =
    "put a longer text into a file in the workspace: the agent can read it piece by piece";

/// Says how much of a text a model is shown, if that is not all of it.
pub fn cut(text: &str, what: &str) -> Option<String> {
    let length = text.chars().count();
    (length > MAX_SHOWN).then(|| {
        format!("the {what} has {length} characters: a model of a service is shown {MAX_SHOWN} of them, its beginning and its end")
    })
}

fn read(from: &str, mut input: impl Read) -> Result<String, CommandError> {
    let cannot = |error: io::Error| {
        CommandError::new(ExitCode::Failed, format!("cannot read {from}: {error}"))
    };
    let mut bytes = Vec::new();
    input
        .by_ref()
        .take(MAX_LINE as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    if bytes.len() > MAX_LINE {
        let rest = io::copy(&mut input.take(MAX_COUNTED), &mut io::sink()).map_err(cannot)?;
        let more = if rest == MAX_COUNTED {
            "more than "
        } else {
            ""
        };
        let size = bytes.len() as u64 + rest;
        let message = format!("{from} has {more}{size} bytes; the limit is {MAX_LINE}");
        return Err(CommandError::new(ExitCode::Failed, message)
            .hint("put the text into a file in the workspace, and send its path"));
    }
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        CommandError::new(ExitCode::Failed, format!("{from} is not UTF-8 text: invalid byte at {at}")).hint(
            "put it into a file in the workspace, and send its path; `iconv` converts other encodings to UTF-8",
        )
    })?;
    // `echo hi | teamctl send alice -` means "hi".
    if text.ends_with('\n') {
        text.truncate(text.trim_end_matches(['\n', '\r']).len());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_loses_its_last_line_end() {
        assert_eq!(read("stdin", &b"a\n b\r\n"[..]).unwrap(), "a\n b");
        assert_eq!(read("stdin", &b""[..]).unwrap(), "");
        let error = not_blank(" \n".to_owned(), "message").unwrap_err();
        assert_eq!(
            (error.code(), error.next_step().is_some()),
            (ExitCode::Usage, true)
        );
    }

    #[test]
    fn a_text_that_a_model_is_not_shown_whole_is_noted() {
        assert_eq!(cut(&"ü".repeat(MAX_SHOWN), "prompt"), None);
        let note = cut(&"ü".repeat(MAX_SHOWN + 1), "prompt").unwrap();
        assert!(
            note.starts_with("the prompt has 100001 characters") && note.contains("shown 100000"),
            "{note}"
        );
    }

    #[test]
    fn a_text_that_is_too_long_or_not_utf_8_is_refused_with_the_reason() {
        let error = read("stdin", io::repeat(b'x').take(MAX_LINE as u64 + 7)).unwrap_err();
        assert_eq!(
            error.message(),
            "stdin has 1048583 bytes; the limit is 1048576"
        );
        assert!(
            read("f", &b"\xff"[..])
                .unwrap_err()
                .next_step()
                .is_some_and(|hint| hint.contains("workspace"))
        );
        assert_eq!(
            read("f", &b"ab\xff"[..]).unwrap_err().message(),
            "f is not UTF-8 text: invalid byte at 2"
        );
    }
}
