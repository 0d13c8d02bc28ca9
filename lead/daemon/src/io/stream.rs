//! What another machine says on a stream of lines, whichever side has dialled. The stream begins with
//! [`MAGIC`], since a login shell can print something before it.

use teamd_shared::link::{MAGIC, MAX_BANNER, REFUSED};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// Reads one line of at most so many bytes, without its newline; none at the end, also behind a
/// line that is not whole.
pub(crate) async fn read_line(
    reader: &mut (impl AsyncBufRead + Unpin),
    most: usize,
) -> Result<Option<Vec<u8>>, String> {
    let mut line = Vec::new();
    let mut limited = reader.take(most as u64 + 1);
    limited
        .read_until(b'\n', &mut line)
        .await
        .map_err(|error| format!("the connection broke: {error}"))?;
    if line.pop() == Some(b'\n') {
        return Ok(Some(line));
    }
    if line.len() >= most {
        return Err(format!("it says more than {most} bytes without an end"));
    }
    Ok(None)
}

/// Reads what a login shell prints, and the line with which the stream begins. Returns whether that
/// came.
///
/// # Errors
/// Why the other side refuses the connection, or that too much is printed.
pub(crate) async fn until_magic(reader: &mut (impl AsyncBufRead + Unpin)) -> Result<bool, String> {
    let mut printed = 0;
    while let Some(line) = read_line(reader, MAX_BANNER).await? {
        if line == MAGIC.as_bytes() {
            return Ok(true);
        }
        let text = String::from_utf8_lossy(&line).into_owned();
        if let Some(why) = text.strip_prefix(REFUSED) {
            return Err(shown(why));
        }
        if printed == 0 {
            tracing::warn!(
                "the login shell of another machine prints: {}",
                shown(&text)
            );
        }
        printed += line.len() + 1;
        if printed > MAX_BANNER {
            return Err(format!(
                "its login shell prints more than {MAX_BANNER} bytes"
            ));
        }
    }
    Ok(false)
}

/// Returns a text of another machine as one short line of visible characters.
pub(crate) fn shown(text: &str) -> String {
    let visible = |it: char| match it {
        // They quote names, which a person copies.
        '"' | '\'' => it.to_string(),
        it => it.escape_debug().to_string(),
    };
    text.chars().take(MOST_OF_A_TEXT).map(visible).collect()
}

/// How much of a text of another machine is shown, in characters.
const MOST_OF_A_TEXT: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_login_shell_prints_is_passed_over_and_has_a_limit() {
        let mut said = &b"Welcome!\nteamd-link\nmore\n"[..];
        assert_eq!(until_magic(&mut said).await, Ok(true));
        assert_eq!(said, b"more\n");
        assert_eq!(until_magic(&mut &b"Welcome!\n"[..]).await, Ok(false));
        let mut refused = &b"Welcome!\nteamd refuses: another key\n"[..];
        assert_eq!(
            until_magic(&mut refused).await,
            Err("another key".to_owned())
        );
        let endless = "hi\n".repeat(MAX_BANNER);
        let why = until_magic(&mut endless.as_bytes()).await.unwrap_err();
        assert!(why.contains("prints more than"), "{why}");
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_cut_off() {
        let mut endless: &[u8] = b"0123456789";
        assert!(read_line(&mut endless, 8).await.is_err());
        let mut whole: &[u8] = b"one\ntw";
        assert_eq!(read_line(&mut whole, 8).await, Ok(Some(b"one".to_vec())));
        assert_eq!(read_line(&mut whole, 8).await, Ok(None));
    }
}
