use std::future::{pending, ready};
use std::sync::Arc;

use teamd_shared::control::Word;
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::inbox::{self, Durability};
use teamd_shared::member::Gate;
use teamd_shared::message::{Body, Message};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::transcript::Usage;

use super::*;
use crate::mailbox::Waking;
use crate::state::{At, Beginning, Budget};
use crate::tools::{Call, Outcome, Runs};

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

    fn start(&mut self, _: Call, _: Gate) -> Self {
        Self
    }

    fn has_background(&self) -> bool {
        false
    }

    fn end_background(&mut self) -> impl Future<Output = ()> {
        ready(())
    }

    fn reap_strays(&mut self) {}

    fn end_strays(&mut self) {}
}

/// A desk with an open gate, in the middle of a model call, which the daemon rings.
fn desk(dir: &Arc<TeamDir>, alice: &Name) -> Desk<Idle> {
    let word = Word { seq: 1, gate: Gate::Open, shutdown: None, let_go: false, plan: None, verdict: None };
    let mailbox = Mailbox::open(Arc::clone(dir), alice, Position::START, Vec::new(), Waking::Ring).unwrap();
    let limits = Budget { turns: 5, tokens: None };
    let usage = Usage::default();
    let at = At::Thinking { results: false };
    let beginning = Beginning { at, turns: 0, spent: 0, limits, usage, mail: mailbox.mail() };
    let (_terminate, played) = tokio::sync::mpsc::unbounded_channel();
    let began = Instant::now();
    Desk {
        state: State::new(beginning, word, Duration::ZERO),
        link: Link::played().0,
        mailbox,
        toolbox: Idle,
        terminate: Terminations::Played(played),
        pauses: None,
        began,
        work_began: Duration::ZERO,
        tick: began + SLOW_TICK,
    }
}

#[tokio::test]
async fn a_request_for_a_plan_that_nobody_rang_for_holds_when_the_daemon_is_gone() {
    // Crash window P4, of a worker without a watch: the daemon died between its line and its word.
    let scratch = tempfile::tempdir().unwrap();
    let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
    let alice = Name::new("alice").unwrap();
    inbox::create(&dir, &alice).unwrap();
    let mut desk = desk(&dir, &alice);
    let id = RandomIds.message();
    let asks = Message::new(id, "lead", "alice", 1.0, Body::PlanRequest);
    inbox::append(&dir, &alice, &asks, Durability::Process).unwrap();
    assert_eq!(desk.state.gate(), Gate::Open);
    desk.take(Event::Heard(Heard::Away));
    assert_eq!(desk.state.gate(), Gate::Closed);
}
