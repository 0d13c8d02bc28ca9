//! Files of records, one a line: the lines, the places in them, and the journal.

use teamd_shared::journal::reader::JournalError;
use teamd_shared::journal::{Team, read_lines};

use super::decisions::illegal;
use super::misread::misread;
use super::{LintLevel, Remark, without_place};

/// Reads a journal as a start does.
pub(super) fn journal(bytes: &[u8]) -> Vec<Remark> {
    const REFUSED: &str = "`teamd start` refuses, unless a snapshot follows";
    const FOLDED: &str = "folded as it stands: no daemon decides it so";
    let (mut remarks, mut team, mut continues) = (Vec::new(), Team::default(), true);
    let texts: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    for line in read_lines(bytes) {
        match line {
            Err(bad) => {
                remarks.extend(match bad {
                    JournalError::Fold { number, why } => {
                        Some(Remark::error((number, 1), why.to_string(), REFUSED))
                    }
                    JournalError::Unreadable { number, why } => {
                        Some(unreadable(number, texts[number - 1], &why, REFUSED))
                    }
                    JournalError::Dir(_) | JournalError::Io(_) => None,
                });
                // What follows would be told for the same reason.
                continues = false;
            }
            Ok((number, line)) if continues => {
                remarks.extend(misread(number, texts[number - 1], &line));
                let illegal = illegal(&team, &line).into_iter();
                remarks.extend(illegal.map(|what| Remark::warning((number, 1), what, FOLDED)));
                if let Err(why) = team.apply(&line) {
                    remarks.push(Remark::error((number, 1), why.to_string(), REFUSED));
                    continues = false;
                }
            }
            Ok(_) => {}
        }
    }
    remarks.extend(each_line(bytes, "`teamd start` sets it aside in journal.torn", |_, _| {}));
    remarks
}

/// Hands over each whole line that is not blank, with its number. Returns a remark about a last line without a newline.
pub(super) fn each_line(bytes: &[u8], reader: &str, mut take: impl FnMut(usize, &[u8])) -> Option<Remark> {
    let mut lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    let rest = lines.pop().unwrap_or_default();
    let number = lines.len() + 1;
    for (line, number) in lines.into_iter().zip(1..).filter(|(line, _)| !line.trim_ascii().is_empty()) {
        take(number, line);
    }
    (!rest.is_empty()).then(|| {
        let what = format!("the file ends with {} bytes without a newline", rest.len());
        Remark { severity: LintLevel::Torn, ..Remark::error((number, 1), what, reader) }
    })
}

