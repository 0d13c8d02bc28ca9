//! Long journals, as a daemon would have written them.

use std::io::{BufWriter, Write};

use teamd_shared::id::RequestId;
use teamd_shared::journal::{
    Line, Record, RequestEvent, RequestRecord, SNAPSHOT_LINES, Team as Fold,
};
use teamd_shared::request::{Kind, Payload, Request, Status};
use uuid::Uuid;

use super::Team;

impl Team {
    /// Writes so many plans, which are approved and rejected in turn, behind the journal of a team
    /// whose daemon has stopped: two lines for each, and the snapshots that are due. The ids are
    /// the numbers, as 8 hex digits.
    pub(crate) fn write_long_journal(&self, plans: u32) {
        let mut fold = Fold::default();
        for line in self.file("journal.jsonl").lines() {
            fold.apply(&serde_json::from_str(line).unwrap()).unwrap();
        }
        let journal = std::fs::OpenOptions::new()
            .append(true)
            .open(self.path("journal.jsonl"))
            .unwrap();
        let mut journal = BufWriter::new(journal);
        let mut write = |record: Record, fold: &mut Fold| {
            let line = Line {
                seq: fold.seq + 1,
                at: 1.0,
                version: None,
                done: fold.done,
                lead: None,
                record,
            };
            fold.apply(&line).unwrap();
            serde_json::to_writer(&mut journal, &line).unwrap();
            journal.write_all(b"\n").unwrap();
        };
        for number in 0..plans {
            let (event, status) = match number % 2 {
                0 => (RequestEvent::Approved, Status::Approved),
                _ => (RequestEvent::Rejected, Status::Rejected),
            };
            for (event, status) in [(RequestEvent::Asked, Status::Pending), (event, status)] {
                let record = RequestRecord::of(event, plan(number, status));
                write(Record::Request(Box::new(record)), &mut fold);
            }
            if fold.snapshot_is_due(SNAPSHOT_LINES) {
                write(fold.snapshot().unwrap(), &mut fold);
            }
        }
        journal.flush().unwrap();
    }
}

fn plan(number: u32, status: Status) -> Request {
    Request {
        request_id: RequestId::new(&format!("{number:08x}")).unwrap(),
        kind: Kind::PlanApproval,
        from: "zoe".to_owned(),
        to: "lead".to_owned(),
        status,
        payload: Payload::Plan {
            plan: "drop the cache".to_owned(),
        },
        incarnation: 1,
        message_id: Uuid::from_u128(u128::from(number)),
        created_at: f64::from(number),
        resolved_at: (status != Status::Pending).then_some(f64::from(number)),
        reason: None,
        answered_by: None,
        agent: false,
        permissions: None,
        answered_from: None,
    }
}
