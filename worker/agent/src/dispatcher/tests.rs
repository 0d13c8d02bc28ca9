use std::future::{pending, ready};
use std::io::Write as _;

use teamd_shared::control::{Directive, PendingShutdown};
use teamd_shared::id::{Ids, RandomIds, RequestId};
use teamd_shared::inbox::{self, Durability};
use teamd_shared::member::Gate;
use teamd_shared::message::{Body, Message};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::transcript::Event;

use super::*;
use crate::mailbox::{Consumed, Waking};
use crate::tools::Runs;
use teamd_worker_core::at::At;
use teamd_worker_core::state::{Budget, NextStep};
use teamd_worker_core::tools::{LocalAction, Outcome};
use teamd_worker_core::work::WorkProgress;

/// Tools that are never used.
#[derive(Debug)]
struct Idle;

impl Runs for Idle {
    async fn finish(&mut self) -> Outcome {
        pending().await
    }

    async fn cancel(self, why: &str) -> Outcome {
        Outcome::error(why)
    }
}

impl Tools for Idle {
    type Running = Self;
    type Admission = teamd_worker_sandbox::run::AdmissionTicket;

    fn start(&mut self, _: LocalAction, _: Gate) -> Self {
        Self
    }

    fn has_background(&mut self) -> bool {
        false
    }

    fn end_background(&mut self) -> impl Future<Output = ()> {
        ready(())
    }

    fn reap_orphans(&mut self) {}
}

/// A dispatcher with an open gate, which the daemon wakes.
fn dispatcher_of(dir: &Arc<TeamDir>, alice: &Name, at: At) -> Dispatcher<Idle> {
    let directive = Directive {
        seq: 1,
        gate: Gate::Open,
        shutdown: None,
        release: false,
        plan: None,
        verdict: None,
        permissions: Default::default(),
        settles: 0,
        checking: None,
    };
    let mailbox = Mailbox::open(
        Arc::clone(dir),
        alice,
        Position::START,
        Vec::new(),
        Waking::ByDaemon,
    )
    .unwrap();
    let limits = Budget {
        turns: 5,
        asks_itself: false,
        tokens: None,
        cost: None,
        total: Default::default(),
    };
    let mut work = WorkProgress::new(alice.clone());
    work.at = at;
    let began = Instant::now();
    Dispatcher {
        state: State::new(work, limits, mailbox.arrived(), directive, Duration::ZERO),
        link: DaemonLink::simulated().0,
        mailbox,
        toolbox: Idle,
        terminate: Arc::default(),
        pauses: None,
        ended_commands: VecDeque::new(),
        servers: None,
        began,
        work_began: Duration::ZERO,
        tick: began + SLOW_TICK,
    }
}

#[tokio::test]
async fn a_request_for_a_plan_is_seen_without_a_watch_when_the_daemon_is_gone() {
    // Crash window P4, of a worker without a watch: the daemon died between its line and its
    // directive.
    let scratch = tempfile::tempdir().unwrap();
    let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
    let alice = Name::new("alice").unwrap();
    inbox::create(&dir, &alice).unwrap();
    let mut dispatcher = dispatcher_of(&dir, &alice, At::Thinking { results: false });
    let id = RandomIds.message();
    let asks = Message::new(
        id,
        "lead",
        "alice",
        1.0,
        Body::PlanRequest {
            gate_closed: Some(2),
        },
    );
    inbox::append(&dir, &alice, &asks, Durability::Process).unwrap();
    assert_eq!(dispatcher.state.gate(), Gate::Open);
    dispatcher.handle(LinkEvent::Disconnected);
    assert_eq!(dispatcher.state.gate(), Gate::Closed);
}

#[tokio::test]
async fn mail_behind_more_news_than_fit_into_memory_is_consumed_before_a_shutdown_is_answered() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
    let alice = Name::new("alice").unwrap();
    inbox::create(&dir, &alice).unwrap();
    let mut dispatcher = dispatcher_of(&dir, &alice, At::Idle);
    let path = dir.path(&TeamPath::inbox(&alice));
    let news =
        "{\"type\":\"teammate_terminated\",\"from\":\"teamd\",\"name\":\"bob\"}\n".repeat(30_000);
    let work = "{\"type\":\"message\",\"from\":\"user\",\"content\":\"hi\"}\n";
    let mut inbox = std::fs::File::options().append(true).open(path).unwrap();
    inbox.write_all((news + work).as_bytes()).unwrap();
    let request_id = RequestId::new("5d0c0ffe").unwrap();
    let shutdown = PendingShutdown {
        request_id,
        reason: "tidy".to_owned(),
        decide_within: 600.0,
    };
    let directive = Directive {
        seq: 2,
        gate: Gate::Open,
        shutdown: Some(shutdown),
        release: false,
        plan: None,
        verdict: None,
        permissions: Default::default(),
        settles: 0,
        checking: None,
    };
    dispatcher.receive(ToWorker::Directive(directive));
    while dispatcher.state.next(dispatcher.now()) == NextStep::TakeIn {
        for taken in dispatcher.mailbox.take() {
            let Consumed::Messages { messages, .. } = taken else {
                panic!("{taken:?}")
            };
            let messages = messages.iter().map(Message::to_json).collect();
            dispatcher.state.follow(&Event::Messages { messages });
        }
        dispatcher.state.consumed(dispatcher.mailbox.has_rest());
        dispatcher.fetch();
    }
    assert_eq!(dispatcher.state.next(dispatcher.now()), NextStep::Think);
}