/// Makes the remark about a line that is not the JSON that belongs there.
pub(super) fn unreadable(number: usize, line: &[u8], why: &str, reader: &str) -> Remark {
    Remark::error((number, column_in(line, why)), without_place(why), reader)
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
        let first = || started(1).replace("\"at\"", "\"version\":1,\"at\"");
        let good = first() + &started(2);
        assert_eq!(told(&journal(good.as_bytes())), [""; 0]);
        let gap = first() + &started(3) + &started(4);
        assert_eq!(told(&journal(gap.as_bytes())), ["2:1: seq 3 follows 1"]);
        let broken = first() + "{\"ä\";1}\n" + &started(2) + "{\"seq\"";
        assert_eq!(
            told(&journal(broken.as_bytes())),
            ["2:5: expected `:`", "4:1: the file ends with 6 bytes without a newline"]
        );
    }

    fn request(seq: u64, event: &str, status: &str) -> String {
        format!(
            "{{\"seq\":{seq},\"at\":1.0,\"done\":0,\"record\":\"request\",\"event\":\"{event}\",\"request_id\":\"a1\",\"kind\":\"shutdown\",\"from\":\"lead\",\"to\":\"alice\",\"status\":\"{status}\",\"payload\":{{\"reason\":\"\",\"decide_within\":30.0,\"force_after\":null}},\"incarnation\":1,\"message_id\":\"0197f5f2-0000-7000-8000-000000000001\",\"created_at\":1.0,\"resolved_at\":null,\"reason\":null,\"answered_by\":null}}\n"
        )
    }

    fn member(seq: u64, incarnation: &str, more: &str) -> String {
        format!(
            "{{\"seq\":{seq},\"at\":1.0,\"done\":0,\"record\":\"member\",\"event\":\"spawning\",\"name\":\"alice\",\"role\":\"\",\"model\":\"script\",\"workspace\":\"/w\",\"plan\":false,\"approve_by\":\"person\",\"restart\":\"never\",\"incarnation\":{incarnation},\"conversation\":1,\"begins_at\":{{\"offset\":0,\"tail\":\"cbf29ce484222325\"}},\"phase\":\"spawning\",\"gate\":\"open\",\"ending\":null,\"exit\":null,\"spawned_at\":1.0,\"updated_at\":1.0{more}}}\n"
        )
    }

    #[test]
    fn what_no_daemon_decides_is_told() {
        let first = started(1).replace("\"at\"", "\"version\":1,\"at\"");
        let good = [
            &first[..],
            &member(2, "1", ""),
            &request(3, "asked", "pending"),
            &request(4, "joined", "pending"),
        ];
        assert_eq!(told(&journal(good.concat().as_bytes())), [""; 0]);
        let done = |line: &str, done: u64| line.replace("\"done\":0", &format!("\"done\":{done}"));
        let approved = request(2, "approved", "approved");
        let asked = first.clone() + &request(2, "asked", "pending");
        for (lines, what) in [
            (started(1), "the first line has no version"),
            (first.clone() + &done(&started(2), 1) + &started(3), "done goes back from 1 to 0"),
            (
                first.clone() + &done(&started(2), 99),
                "done is 99: the effects of this line cannot be complete yet",
            ),
            (first.clone() + &approved, "the request a1 was never asked"),
            (asked.clone() + &request(3, "asked", "pending"), "the id a1 is taken"),
            (
                asked.clone() + &request(3, "approved", "pending"),
                "the request a1 is approved after this event",
            ),
            (
                asked + &request(3, "approved", "approved") + &request(4, "rejected", "rejected"),
                "the request a1 is approved already",
            ),
            (
                first + &member(2, "3", "") + &member(3, "2", ""),
                "the incarnation of alice goes back from 3 to 2",
            ),
        ] {
            let remarks = journal(lines.as_bytes());
            assert_eq!(remarks.iter().map(|it| it.what.as_str()).collect::<Vec<_>>(), [what], "{lines}");
            assert_eq!(remarks[0].severity, LintLevel::Warning);
        }
    }

    #[test]
    fn what_is_read_as_something_else_is_told() {
        let first = started(1).replace("\"at\"", "\"version\":1,\"at\"");
        let of = |line: &str| {
            let remarks = journal((first.clone() + line).as_bytes());
            remarks.into_iter().map(|it| it.what).collect::<Vec<_>>()
        };
        let process =
            |pid: &str| member(2, "1", &format!(",\"pid\":{pid},\"start_ticks\":7,\"boot_id\":\"b\""));
        assert_eq!(of(&process("4")), [""; 0]);
        assert_eq!(of(&member(2, "1.0", "")), [""; 0], "a whole number");
        let named = "belongs to no process: pid and start_ticks are whole numbers, boot_id is text";
        assert_eq!(of(&process("\"closed\"")), [format!("pid {named}")]);
        assert_eq!(
            of(&member(2, "1", ",\"sandbox\":[]")),
            [
                r#"sandbox is [], and is read as {"mode":"workspace-write","no_network":false,"writable":[],"hidden":[]}"#
            ]
        );
        assert_eq!(of(&started(2).replace("\"team\"", "0")), ["record is 0, and is read as \"team\""]);
        let tail = "tail is \"1\", and is read as \"0000000000000001\"";
        assert_eq!(of(&member(2, "1", "").replace("cbf29ce484222325", "1")), [tail]);
    }
}
