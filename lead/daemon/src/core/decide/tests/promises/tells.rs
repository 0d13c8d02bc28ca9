//! Who is told: each inbox line once at least and always the same, each command once.

use std::collections::BTreeSet;

use teamd_shared::journal::{Line, MemberRecord};
use teamd_shared::member::Phase;
use teamd_shared::message::Message;
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Status};

use super::{Checked, Promises, Told, check};

impl Promises {
    pub(super) fn notices_follow(&mut self, line: &Line) -> Checked {
        for tell in line.record.tell() {
            let before = self
                .tells
                .insert((tell.id, tell.to.clone()), Told::Expected);
            check(before.is_none(), || {
                format!("the id {} is given twice", tell.id)
            })?;
        }
        Ok(())
    }

    /// Takes in that an inbox line was written.
    pub(in super::super) fn told(&mut self, to: &Name, message: &Message) -> Checked {
        let id = message.id.ok_or("a line without an id")?;
        let told = self.tells.get_mut(&(id, to.clone()));
        let told = told.ok_or_else(|| format!("{to} is told what no line says"))?;
        match told {
            Told::Expected => {}
            Told::Done(before) => {
                check(**before == *message, || {
                    format!("{to} is told two things under one id")
                })?;
            }
            Told::NoInbox => {}
        }
        *told = Told::Done(Box::new(message.clone()));
        Ok(())
    }

    /// Takes in that there is no inbox to append to.
    pub(in super::super) fn has_no_inbox(&mut self, to: &Name, message: &Message) {
        let told = message
            .id
            .and_then(|id| self.tells.get_mut(&(id, to.clone())));
        if let Some(told @ Told::Expected) = told {
            *told = Told::NoInbox;
        }
    }

    /// Checks that the lead and all members that run and stay are told of an end.
    pub(super) fn end_is_told(&self, record: &MemberRecord) -> Checked {
        let gone = &record.member.name;
        let told: BTreeSet<&Name> = record.tell.iter().map(|tell| &tell.to).collect();
        let stays = |name: &Name| {
            let asked = self.fold.shutdown_of(name).map(|request| request.status);
            name != gone && !matches!(asked, Some(Status::Pending | Status::Approved))
        };
        let running = self.fold.members.iter().filter(|(name, state)| {
            state.record.phase == Phase::Running && state.record.ending.is_none() && stays(name)
        });
        for name in running.map(|(name, _)| name).chain([&Name::lead()]) {
            check(told.contains(name), || {
                format!("{name} is not told that {gone} has ended")
            })?;
        }
        // What stands in the inbox of the lead is for people, too.
        check(*gone == Name::lead() || !told.contains(gone), || {
            format!("{gone} is told of its own end")
        })
    }

    /// Checks that everything is delivered.
    pub(in super::super) fn at_rest(&self) -> Checked {
        for ((id, to), told) in &self.tells {
            check(*told != Told::Expected, || {
                format!("{to} was never told {id}")
            })?;
        }
        let asked = self
            .fold
            .members
            .keys()
            .filter_map(|name| self.fold.pending(name, Kind::Shutdown));
        for request in asked {
            let incarnation = self
                .fold
                .shutdown_of(&Name::of_inbox(request.member()).map_err(|e| e.to_string())?);
            check(incarnation == Some(request), || {
                format!(
                    "{} is pending, and no incarnation is asked",
                    request.request_id
                )
            })?;
        }
        Ok(())
    }
}
