//! The logs of this host, a piece at a time, for a person at home who reads one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;
use teamd_shared::host::LogPiece;
use teamd_shared::link::FromHost;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};

use super::daemon::HostDaemon;

/// How far before its end a log is read, in bytes.
const TAIL: u64 = 1 << 20;
/// How much goes into one frame, in bytes: escaped, it is several times as long.
const PIECE: u64 = 256 << 10;

impl HostDaemon {
    /// Sends a piece of a log.
    pub(super) fn say_log(&self, number: u64, owner: &Name, from: Option<u64>) {
        let piece = read_piece(&self.dir, owner, from).map_err(|error| match error {
            error if error.is_not_found() => "there is none yet".to_owned(),
            error => error.to_string(),
        });
        self.links.say(&FromHost::Log { number, piece });
    }
}

fn read_piece(dir: &TeamDir, owner: &Name, from: Option<u64>) -> Result<LogPiece, DirError> {
    let at = TeamPath::log(owner.as_str());
    let file = dir.open_file(&at, OFlags::RDONLY)?;
    piece_of(&file, from).map_err(dir.cannot("read", &at))
}

fn piece_of(file: &File, from: Option<u64>) -> io::Result<LogPiece> {
    let length = file.metadata()?.len();
    // One that is shorter than what was read has begun again.
    let offset = match from {
        Some(from) if from <= length => from,
        Some(_) => 0,
        None => length.saturating_sub(TAIL),
    };
    let wanted = (length - offset).min(PIECE);
    let mut bytes = vec![0; usize::try_from(wanted).unwrap_or_default()];
    file.read_exact_at(&mut bytes, offset)?;
    let mut begin = 0;
    if from.is_none() && offset > 0 {
        let newline = bytes.iter().position(|byte| *byte == b'\n');
        begin = newline.map_or(0, |newline| newline + 1);
    }
    let is_last = offset + wanted == length;
    if !is_last && let Some(newline) = bytes.iter().rposition(|byte| *byte == b'\n') {
        bytes.truncate(newline + 1);
    }
    let end = offset + bytes.len() as u64;
    let text = bytes.get(begin..).unwrap_or_default();
    Ok(LogPiece {
        offset: offset + begin as u64,
        text: String::from_utf8_lossy(text).into_owned(),
        end,
        length,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn log(text: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn a_log_is_read_from_near_its_end_in_pieces_of_whole_lines() {
        let line = "0123456789abcde\n";
        let many = usize::try_from(TAIL).unwrap() / line.len() + 9;
        let text = line.repeat(many);
        let file = log(&text);
        let length = text.len() as u64;
        let mut read = String::new();
        let mut from = None;
        loop {
            let piece = piece_of(&file, from).unwrap();
            assert!(piece.text.ends_with('\n'));
            read.push_str(&piece.text);
            from = Some(piece.end);
            if piece.end == piece.length {
                break;
            }
        }
        assert_eq!(from, Some(length));
        assert!(text.ends_with(&read));
        assert!(read.len() as u64 > TAIL - 100, "{}", read.len());
    }

    #[test]
    fn a_log_that_has_begun_again_is_read_from_its_beginning() {
        let file = log("new\nto");
        let piece = piece_of(&file, Some(900)).unwrap();
        assert_eq!((piece.offset, piece.text.as_str()), (0, "new\nto"));
        let rest = piece_of(&file, Some(4)).unwrap();
        assert_eq!((rest.text.as_str(), rest.end), ("to", 6));
    }
}
