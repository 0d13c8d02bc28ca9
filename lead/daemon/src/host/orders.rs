//! What home says, and what this host does about it.

use teamd_shared::clock;
use teamd_shared::control::ToWorker;
use teamd_shared::environment::Environment;
use teamd_shared::fs::AppendLogError;
use teamd_shared::inbox::{HOME, LinePlace, ReadError, position_after_via};
use teamd_shared::link::{
    CopyAt, FromHost, HomeHello, HomeIdentity, HostNow, HostedProcess, LINK_PROTOCOL, MailLine,
    OwnerAt, StartOrder, ToHost, with_variables,
};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::process::Identity;

use super::copies::Copies;
use super::daemon::HostDaemon;
use super::frames::{incarnation, to_worker, welcome, whose};
use super::hidden::hidden_here;
use super::links::HomeLink;
use super::mail::Outboxes;
use super::places::Writes;
use super::state::{Conversation, HostRecord, NamedPrograms, Obeyed, Spawned, Standing};
use crate::core::incarnation::Incarnation;
use crate::io::mail_relay::IntakeError;
use crate::io::workers::StartedWorker;

/// Why a home is not obeyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disobeyed {
    pub(super) why: String,
    pub(super) hint: String,
}

impl HostDaemon {
    /// Takes a frame from a link. One that cannot be read ends it.
    pub(super) fn home_says(&mut self, connection: u64, line: &str) {
        let is_on =
            |link: &Option<HomeLink>| link.as_ref().is_some_and(|it| it.connection == connection);
        let is_newcomer = is_on(&self.links.newcomer);
        if !is_newcomer && !is_on(&self.links.present) {
            return;
        }
        match serde_json::from_str(line) {
            Ok(ToHost::Hello(hello)) if is_newcomer => self.hello(connection, &hello, false),
            Ok(ToHost::Take(hello)) if is_newcomer => self.hello(connection, &hello, true),
            Ok(frame) if !is_newcomer => self.order(connection, frame),
            Ok(_) => {
                tracing::warn!("home does not say who it is: the link is closed");
                self.links.drop_link(connection);
            }
            Err(error) => {
                self.warn(format!(
                    "home said something that is not understood: {error}"
                ));
                self.links.drop_link(connection);
            }
        }
    }

    /// Obeys a home from now on, or refuses it. `takes`: a person says that it is this home now.
    fn hello(&mut self, connection: u64, hello: &HomeHello, takes: bool) {
        let known = self.log.state.obeys.as_ref().map(|obeyed| &obeyed.home);
        let known = known.filter(|_| !takes);
        let checked = obeys(self.home, known, hello).and_then(|()| self.has_this_name(hello));
        if let Err(Disobeyed { why, hint }) = checked {
            tracing::warn!("refuses a home: {why}");
            if let Some(link) = &self.links.newcomer {
                let hint = Some(hint);
                link.outbound.say(&FromHost::Refused { why, hint });
            }
            self.links.drop_link(connection);
            return;
        }
        let obeyed = Obeyed {
            home: hello.home.clone(),
            host: hello.host.clone(),
        };
        if self.log.state.obeys.as_ref() != Some(&obeyed) && !self.record(HostRecord::Obeys(obeyed))
        {
            return;
        }
        self.team_name.clone_from(&hello.team_name);
        self.links.accept_newcomer();
        // Those of an earlier link.
        self.jobs.end_all();
        self.submitted_early.clear();
        let present = self.present();
        self.links.say(&FromHost::Present(present));
        for incarnation in self.workers.begin_anew() {
            self.links.say(&FromHost::Greeted(whose(&incarnation)));
        }
        let ended = self.log.state.ended().cloned().collect();
        if let Some(link) = &mut self.links.present {
            link.ends = ended;
        }
    }

