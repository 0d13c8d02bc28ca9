//! A harness that decides and applies one event after another, as the dispatcher does when no write
//! fails.

use std::time::Duration;

use teamd_shared::check::CheckReport;
use teamd_shared::control::{
    Command, Done, Refusal, RefusalCode, ShutdownOrder, SpawnOrder, ToWorker, WorkerState,
};
use teamd_shared::environment::Environment;
use teamd_shared::id::{CountingIds, Ids, RequestId};
use teamd_shared::inbox::Unread;
use teamd_shared::job::JobReport;
use teamd_shared::journal::{Line, Record, SNAPSHOT_LINES, Team};
use teamd_shared::member::{Doing, Emptied, Member, Restart, TermsPatch};
use teamd_shared::message::{AnsweredBy, Body, Message};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::process::Identity;
use teamd_shared::request::{Request, Status};
use teamd_shared::settings::Settings;
use teamd_shared::task::TaskId;

use crate::core::caller::{Actor, ReplyTo};
use crate::core::decide::{Decision, DecisionView, decide};
use crate::core::event::{Action, Ended, Event, Now, Until};
use crate::core::incarnation::Incarnation;
use crate::core::job::SpawnFacts;
use crate::core::job::{JobPlaces, SuspendedCommand, Then};
use crate::core::runtime::{DecisionRules, Runtime};
use crate::core::watchdog::LookResult;

pub(super) const CLIENT: ReplyTo = ReplyTo {
    connection: 7,
    tag: 1,
    agent: false,
};
/// The lead agent, over the connection of its worker.
pub(super) const AGENT: ReplyTo = ReplyTo {
    connection: 8,
    tag: 1,
    agent: true,
};
pub(super) const GRACE: Duration = Duration::from_secs(10);
pub(super) const WATCHDOG: Duration = Duration::from_secs(60);

pub(super) fn rules() -> DecisionRules {
    DecisionRules {
        grace: GRACE,
        permission_timeout: Settings::default().permission_timeout,
        restart: Settings::default().restart(),
        watchdog: Some(WATCHDOG),
        max_members: Settings::default().team.max_members,
        snapshot_lines: SNAPSHOT_LINES,
    }
}

pub(super) fn places() -> JobPlaces {
    JobPlaces {
        workspace: "/home/u/web".to_owned(),
        ..JobPlaces::default()
    }
}

pub(super) struct Harness {
    pub(super) team: Team,
    pub(super) runtime: Runtime,
    pub(super) now: Now,
    pub(super) rules: DecisionRules,
    pub(super) places: JobPlaces,
    pub(super) unread: Unread,
    ids: CountingIds,
}

impl Harness {
    pub(super) fn new() -> Self {
        let now = Now {
            wall: 1_763_756_100.0,
            monotonic: Duration::from_secs(5),
            since_boot: Duration::from_secs(5),
        };
        Self {
            team: Team::default(),
            runtime: Runtime::default(),
            now,
            rules: rules(),
            places: places(),
            unread: Unread::default(),
            ids: CountingIds::default(),
        }
    }

    /// Handles one event; returns what was decided.
    pub(super) fn on(&mut self, event: &Event) -> Decision {
        self.runtime.apply(&self.team, event);
        let view = DecisionView {
            team: &self.team,
            runtime: &self.runtime,
            now: self.now,
            rules: self.rules,
            places: &self.places,
            prepared: None,
            unread: &self.unread,
        };
        let decision = decide(&view, event, &mut self.ids);
        if let Event::JobEnded { job, ended } = event {
            self.runtime.job_ended(&self.team, *job, ended);
        }
        for record in decision.records.clone() {
            self.write(record);
        }
        for record in self.team.pending_derived() {
            self.write(record);
        }
        for action in &decision.actions {
            match action {
                Action::Start(incarnation, Some(ordered)) => {
                    let environment = ordered.environment.clone();
                    self.runtime.ordered(incarnation, environment);
                }
                Action::Start(incarnation, None) => {
                    self.runtime
                        .restarted(&self.team.members[&incarnation.name].record, self.now);
                }
                _ => {}
            }
        }
        let names: Vec<Name> = self.team.members.keys().cloned().collect();
        for name in &names {
            self.runtime.arm(&self.team, name, self.now, self.rules);
        }
        decision
    }

