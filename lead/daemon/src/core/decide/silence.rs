//! A worker that does not answer: the lead gets a notice first, and only then the worker is ended.
//! One that answers again continues.

use teamd_shared::amount::format_duration;
use teamd_shared::id::Ids;
use teamd_shared::journal::{MemberEvent, MemberRecord, Notice, Record};
use teamd_shared::member::{Ending, Member, Restart};
use teamd_shared::name::Name;

use super::{Decision, DecisionView};
use crate::core::event::Action;
use crate::core::incarnation::Incarnation;

impl DecisionView<'_> {
    /// Records that a worker answers. If the lead has a notice that it does not, the lead gets
    /// another one.
    pub(super) fn pong(&self, incarnation: &Incarnation, ids: &mut dyn Ids) -> Decision {
        let answers = self
            .runtime
            .of(incarnation)
            .is_some_and(|worker| worker.silence().is_zero());
        if !answers {
            return Decision::default();
        }
        let Some(member) = self.present(incarnation) else {
            return Decision::default();
        };
        let Some(since) = member.silent_since else {
            return Decision::default();
        };
        let silent =
            std::time::Duration::try_from_secs_f64(self.now.wall - since).unwrap_or_default();
        let text = format!(
            "{} answers again, after {}, and continues",
            incarnation.name,
            format_duration(silent)
        );
        let member = Member {
            silent_since: None,
            ..self.updated(member)
        };
        self.told(MemberEvent::Answering, member, text, ids)
    }

    /// Tells the lead that a worker has been silent for the watchdog period, if it still should
    /// answer. After as long again the worker is killed, since a hung one would not react to
    /// SIGTERM.
    pub(super) fn silent(&self, incarnation: &Incarnation, ids: &mut dyn Ids) -> Decision {
        let present = self
            .present(incarnation)
            .filter(|member| member.ending.is_none());
        let worker = if self.team.release(&incarnation.name).is_none() {
            self.runtime.of(incarnation)
        } else {
            None
        };
        let Some(member) = present else {
            return Decision::default();
        };
        let Some(worker) = worker else {
            return Decision::default();
        };
        let Some(patience) = self.rules.watchdog else {
            return Decision::default();
        };
        if worker.silence() < patience {
            return Decision::default();
        }
        if member.silent_since.is_none() {
            let text = not_responding(member, worker.is_connected(), &format_duration(patience));
            let member = Member {
                silent_since: Some(worker.silent_since()),
                ..self.updated(member)
            };
            return self.told(MemberEvent::Silent, member, text, ids);
        }
        // A worker without a connection was not asked: that may be the fault of this side.
        if worker.silence() < patience * 2 || !worker.is_asked() || worker.will_be_forced() {
            return Decision::default();
        }
        let why = format!(
            "it did not answer for {}, and was killed",
            format_duration(worker.silence())
        );
        let member = Member {
            ending: Some(Ending::Hung),
            ending_note: Some(why),
            ..self.updated(member)
        };
        Decision::default()
            .member(MemberEvent::Ending, member)
            .act(Action::Kill(incarnation.clone()))
    }

    fn told(
        &self,
        event: MemberEvent,
        member: Member,
        text: String,
        ids: &mut dyn Ids,
    ) -> Decision {
        let tell = vec![Notice {
            to: Name::lead(),
            id: ids.message(),
        }];
        let record = MemberRecord {
            content: Some(text),
            tell,
            ..MemberRecord::of(event, member)
        };
        Decision::default().record(Record::Member(Box::new(record)))
    }
}

fn not_responding(member: &Member, is_connected: bool, time: &str) -> String {
    let name = &member.name;
    let next = match (is_connected, member.terms.restart) {
        (false, _) => format!("it has no connection; `teamctl shutdown {name} --force` ends it"),
        (true, Restart::Never) => format!("if it stays silent for {time} more, it is ended"),
        (true, Restart::OnFailure) => {
            format!(
                "if it stays silent for {time} more, it is ended, and started again from its transcript"
            )
        }
    };
    format!("{name} does not respond: it has not answered for {time}; {next}")
}