    /// Refuses a second name for this machine: the teammates here belong to the first.
    fn has_this_name(&self, hello: &HomeHello) -> Result<(), Disobeyed> {
        let Some(obeyed) = &self.log.state.obeys else {
            return Ok(());
        };
        let is_free = self.log.state.members.is_empty() && self.workers.live.is_empty();
        if obeyed.host == hello.host || is_free {
            return Ok(());
        }
        let name = &obeyed.host;
        Err(Disobeyed {
            why: format!(
                "home knows this machine as {name} already, and {name} has teammates here"
            ),
            hint: format!("use {name}, or forget its teammates first"),
        })
    }

    /// Returns what this host has of the team.
    fn present(&mut self) -> HostNow {
        let members = self.log.state.unended().map(|spawned| &spawned.member);
        let running = members.filter_map(|member| {
            Some(HostedProcess {
                of: whose(&Incarnation::of(member)),
                process: member.process.clone()?,
            })
        });
        let running = running.collect();
        let mut owners: Vec<Name> = self.log.state.members.keys().cloned().collect();
        owners.extend(self.team.owners.iter().cloned());
        owners.sort();
        owners.dedup();
        let mut inboxes = Vec::new();
        for owner in owners {
            match self.mail.intake.taken(&self.dir, &owner) {
                Ok(line) => inboxes.push(OwnerAt { owner, line }),
                Err(error) => tracing::warn!("the inbox of {owner} cannot be read: {error}"),
            }
        }
        let ended = self.log.state.ended().map(|exited| exited.of.clone());
        let ended = ended.collect();
        HostNow {
            running,
            ended,
            inboxes,
        }
    }

    fn order(&mut self, connection: u64, frame: ToHost) {
        match frame {
            ToHost::Hello(_) | ToHost::Take(_) => tracing::warn!("home says twice who it is"),
            ToHost::Team(now) => self.team_is(now),
            ToHost::Roster(change) => self.roster_has(change),
            ToHost::Outboxes { taken, copies } => {
                self.open_outboxes(&taken);
                self.begin_copies(&copies);
            }
            ToHost::Start(order) => self.start(*order),
            ToHost::Say { to, says } => self.say_to(&incarnation(&to), *says),
            ToHost::Terminate(of) => self.workers.supervisor.terminate(&incarnation(&of)),
            ToHost::Kill(of) => self.workers.supervisor.kill(&incarnation(&of)),
            ToHost::Mail(mail) => self.mail_from_home(connection, &mail),
            ToHost::Job { number, order } => self.begin_job(number, *order),
            ToHost::EndJob { number } => self.jobs.end(number),
            ToHost::Ping { number } => self.links.say(&FromHost::Pong { number }),
            ToHost::SayTaken { owner } => self.say_taken(owner),
            ToHost::SayVitals => self.measure(),
            ToHost::SayLog {
                number,
                owner,
                from,
            } => self.say_log(number, &owner, from),
            ToHost::TakeFile { name, length } => self.carry_file(name, Some(length)),
            ToHost::GiveFile { name } => self.carry_file(name, None),
        }
    }

    fn say_taken(&mut self, owner: Name) {
        match self.mail.intake.taken(&self.dir, &owner) {
            Ok(line) => self.links.say(&FromHost::Taken(OwnerAt { owner, line })),
            Err(error) => self.warn(format!("the inbox of {owner} cannot be read: {error}")),
        }
    }

    fn open_outboxes(&mut self, taken: &[OwnerAt]) {
        let Some(link) = &mut self.links.present else {
            return;
        };
        if !link.knows_team {
            link.outbound.warn(
                "home says how far it has taken outboxes before it has named them".to_owned(),
            );
            return;
        }
        let mut outboxes = Outboxes::open(&self.dir, &self.team.others, taken);
        for submission in std::mem::take(&mut self.submitted_early) {
            outboxes.submit(submission);
        }
        link.outboxes = Some(outboxes);
    }

    /// Begins to send what home has not of the transcripts.
    fn begin_copies(&mut self, copies: &[CopyAt]) {
        if let Some(link) = &mut self.links.present {
            link.copies = Some(Copies::begin(&self.dir, copies));
        }
    }