    /// Lets a job end that was begun for this.
    pub(super) fn job_ends(&mut self, then: Then, ended: Result<JobReport, String>) -> Decision {
        let job = self.runtime.jobs.begin(then).unwrap();
        self.on(&Event::JobEnded { job, ended })
    }

    /// Lets the check of a submission end.
    pub(super) fn check_ends(&mut self, task: TaskId, report: CheckReport) -> Decision {
        let submission = self.team.tasks[&task].submission.as_ref();
        let number = submission.unwrap().number;
        let report = JobReport::Checked(report);
        self.job_ends(
            Then::Check {
                task,
                number,
                host: None,
            },
            Ok(report),
        )
    }

    fn write(&mut self, record: Record) {
        let seq = self.team.seq + 1;
        let at = self.now.wall;
        let done = self.team.done;
        self.team
            .apply(&Line {
                seq,
                at,
                version: None,
                done,
                lead: None,
                record,
            })
            .unwrap();
    }

    /// Runs a command; returns its reply.
    pub(super) fn ask(&mut self, command: Command) -> Result<Done, Refusal> {
        reply(&self.on(&Event::Command(CLIENT, Actor::Person, command)))
    }

    /// Runs a command of the lead agent; returns its reply.
    pub(super) fn agent_asks(&mut self, command: Command) -> Result<Done, Refusal> {
        reply(&self.on(&Event::Command(AGENT, Actor::Member(Name::lead()), command)))
    }

    /// Orders a spawn; returns the incarnation that is ordered.
    pub(super) fn spawn(&mut self, order: SpawnOrder) -> Result<u32, Refusal> {
        let facts = SpawnFacts {
            held: None,
            lead_inbox: Ok(None),
            cannot_commit: None,
        };
        let id = self.ids.request();
        self.spawn_as(id, order, facts)
    }

    fn spawn_as(
        &mut self,
        id: RequestId,
        order: SpawnOrder,
        facts: SpawnFacts,
    ) -> Result<u32, Refusal> {
        let decision = self.on(&Event::Spawn(CLIENT, id, Box::new(order), facts));
        match decision.actions.last() {
            Some(Action::Wait(CLIENT, _, Until::Ready(incarnation))) => Ok(*incarnation),
            _ => Err(reply(&decision).unwrap_err()),
        }
    }

    /// Starts the process of the incarnation that is being spawned, which then is ready.
    pub(super) fn starts(&mut self, who: &str) -> Incarnation {
        let incarnation = incarnation(who, self.member(who).incarnation);
        self.on(&Event::Started {
            incarnation: incarnation.clone(),
            process: Ok(identity()),
            cgroup: None,
        });
        let applied_seq = self.team.seq;
        self.on(&Event::Said {
            incarnation: incarnation.clone(),
            state: WorkerState {
                applied_seq,
                ..idle()
            },
        });
        incarnation
    }

    /// Spawns a member, which then runs.
    pub(super) fn runs(&mut self, who: &str) -> Incarnation {
        self.spawn(order(who)).unwrap();
        self.starts(who)
    }

    /// Spawns a member that must submit a plan first.
    pub(super) fn runs_with_plan(&mut self, who: &str) -> Incarnation {
        let terms = TermsPatch {
            plan: Some(true),
            ..TermsPatch::default()
        };
        self.spawn(SpawnOrder {
            terms,
            ..order(who)
        })
        .unwrap();
        self.starts(who)
    }

    pub(super) fn ends(&mut self, incarnation: &Incarnation) -> Decision {
        self.on(&Event::Ended {
            incarnation: incarnation.clone(),
            ended: ended(),
        })
    }

    pub(super) fn member(&self, who: &str) -> &Member {
        &self.team.members[&name(who)].record
    }

    pub(super) fn status(&self, id: &RequestId) -> Status {
        self.request(id).status
    }

    pub(super) fn request(&self, id: &RequestId) -> &Request {
        &self.team.requests[id]
    }

