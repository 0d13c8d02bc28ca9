//! Files of records, one a line: the lines, the places in them, and the journal.

use teamd_client::print::render::count;
use teamd_shared::journal::reader::JournalError;
use teamd_shared::journal::{Team, read_lines};

use super::{LintLevel, Remark, RemarkPlace, without_place};

/// Reads a journal as a start does.
pub(super) fn journal(bytes: &[u8]) -> Vec<Remark> {
    const REFUSED: &str = "`teamd start` refuses, unless a snapshot follows";
    let mut remarks = Vec::new();
    let mut team = Team::default();
    let mut continues = true;
    let texts: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    for line in read_lines(bytes) {
        match line {
            Err(bad) => {
                remarks.extend(match bad {
                    JournalError::Fold { number, why } => Some(Remark::error(
                        RemarkPlace::of(number, 1),
                        why.to_string(),
                        REFUSED,
                    )),
                    JournalError::Unreadable { number, why } => {
                        Some(unreadable(number, texts[number - 1], &why, REFUSED))
                    }
                    JournalError::Dir(_) | JournalError::Io(_) => None,
                });
                // What follows would be reported for the same reason.
                continues = false;
            }
            Ok((number, line)) if continues => {
                if let Err(why) = team.apply(&line) {
                    remarks.push(Remark::error(
                        RemarkPlace::of(number, 1),
                        why.to_string(),
                        REFUSED,
                    ));
                    continues = false;
                }
            }
            Ok(_) => {}
        }
    }
    remarks.extend(each_line(
        bytes,
        "`teamd start` sets it aside in journal.torn",
        |_, _| {},
    ));
    remarks
}

/// Hands over each whole line that is not blank, with its number. Returns a remark about a last
/// line without a newline.
pub(super) fn each_line(
    bytes: &[u8],
    reader: &str,
    mut take: impl FnMut(usize, &[u8]),
) -> Option<Remark> {
    let mut lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    let rest = lines.pop().unwrap_or_default();
    let number = lines.len() + 1;
    for (line, number) in lines
        .into_iter()
        .zip(1..)
        .filter(|(line, _)| !line.trim_ascii().is_empty())
    {
        take(number, line);
    }
    (!rest.is_empty()).then(|| {
        let what = format!(
            "the file ends with {} without a newline",
            count(rest.len(), "byte")
        );
        Remark {
            severity: LintLevel::Torn,
            ..Remark::error(RemarkPlace::of(number, 1), what, reader)
        }
    })
}

/// Makes the remark about a line that is not the JSON that belongs there.
pub(super) fn unreadable(number: usize, line: &[u8], why: &str, reader: &str) -> Remark {
    Remark::error(
        RemarkPlace::of(number, column_in(line, why)),
        without_place(why),
        reader,
    )
}

/// Returns the column that an error of JSON names in its text, in characters from 1.
pub(super) fn column_in(line: &[u8], error: &str) -> usize {
    let named = error
        .rsplit_once(" column ")
        .and_then(|(_, column)| column.parse::<usize>().ok());
    named.map_or(1, |byte| column_of(line, byte.saturating_sub(1)))
}

/// Returns the column of a byte, in characters from 1.
pub(super) fn column_of(line: &[u8], byte: usize) -> usize {
    // Every byte of a character but its first one is a continuation.
    line[..byte.min(line.len())]
        .iter()
        .filter(|&&byte| byte & 0xC0 != 0x80)
        .count()
        + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(remarks: &[Remark]) -> Vec<String> {
        remarks
            .iter()
            .map(|it| format!("{}:{}: {}", it.line, it.column, it.what))
            .collect()
    }

    fn started(seq: u64) -> String {
        format!(
            "{{\"seq\":{seq},\"at\":1.0,\"done\":0,\"record\":\"team\",\"event\":\"started\",\"team_name\":\"t\",\"daemon\":null}}\n"
        )
    }

    #[test]
    fn a_journal_is_read_as_a_start_reads_it() {
        let first = || started(1).replace("\"at\"", "\"version\":1,\"at\"");
        let good = first() + &started(2);
        assert_eq!(told(&journal(good.as_bytes())), [""; 0]);
        let gap = first() + &started(3) + &started(4);
        assert_eq!(told(&journal(gap.as_bytes())), ["2:1: seq 3 follows 1"]);
        let broken = first() + "{\"ä\";1}\n" + &started(2) + "{\"seq\"";
        assert_eq!(
            told(&journal(broken.as_bytes())),
            [
                "2:5: expected `:`",
                "4:1: the file ends with 6 bytes without a newline"
            ]
        );
    }
}
