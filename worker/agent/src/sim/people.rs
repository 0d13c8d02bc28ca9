//! Who writes to the simulated worker, and what people want of it.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use teamd_shared::control::ToWorker;
use teamd_shared::inbox::{self, Durability};
use teamd_shared::message::{Body, Message};
use teamd_shared::name::Name;
use uuid::Uuid;

use super::world::SentMessage;
use super::{Mutant, World, alice};

impl World<'_> {
    fn raw(&self, owner: &str, bytes: &[u8]) {
        let mut file = OpenOptions::new()
            .append(true)
            .open(self.place.inbox(owner))
            .unwrap();
        file.write_all(bytes).unwrap();
    }

    fn is_behind_a_newline(&self) -> bool {
        let bytes = std::fs::read(self.place.inbox("alice")).unwrap();
        bytes.last().is_none_or(|&byte| byte == b'\n')
    }

    /// A sender appends: as it should be, twice, in part, or as foreign programs do.
    pub(super) fn writes_message(&mut self) {
        let from = self.rng.pick(&["user", "lead", "carol", "dave"]);
        let kind = self.rng.below(14);
        self.writes(from, kind);
        if self.rng.one_in(2) {
            self.send_to_worker(ToWorker::Wake);
        }
    }

    /// Appends a message; below 7 as it should be.
    pub(super) fn writes(&mut self, from: &'static str, kind: u32) {
        let content = format!("message {}", self.sent.len());
        let id = Uuid::from_u128(1 << 100 | self.sent.len() as u128);
        let message =
            Message::new(id, from, "alice", 1.5, Body::Message).with_content(content.as_str());
        self.note(|| format!("{from} writes {content:?} ({kind})"));
        let must = match kind {
            0..=6 => {
                inbox::append(&self.place.dir, &alice(), &message, Durability::Process).is_ok()
            }
            // A sender that does not know whether its line was written writes it again.
            7 => {
                let send =
                    || inbox::append(&self.place.dir, &alice(), &message, Durability::Process);
                send().is_ok() & send().is_ok()
            }
            8 | 9 => {
                let must = self.is_behind_a_newline();
                let line = format!(
                    "{{\"type\":\"message\",\"from\":\"{from}\",\"content\":\"{content}\"}}\n"
                );
                self.raw("alice", line.as_bytes());
                must
            }
            10 => {
                self.raw("alice", b"this is no message\n");
                return;
            }
            11 => {
                // The daemon or another teammate dies as it writes to the lead.
                let line = message.to_line().unwrap();
                let part = self.rng.below(u32::try_from(line.len()).unwrap());
                self.raw("lead", &line[..part as usize]);
                return;
            }
            _ => {
                let line = message.to_line().unwrap();
                let part = match self.rng.below(3) {
                    0 => line.len() - 1,
                    _ => self.rng.below(u32::try_from(line.len()).unwrap()) as usize,
                };
                self.raw("alice", &line[..part]);
                false
            }
        };
        self.sent.push(SentMessage {
            from,
            content,
            must,
        });
    }

    /// A foreign program empties the inbox, in place or by another file.
    pub(super) fn truncates_or_replaces_the_inbox(&mut self) {
        let in_place = self.rng.one_in(2);
        self.empties_the_inbox(in_place);
    }

    /// A foreign program empties the inbox: what was not read is lost.
    pub(super) fn empties_the_inbox(&mut self, in_place: bool) {
        self.note(|| format!("a program empties the inbox, in its place: {in_place}"));
        for sent in &mut self.sent {
            sent.must = false;
        }
        if in_place {
            std::fs::File::create(self.place.inbox("alice")).unwrap();
        } else {
            let next = self.place.inbox("alice").with_extension("next");
            std::fs::File::create(&next).unwrap();
            std::fs::rename(next, self.place.inbox("alice")).unwrap();
        }
    }

    pub(super) fn a_person_acts(&mut self) {
        match self.rng.below(13) {
            0..=2 if self.daemon.alive && self.worker.is_some() => self.is_asked_to_leave(),
            3 | 4 if self.daemon.alive => {
                self.wants_a_plan();
            }
            5..=9 if self.daemon.alive => {
                let approve = !self.rng.one_in(3);
                self.judges(approve);
            }
            10 => self.send_to_worker(ToWorker::Interrupt {
                asked_at: Duration::MAX,
            }),
            11 => self.send_to_worker(ToWorker::Interrupt {
                asked_at: Duration::ZERO,
            }),
            12 => self.forges_a_plan_request(),
            _ => {}
        }
    }

    pub(super) fn wants_a_plan(&mut self) {
        self.note(|| "a person wants a plan".to_owned());
        self.daemon.wants_a_plan();
        let gate_closed = if self.mutant != Some(Mutant::MessageClosesNoGate) {
            Some(self.daemon.seq)
        } else {
            None
        };
        self.tells(Body::PlanRequest { gate_closed });
        self.push_directive();
    }

    /// A program says for the lead that the gate was closed, and nothing closed it.
    fn forges_a_plan_request(&mut self) {
        let seq = self.daemon.seq + self.rng.pick(&[1, 1 << 40]);
        self.note(|| format!("a program forges a request for a plan, of line {seq}"));
        let line =
            format!("{{\"type\":\"plan_request\",\"from\":\"lead\",\"gate_closed\":{seq}}}\n");
        self.raw("alice", line.as_bytes());
    }

    fn is_asked_to_leave(&mut self) {
        if self.daemon.pending_shutdown().is_some()
            || self.daemon.may_leave(self.incarnation)
            || self.daemon.ended
        {
            return;
        }
        let within = self.rng.pick(&[0.0, 5.0, 30.0, 600.0]);
        self.note(|| format!("a person asks it to leave within {within} s"));
        self.daemon.asks(self.incarnation, within);
        self.push_directive();
    }

    pub(super) fn judges(&mut self, approve: bool) {
        if self.daemon.pending_plan().is_none() {
            return;
        }
        self.note(|| format!("a person judges the plan: {approve}"));
        self.daemon.judges(approve);
        self.looks_at_the_gate();
        self.push_directive();
    }

    /// The daemon writes into the inbox, too.
    fn tells(&mut self, body: Body) {
        let id = Uuid::from_u128(1 << 101 | u128::from(self.daemon.seq));
        let message = Message::new(id, "lead", "alice", 1.5, body)
            .with_content(format!("what will you do? ({})", self.daemon.seq));
        let to: Name = alice();
        inbox::append(&self.place.dir, &to, &message, Durability::Process).unwrap();
    }
}
