//! Files of one writer, a record a line: the journal and the transcripts.

use teamd_shared::journal::{Team, Unreadable, read_lines};
use teamd_shared::json;
use teamd_shared::transcript::Entry;

use super::decisions::illegal;
use super::misread::misread;
use super::{Remark, without_place};

/// Reads a journal as a start does.
pub(super) fn journal(bytes: &[u8]) -> Vec<Remark> {
    const REFUSED: &str = "`teamd start` refuses, and says how to go on";
    const FOLDED: &str = "folded as it stands: no daemon decides it so";
    let (mut remarks, mut team, mut continues) = (Vec::new(), Team::default(), true);
    let texts: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    for line in read_lines(bytes) {
        match line {
            Err(Unreadable { number, text, why }) => {
                remarks.push(unreadable(number, text, &why, REFUSED));
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
    remarks.extend(torn(bytes, "`teamd start` sets it aside in journal.torn"));
    remarks
}

/// Reads a transcript as a worker does that resumes.
pub(super) fn transcript(bytes: &[u8]) -> Vec<Remark> {
    const PASSED: &str = "passed over when the conversation goes on";
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    let lines = bytes[..whole].split(|&byte| byte == b'\n').zip(1..).filter(|(line, _)| !line.is_empty());
    let mut remarks = Vec::new();
    for (line, number) in lines {
        match json::read::<Entry>(line) {
            Ok(entry) => remarks.extend(misread(number, line, &entry)),
            Err(error) => remarks.push(unreadable(number, line, &error.to_string(), PASSED)),
        }
    }
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
        let first = || started(1).replace("\"at\"", "\"version\":1,\"at\"");
        let good = first() + &started(2);
        assert_eq!(told(&journal(good.as_bytes())), [""; 0]);
        let gap = first() + &started(3) + &started(4);
        assert_eq!(told(&journal(gap.as_bytes())), ["2:1: seq 3 follows 1"]);
        let broken = first() + "{\"ä\";1}\n" + &started(2) + "{\"seq\"";
        assert_eq!(
            told(&journal(broken.as_bytes())),
            ["2:5: expected `:`", "4:1: no newline behind the last line (6 bytes)"]
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
            assert_eq!(remarks[0].severity, super::super::Severity::Warning);
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

    #[test]
    fn a_transcript_is_read_as_a_worker_reads_it() {
        let entry = "{\"at\":1.0,\"inbox\":{\"offset\":0,\"tail\":\"cbf29ce484222325\"},\"entry\":\"left\",\"reason\":\"x\"}\n";
        assert_eq!(told(&transcript(entry.as_bytes())), [""; 0]);
        let unknown = entry.replace("left", "gone");
        assert!(told(&transcript(unknown.as_bytes()))[0].contains("unknown variant `gone`"));
    }
}