    fn say_to(&mut self, to: &Incarnation, frame: ToWorker) {
        let frame = match frame {
            ToWorker::Welcome(mut said) => {
                let hidden = &mut said.terms.sandbox.hidden;
                *hidden = hidden_here(hidden);
                let Some(spawned) = self.log.state.running(to) else {
                    return;
                };
                let Some((environment, watch)) = self.workers.take_welcome(to) else {
                    tracing::debug!("{} waits for no welcome", to.name);
                    return;
                };
                let territory = self.territory();
                let said = welcome(*said, spawned, environment, territory, watch);
                ToWorker::Welcome(Box::new(said))
            }
            other => to_worker(other, clock::since_boot()),
        };
        self.workers.say(to, frame);
    }

    /// Starts a process for an incarnation, unless it has one, or had.
    fn start(&mut self, order: StartOrder) {
        let of = Incarnation::of(&order.member);
        let process = match self.log.state.standing(&of) {
            Standing::New => self.start_new(order),
            Standing::Runs(member) => match member.process.clone() {
                Some(process) => Ok(process),
                None => Err("its record names no process".to_owned()),
            },
            Standing::Ended(exited) => {
                let exited = exited.clone();
                self.say_end(exited);
                return;
            }
            Standing::AnotherRuns(number) => Err(format!(
                "incarnation {number} of {} still runs here",
                of.name
            )),
            Standing::Later(number) => Err(format!(
                "incarnation {number} of {} has run here, which is a later one",
                of.name
            )),
        };
        if let Err(why) = &process {
            tracing::error!("cannot start {}: {why}", of.name);
        }
        let of = whose(&of);
        self.links.say(&FromHost::Started { of, process });
    }

    fn start_new(&mut self, order: StartOrder) -> Result<Identity, String> {
        let begins_at = self.beginning(&order)?;
        let returned_up_to = self.returned_up_to(&order);
        let named = order.member.terms.workspace.clone();
        let places = self.places()?;
        let workspace = places.workspace(&Conversation::of(&order.member), &named)?;
        let terms = &order.member.terms;
        let programs = NamedPrograms::of(terms.program.as_ref(), &terms.mcp);
        let of = Conversation::of(&order.member);
        let known = self.log.state.programs(&of, &programs).cloned();
        let mut member = order.member;
        member.terms.workspace = workspace;
        member.begins_at = begins_at;
        let given = order.variables.iter().map(|it| it.name.clone());
        let given: Vec<String> = given.collect();
        let mut environment = with_variables(Environment::of_self(), order.variables);
        environment.tell_unattended(&given);
        let writes = Writes {
            of: Conversation::of(&member),
            named: &member.terms.sandbox.writable,
            workspace: &member.terms.workspace,
        };
        let mut writable = places.writable(&writes, &environment);
        let is_first = member.conversation == member.incarnation;
        if let Some(why) = writable.take_refusal(is_first, &order.asked) {
            return Err(why);
        }
        // A conversation goes on all the same without what is only recorded.
        for unusable in writable.unusable.drain(..) {
            self.warn(unusable.why);
        }
        member.terms.sandbox.writable = writable.real();
        self.find_programs(&mut member.terms, known.as_ref(), &environment)?;
        let StartedWorker { identity, cgroup } = self.workers.start(&member, environment)?;
        member.process = Some(identity.clone());
        member.cgroup = cgroup;
        let incarnation = Incarnation::of(&member);
        let spawned = Spawned {
            member,
            named,
            programs,
            writable: writable.paths,
            returned_up_to,
        };
        match self.log.append(HostRecord::Spawned(Box::new(spawned))) {
            Ok(()) => Ok(identity),
            Err(error) => {
                self.workers.supervisor.kill(&incarnation);
                let why = format!("cannot record its process: {error}");
                if let AppendLogError::Broken(_) = error {
                    self.over = Some(Err(why.clone()));
                }
                Err(why)
            }
        }
    }