    /// Asks a member to shut down; returns the request.
    pub(super) fn request_shutdown(&mut self, who: &str, force_after: Option<f64>) -> RequestId {
        match self.ask(shutdown(who, force_after)) {
            Ok(Done::Asked { request_id }) => request_id,
            other => panic!("{other:?}"),
        }
    }

    /// Lets an incarnation submit a line that it wrote.
    pub(super) fn submit(&mut self, incarnation: &Incarnation, body: Body) -> Decision {
        let id = self.ids.message();
        let line = Message::new(id, incarnation.name.as_str(), "lead", self.now.wall, body);
        self.submit_line(incarnation, &line)
    }

    pub(super) fn submit_line(&mut self, incarnation: &Incarnation, line: &Message) -> Decision {
        let request_id = match &line.body {
            Body::ShutdownResponse { request_id, .. }
            | Body::PlanApprovalRequest { request_id, .. }
            | Body::PermissionRequest { request_id, .. } => request_id,
            other => panic!("{other:?}"),
        };
        let request_id = request_id.clone();
        let line = Ok(Box::new(line.clone()));
        self.on(&Event::Submitted {
            incarnation: incarnation.clone(),
            request_id,
            line,
        })
    }

    /// Lets an incarnation submit a plan.
    pub(super) fn submit_plan(&mut self, incarnation: &Incarnation, id: &str) -> RequestId {
        let id = request_id(id);
        self.submit(incarnation, plan(&id));
        id
    }

    /// Lets time pass, second by second, and looks at the workers. Returns what was asked, and
    /// decided.
    pub(super) fn run_watchdog(&mut self, seconds: u64) -> (Vec<u64>, Vec<Decision>) {
        let mut asked = Vec::new();
        let mut decisions = Vec::new();
        for _ in 0..seconds {
            self.now.monotonic += Duration::from_secs(1);
            self.now.wall += 1.0;
            for (incarnation, finding) in self.runtime.look(&self.team, self.now, self.rules) {
                match finding {
                    LookResult::Ask(number) => asked.push(number),
                    LookResult::Silent => decisions.push(self.on(&Event::Silent { incarnation })),
                }
            }
        }
        decisions.retain(|decision| !nothing(decision));
        (asked, decisions)
    }

    /// Lets time pass without an event.
    pub(super) fn skip_time(&mut self, seconds: f64) {
        self.now.monotonic += Duration::from_secs_f64(seconds);
        self.now.wall += seconds;
    }

    /// Lets time pass, and does what is due then.
    pub(super) fn advance(&mut self, seconds: u64) -> Decision {
        self.now.monotonic += Duration::from_secs(seconds);
        self.on(&Event::Deadline)
    }
}

/// Returns what goes on with a command of a person, or of the first incarnation of a member.
pub(super) fn goes_on(by: Actor, command: Command) -> Then {
    Then::Command(Box::new(SuspendedCommand {
        client: CLIENT,
        by,
        incarnation: 1,
        author: None,
        command,
    }))
}

pub(super) fn reply(decision: &Decision) -> Result<Done, Refusal> {
    let replies: Vec<_> = decision
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Reply(client, reply) => Some((client, reply)),
            _ => None,
        })
        .collect();
    assert!(
        matches!(replies.as_slice(), [(client, _)] if [CLIENT, AGENT].contains(client)),
        "{decision:?}"
    );
    replies[0].1.clone()
}

/// Returns the code and the text of a refusal, which must have a hint.
pub(super) fn refusal<T: std::fmt::Debug>(reply: Result<T, Refusal>) -> (RefusalCode, String) {
    let refusal = reply.expect_err("a refusal");
    assert!(refusal.hint.is_some(), "no next step: {refusal:?}");
    (refusal.code, refusal.message)
}

/// Returns what is said to workers.
pub(super) fn said(decision: &Decision) -> Vec<&ToWorker> {
    let frame = |action: &'_ Action| matches!(action, Action::Say(..));
    let frames = decision.actions.iter().filter(|action| frame(action));
    frames
        .map(|action| {
            if let Action::Say(_, frame) = action {
                frame
            } else {
                unreachable!()
            }
        })
        .collect()
}

