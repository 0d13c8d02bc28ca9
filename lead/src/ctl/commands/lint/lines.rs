//! Files of one writer, a record a line: the journal and the transcripts.

use teamd_shared::journal::{Team, Unreadable, read_lines};
use teamd_shared::transcript::Entry;

use super::{Remark, without_place};

/// Reads a journal as a start does.
pub(super) fn journal(bytes: &[u8]) -> Vec<Remark> {
    const REFUSED: &str = "`teamd start` refuses, and says how to go on";
    let (mut remarks, mut team, mut continues) = (Vec::new(), Team::default(), true);
    for line in read_lines(bytes) {
        match line {
            Err(Unreadable { number, text, why }) => {
                remarks.push(unreadable(number, text, &why, REFUSED));
                // What follows would be told for the same reason.
                continues = false;
            }
            Ok((number, line)) if continues => {
                if let Err(why) = team.apply(&line) {
                    remarks.push(Remark::error((number, 1), why.to_string(), REFUSED));
                    continues = false;
                }
            }
            Ok(_) => {}
        }
    }
    remarks.extend(torn(bytes, "`teamd start` sets it aside in journal.torn"));
    remarks
}

/// Reads a transcript as a worker does that resumes.
pub(super) fn transcript(bytes: &[u8]) -> Vec<Remark> {
    const PASSED: &str = "passed over when the conversation goes on";
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    let lines = bytes[..whole].split(|&byte| byte == b'\n').zip(1..).filter(|(line, _)| !line.is_empty());
    let mut remarks: Vec<Remark> = lines
        .filter_map(|(line, number)| {
            let error = serde_json::from_slice::<Entry>(line).err()?;
            Some(unreadable(number, line, &error.to_string(), PASSED))
        })
        .collect();
    remarks.extend(torn(bytes, "the next life sets it aside"));
    remarks
}

fn unreadable(number: usize, line: &[u8], why: &str, reader: &str) -> Remark {
    Remark::error((number, column_in(line, why)), without_place(why), reader)
}

/// A last line without a newline: it is not there yet.
pub(super) fn torn(bytes: &[u8], reader: &str) -> Option<Remark> {
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let rest = &bytes[whole..];
    let line = bytes[..whole].iter().filter(|&&byte| byte == b'\n').count() + 1;
    (!rest.is_empty()).then(|| {
        Remark::error((line, 1), format!("no newline behind the last line ({} bytes)", rest.len()), reader)
    })
}

/// Returns the column that an error of JSON names in its text, in characters from 1.
pub(super) fn column_in(line: &[u8], error: &str) -> usize {
    let named = error.rsplit_once(" column ").and_then(|(_, column)| column.parse::<usize>().ok());
    named.map_or(1, |byte| column_of(line, byte.saturating_sub(1)))
}

/// Returns the column of a byte, in characters from 1.
pub(super) fn column_of(line: &[u8], byte: usize) -> usize {
    // Every byte of a character but its first one is a continuation.
    line[..byte.min(line.len())].iter().filter(|&&byte| byte & 0xC0 != 0x80).count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(remarks: &[Remark]) -> Vec<String> {
        remarks.iter().map(|it| format!("{}:{}: {}", it.line, it.column, it.what)).collect()
    }

    fn started(seq: u64) -> String {
        format!(
            "{{\"seq\":{seq},\"at\":1.0,\"done\":0,\"record\":\"team\",\"event\":\"started\",\"team_name\":\"t\",\"daemon\":null}}\n"
        )
    }

    #[test]
    fn a_journal_is_read_as_a_start_reads_it() {
        let good = started(1) + &started(2);
        assert_eq!(told(&journal(good.as_bytes())), [""; 0]);
        let gap = started(1) + &started(3) + &started(4);
        assert_eq!(told(&journal(gap.as_bytes())), ["2:1: seq 3 follows 1"]);
        let broken = started(1) + "{\"ä\";1}\n" + &started(2) + "{\"seq\"";
        assert_eq!(
            told(&journal(broken.as_bytes())),
            ["2:5: expected `:`", "4:1: no newline behind the last line (6 bytes)"]
        );
    }

    #[test]
    fn a_transcript_is_read_as_a_worker_reads_it() {
        let entry = "{\"at\":1.0,\"inbox\":{\"offset\":0,\"tail\":\"cbf29ce484222325\"},\"entry\":\"left\",\"reason\":\"x\"}\n";
        assert_eq!(told(&transcript(entry.as_bytes())), [""; 0]);
        let unknown = entry.replace("left", "gone");
        assert!(told(&transcript(unknown.as_bytes()))[0].contains("unknown variant `gone`"));
    }
}