    /// Returns where the conversation of an incarnation begins in its inbox here.
    fn beginning(&self, order: &StartOrder) -> Result<Position, String> {
        if let Some(known) = self.log.state.beginning(order) {
            return Ok(known);
        }
        let Some(line) = order.begins_after else {
            return Ok(Position::START);
        };
        let found = self.place_here(&order.member.name, line)?;
        found.ok_or_else(|| {
            let offset = line.offset;
            format!(
                "the mail before its beginning is not here: the line at {offset} of home's inbox"
            )
        })
    }

    fn returned_up_to(&self, order: &StartOrder) -> Option<Position> {
        let line = order.returned_up_to?;
        let name = &order.member.name;
        if let Some(known) = self.log.state.end_at(name, Some(line)) {
            return Some(known);
        }
        // What is not known to have come back comes back again, and its sender knows its id.
        let found = self.place_here(name, line);
        found.unwrap_or_else(|why| {
            tracing::warn!("{why}");
            None
        })
    }

    /// Returns the position behind a line of home's inbox in the inbox here.
    fn place_here(&self, name: &Name, line: LinePlace) -> Result<Option<Position>, String> {
        match position_after_via(&self.dir, name, HOME, line) {
            Err(ReadError::NoInbox(_)) => Ok(None),
            other => other.map_err(|error| format!("the inbox of {name} cannot be read: {error}")),
        }
    }

    /// Appends a line of home to the inbox of a member of this host. Where that does not work now,
    /// the link ends: what follows must not overtake it, and home sends it again.
    fn mail_from_home(&mut self, connection: u64, mail: &MailLine) {
        let owner = &mail.owner;
        let Some(link) = &mut self.links.present else {
            return;
        };
        if !self.team.owners.contains(owner) && !self.log.state.members.contains_key(owner) {
            link.outbound.warn(format!(
                "home sends mail for {owner}, who does not live here: dropped"
            ));
            return;
        }
        self.prepare_for_mail();
        let Some(link) = &mut self.links.present else {
            return;
        };
        match self.mail.intake.take(&self.dir, mail) {
            Ok(_) => {}
            Err(IntakeError::NoMessage { .. }) => {
                let offset = mail.line.offset;
                link.outbound.warn(format!(
                    "the line at {offset} of home's inbox of {owner} is no message: dropped"
                ));
            }
            Err(error) => {
                link.outbound
                    .warn(format!("mail for {owner} cannot be taken: {error}"));
                // What is in the inbox is looked up again.
                self.mail.intake.forget(owner);
                self.links.drop_link(connection);
            }
        }
    }
}

/// Checks a home against the one that is obeyed.
fn obeys(
    of_dir: uuid::Uuid,
    known: Option<&HomeIdentity>,
    hello: &HomeHello,
) -> Result<(), Disobeyed> {
    let home = &hello.home;
    if hello.protocol != LINK_PROTOCOL {
        let other = hello.protocol;
        return Err(Disobeyed {
            why: format!("it speaks version {LINK_PROTOCOL} of the link, and home version {other}"),
            hint: "install the same version of teamd on both machines".to_owned(),
        });
    }
    if home.home != of_dir {
        return Err(Disobeyed {
            why: format!("it serves the home {of_dir}, and not {}", home.home),
            hint: format!("run `teamd host {}` there", home.home),
        });
    }
    let Some(known) = known else {
        return Ok(());
    };
    let why = if known.machine != home.machine {
        format!(
            "it obeys this home on another machine (machine-id {}), so this team directory may be a copy",
            short(&known.machine)
        )
    } else if known.starts > home.starts {
        let (later, this) = (known.starts, home.starts);
        format!("it has obeyed start {later} of this home, and this is start {this}: an older copy")
    } else {
        return Ok(());
    };
    let name = &hello.host;
    Err(Disobeyed {
        why,
        hint: format!(
            "lead the team where it was led last; only if that is gone for good: `teamctl host take {name}`"
        ),
    })
}

/// Returns the beginning of the id of a machine, which tells it from others.
fn short(machine: &str) -> String {
    machine.chars().take(8).collect()
}

#[cfg(test)]
mod tests;