/// Returns the status that the worker is told of its plan.
pub(super) fn plan_recorded(decision: &Decision) -> Status {
    match said(decision).as_slice() {
        [ToWorker::Recorded { status, .. }] => *status,
        other => panic!("{other:?}"),
    }
}

/// Returns why a submitted line is refused, and whether its id is taken.
pub(super) fn refused(decision: &Decision) -> (String, bool) {
    assert_eq!(decision.records, []);
    match said(decision).as_slice() {
        [ToWorker::Refused { why, taken, .. }] => (why.clone(), *taken),
        other => panic!("{other:?}"),
    }
}

/// Returns an end by SIGKILL.
pub(super) fn ended() -> Ended {
    Ended {
        code: None,
        signal: Some(9),
        inbox: Position {
            offset: 70,
            tail: 1,
        },
        unread: 2,
        mail: Some(Vec::new()),
        more_mail: 0,
        emptied: Some(Emptied::Tree),
        unworkable: None,
    }
}

pub(super) fn nothing(decision: &Decision) -> bool {
    *decision == Decision::default()
}

pub(super) fn name(who: &str) -> Name {
    Name::of_inbox(who).unwrap()
}

pub(super) fn incarnation(who: &str, incarnation: u32) -> Incarnation {
    Incarnation {
        name: name(who),
        number: incarnation,
    }
}

pub(super) fn request_id(id: &str) -> RequestId {
    RequestId::new(id).unwrap()
}

pub(super) fn identity() -> Identity {
    Identity {
        pid: 4242,
        start_ticks: 81_991,
        boot_id: "boot".to_owned(),
    }
}

pub(super) fn idle() -> WorkerState {
    WorkerState {
        doing: Doing::Idle,
        ..WorkerState::default()
    }
}

pub(super) fn environment(number: u8) -> Environment {
    Environment {
        variables: vec![(b"N".to_vec(), vec![number])],
        ..Environment::default()
    }
}

pub(super) fn order(who: &str) -> SpawnOrder {
    SpawnOrder::new(name(who), environment(1))
}

/// Returns the order of a teammate that is not restarted after a crash.
pub(super) fn never_restarted(who: &str) -> SpawnOrder {
    let terms = TermsPatch {
        restart: Some(Restart::Never),
        ..TermsPatch::default()
    };
    SpawnOrder {
        terms,
        ..order(who)
    }
}

pub(super) fn shutdown(who: &str, force_after: Option<f64>) -> Command {
    shutdown_as(next_id(), who, force_after)
}

/// Returns an id that no request has yet.
pub(super) fn next_id() -> RequestId {
    static LAST: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0x5000_0000);
    RequestId::from_bits(LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}

pub(super) fn plan_request(who: &str) -> Command {
    let name = name(who);
    let content = "what will you do?".to_owned();
    Command::RequestPlan {
        id: next_id(),
        name,
        content,
        wait: false,
    }
}

pub(super) fn shutdown_as(request_id: RequestId, who: &str, force_after: Option<f64>) -> Command {
    let name = name(who);
    let reason = "no more work".to_owned();
    let decide_within = 30.0;
    let wait = false;
    Command::Shutdown(ShutdownOrder {
        request_id,
        name,
        reason,
        decide_within,
        force_after,
        wait,
    })
}

pub(super) fn verdict(id: &RequestId, approve: bool) -> Command {
    Command::Answer {
        request_id: id.clone(),
        approve,
        feedback: "mind the tests".to_owned(),
        permissions: None,
    }
}

pub(super) fn answer(id: &RequestId, approve: bool) -> Body {
    let reason = "still writing".to_owned();
    let answered_by = Some(AnsweredBy::Model);
    Body::ShutdownResponse {
        request_id: id.clone(),
        approve,
        reason,
        answered_by,
    }
}

pub(super) fn plan(id: &RequestId) -> Body {
    Body::PlanApprovalRequest {
        request_id: id.clone(),
        plan: "drop the cache".to_owned(),
        incarnation: None,
    }
}
