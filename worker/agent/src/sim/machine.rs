//! The machine of the simulated worker: what its calls do, and what its model says. It outlives the
//! worker, but what runs does not.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::member::Gate;
use teamd_shared::transcript::{Block, Event, Usage};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::agent_history::AgentHistory;
use super::{Mutant, Rng, disk};
use crate::tools::{Admits, Runs, Tools};
use teamd_worker_core::tools::{LocalAction, Outcome};
use teamd_worker_model::{AgentProcess, Launch, ModelError, SimulatedModel};
use teamd_worker_sandbox::run::GateHandle;

pub(super) type Shared = Rc<RefCell<Machine>>;

/// What there is beside the worker.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) seed: u64,
    pub(super) mutant: Option<Mutant>,
    pub(super) calm: bool,
    pub(super) transcript: PathBuf,
    /// How often each call has run.
    pub(super) runs: BTreeMap<String, u32>,
    /// The call that runs, and whether an open gate let it through.
    pub(super) foreground: Option<(String, bool)>,
    /// The call that waits for memory.
    pub(super) held: Option<String>,
    /// What runs in the background, and whether an open gate let it through.
    pub(super) background: Vec<(String, bool)>,
    /// Why nothing may be changed now, if that is so.
    pub(super) closed: Option<&'static str>,
    pub(super) broken: Option<String>,
    /// The session of the agents, in schedules in which the mind is one.
    pub(super) session: AgentHistory,
    ids: u32,
}

impl Machine {
    pub(super) fn new(seed: u64, mutant: Option<Mutant>, transcript: PathBuf) -> Self {
        Self {
            seed,
            mutant,
            calm: false,
            transcript,
            runs: BTreeMap::new(),
            foreground: None,
            held: None,
            background: Vec::new(),
            closed: None,
            broken: None,
            session: AgentHistory::new(seed & 8 == 0),
            ids: 0,
        }
    }

    /// What runs ends with the worker.
    pub(super) fn ends(&mut self) {
        self.foreground = None;
        self.held = None;
        self.background.clear();
        self.loses_agent();
    }

    pub(super) fn promise(&mut self, kept: bool, why: impl FnOnce() -> String) {
        if !kept && self.broken.is_none() {
            self.broken = Some(why());
        }
    }

    /// Nothing runs that changes anything, if nothing may.
    pub(super) fn looks_at_the_gate(&mut self) {
        let Some(why) = self.closed else { return };
        let runs = self
            .foreground
            .iter()
            .chain(&self.background)
            .find(|(_, changes)| *changes)
            .cloned();
        self.promise(runs.is_none(), || {
            format!("{} runs although {why}", runs.unwrap_or_default().0)
        });
        let writes = self.agent_may_write();
        self.promise(!writes, || format!("the agent may write although {why}"));
    }

    /// A call runs: its answer stands in the transcript, and the results of the calls before it.
    pub(super) fn begins(&mut self, what: &str, changes: bool) {
        let held = self.held.clone();
        self.promise(held.is_none(), || {
            format!("{what} begins while {held:?} waits")
        });
        *self.runs.entry(what.to_owned()).or_default() += 1;
        let times = self.runs[what];
        self.promise(times == 1, || format!("{what} runs {times} times"));
        let closed = if changes { self.closed } else { None };
        self.promise(closed.is_none(), || {
            format!("{what} begins although {}", closed.unwrap_or_default())
        });
        let transcript =
            String::from_utf8_lossy(&std::fs::read(&self.transcript).unwrap()).into_owned();
        let whole = transcript.rsplit_once('\n').map_or("", |(whole, _)| whole);
        self.promise(whole.contains(&format!("\"{what}\"")), || {
            format!("{what} runs before it is recorded")
        });
        let (answer, number) = what.rsplit_once('-').unwrap();
        for earlier in 0..number.parse().unwrap() {
            let id = format!("\"tool_use_id\":\"{answer}-{earlier}\"");
            self.promise(whole.contains(&id), || {
                format!("{what} runs before {answer}-{earlier} has a result")
            });
        }
    }
}

/// New ids: each once, in all incarnations of a schedule.
#[derive(Debug)]
pub(super) struct SimIds(pub(super) Shared);

impl Ids for SimIds {
    fn message(&mut self) -> Uuid {
        let mut machine = self.0.borrow_mut();
        machine.ids += 1;
        Uuid::from_u128(u128::from(machine.ids) << 64 | u128::from(machine.ids))
    }

    fn request(&mut self) -> RequestId {
        let mut machine = self.0.borrow_mut();
        machine.ids += 1;
        // Far from each other, as random ones are: what follows from one that was taken is not the
        // next call's.
        RequestId::from_bits(machine.ids << 8)
    }
}

/// The tools.
#[derive(Debug)]
pub(super) struct SimulatedToolbox {
    pub(super) machine: Shared,
    /// The gate of the agent that runs, or ran last.
    pub(super) gate: Option<GateHandle>,
}

/// How long a gate may take to open.
const OPENED_WITHIN: Duration = Duration::from_secs(2);

/// A call that runs.
#[derive(Debug)]
pub(super) struct SimulatedCall {
    machine: Shared,
    until: Instant,
    outcome: Outcome,
}

/// What lets a call begin: some are held back for seconds, with fewer and fewer before them.
#[derive(Debug)]
pub(super) struct SimulatedAdmission {
    machine: Shared,
    began: Instant,
    before: Option<u32>,
    was_held: bool,
}

impl SimulatedAdmission {
    fn of(machine: &Shared, command: &str) -> Self {
        let Machine { seed, calm, .. } = *machine.borrow();
        let mut rng = Rng(seed ^ number_of(command));
        let is_held = !calm && rng.one_in(3);
        let before = is_held.then(|| rng.pick(&[0, 0, 1, 2]));
        machine.borrow_mut().held = before.map(|_| command.to_owned());
        Self {
            machine: Rc::clone(machine),
            began: Instant::now(),
            before,
            was_held: is_held,
        }
    }
}

impl Drop for SimulatedAdmission {
    fn drop(&mut self) {
        self.machine.borrow_mut().held = None;
    }
}

impl Admits for SimulatedAdmission {
    fn before(&self) -> Option<u32> {
        self.before
    }

    async fn changed(&mut self) {
        tokio::time::sleep(Duration::from_secs(20)).await;
        self.before = self.before.and_then(|before| before.checked_sub(1));
        if self.before.is_none() {
            self.machine.borrow_mut().held = None;
        }
    }

    fn waited(&self) -> Option<Duration> {
        self.was_held.then(|| self.began.elapsed())
    }
}

/// Returns a number that follows from a text.
fn number_of(text: &str) -> u64 {
    text.bytes().fold(7, |sum: u64, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    })
}

impl Tools for SimulatedToolbox {
    type Running = SimulatedCall;
    type Admission = SimulatedAdmission;

    fn admission(&mut self, action: &LocalAction) -> Option<SimulatedAdmission> {
        match action {
            LocalAction::Bash(bash) if !bash.run_in_background => {
                Some(SimulatedAdmission::of(&self.machine, &bash.command))
            }
            _ => None,
        }
    }

    fn start(&mut self, action: LocalAction, gate: Gate) -> SimulatedCall {
        disk::acts();
        let (what, seconds, background) = match action {
            LocalAction::Bash(bash) => (bash.command, bash.timeout, bash.run_in_background),
            LocalAction::WriteFile(file) => (file.path, None, false),
            other => panic!("{other:?} is no call of this model"),
        };
        let mut machine = self.machine.borrow_mut();
        let changes = gate == Gate::Open;
        let calm = machine.calm;
        machine.begins(&what, changes);
        if background {
            machine.background.push((what.clone(), changes));
        } else {
            machine.foreground = Some((what.clone(), changes));
        }
        drop(machine);
        disk::acts();
        let seconds = match seconds {
            Some(seconds) if !background && !calm => seconds,
            _ => 0.0,
        };
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        SimulatedCall {
            machine: Rc::clone(&self.machine),
            until,
            outcome: Outcome::ok(format!("ran {what}")),
        }
    }

    fn has_background(&mut self) -> bool {
        let machine = self.machine.borrow();
        let runs =
            machine.mutant != Some(Mutant::BackgroundStays) && !machine.background.is_empty();
        runs || self.gate.as_ref().is_some_and(GateHandle::may_write)
    }

    fn start_process(&mut self, launch: Launch, gate: Gate) -> Result<AgentProcess, String> {
        let (process, handle) = self.machine.borrow_mut().starts_agent(launch, gate);
        self.gate = Some(handle);
        Ok(process)
    }

    fn open_gate(&mut self) -> bool {
        self.gate.as_ref().is_some_and(GateHandle::open)
    }

    async fn opened(&mut self) {
        let Some(gate) = &mut self.gate else { return };
        drop(tokio::time::timeout(OPENED_WITHIN, gate.opened()).await);
    }

    async fn agent_ended(&mut self) {
        let waits = self.machine.borrow().mutant != Some(Mutant::EndIsNotAwaited);
        if waits && let Some(gate) = self.gate.as_mut() {
            gate.gone().await;
        }
    }

    async fn end_background(&mut self) {
        // It takes a moment.
        tokio::task::yield_now().await;
        if let Some(gate) = &mut self.gate {
            gate.close().await;
        }
        self.machine.borrow_mut().background.clear();
    }

    fn reap_orphans(&mut self) {}
}

impl Runs for SimulatedCall {
    async fn finish(&mut self) -> Outcome {
        sleep_until(self.until).await;
        self.machine.borrow_mut().foreground = None;
        self.outcome.clone()
    }

    async fn cancel(self, why: &str) -> Outcome {
        tokio::task::yield_now().await;
        self.machine.borrow_mut().foreground = None;
        Outcome::error(format!("[{why}]"))
    }
}

/// The model: what it says follows from the seed and the number of its answers.
#[derive(Debug)]
pub(super) struct SeededModel {
    machine: Shared,
    answers: u64,
    asked: Option<RequestId>,
    subagent: Subagent,
}

/// The subagent of a call.
#[derive(Debug, Default)]
struct Subagent {
    call: String,
    answers: u32,
}

/// What a subagent says at last.
pub(super) const SAID: &str = "the subagent is done";

impl SeededModel {
    pub(super) fn new(machine: &Shared) -> Self {
        Self {
            machine: Rc::clone(machine),
            answers: 0,
            asked: None,
            subagent: Subagent::default(),
        }
    }

    /// Calls a tool of the machine in its first answers, or none; then it is done.
    async fn next_answer_of_subagent(&mut self) -> Result<Event, ModelError> {
        let seed = self.machine.borrow().seed;
        let calm = self.machine.borrow().calm;
        let Subagent { call, answers } = &mut self.subagent;
        let place = call
            .bytes()
            .map(u64::from)
            .fold(seed, |sum, byte| sum.wrapping_mul(31) + byte);
        let mut rng = Rng(place.wrapping_add(u64::from(*answers)));
        let seconds = rng.pick(&[0, 0, 1, 50]);
        if !calm && seconds > 0 {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
        let calls = if calm || *answers == 2 {
            0
        } else {
            rng.pick(&[0, 1, 2])
        };
        let mut content = vec![Block::Text {
            text: SAID.to_owned(),
        }];
        for number in 0..calls {
            let id = format!("of-{call}-{answers}-{number}");
            let (name, input) = if rng.one_in(3) {
                ("write_file", json!({ "path": id, "content": "x" }))
            } else {
                let timeout = rng.pick(&[0.5, 2.0, 60.0]);
                ("bash", json!({ "command": id, "timeout": timeout }))
            };
            content.push(call_of(id, name, input));
        }
        *answers += 1;
        Ok(answer(content))
    }

    async fn next_answer(&mut self) -> Result<Event, ModelError> {
        let seed = self.machine.borrow().seed;
        let calm = self.machine.borrow().calm;
        let mut rng = Rng(seed ^ self.answers.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let seconds = rng.pick(&[0, 0, 1, 50]);
        if !calm && seconds > 0 {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
        if !calm && rng.one_in(30) {
            return Err(ModelError::Failed("it has no answer".to_owned()));
        }
        let mut content = vec![Block::Text {
            text: format!("answer {}", self.answers),
        }];
        let calls = if calm { 0 } else { rng.pick(&[0, 1, 1, 2, 3]) };
        for number in 0..calls {
            content.push(self.call(&mut rng, number));
        }
        if (calm || rng.one_in(2))
            && let Some(request_id) = self.asked.clone()
        {
            let approve = calm || rng.one_in(2);
            let reason = format!("call-{}-{calls}", self.answers);
            let input = json!({ "request_id": request_id, "approve": approve, "reason": reason });
            content.push(tool_use(self.answers, calls, "shutdown_response", input));
        }
        Ok(answer(content))
    }

    fn call(&self, rng: &mut Rng, number: u32) -> Block {
        let id = format!("call-{}-{number}", self.answers);
        // Few schedules end between a message and its result: where its ids are at stake, all calls
        // send one.
        let kind = if self.machine.borrow().mutant == Some(Mutant::OtherIdsWhenRepeated) {
            6
        } else {
            rng.below(13)
        };
        let (name, input) = match kind {
            0..=2 => (
                "bash",
                json!({ "command": id, "timeout": rng.pick(&[0.5, 2.0, 60.0]) }),
            ),
            3 => ("bash", json!({ "command": id, "run_in_background": true })),
            4 | 5 => ("write_file", json!({ "path": id, "content": "x" })),
            6 | 7 => (
                "send_message",
                json!({ "to": rng.pick(&["lead", "user", "bob"]), "content": id }),
            ),
            8 => ("read_inbox", json!({})),
            9 => ("no_such_tool", json!({})),
            10 => ("delegate", json!({ "prompt": id })),
            _ => ("plan_approval", json!({ "plan": id })),
        };
        tool_use(self.answers, number, name, input)
    }
}

impl SimulatedModel for SeededModel {
    fn observe(&mut self, event: &Event) {
        match event {
            Event::Answer { content, .. } => {
                self.answers += 1;
                if content.iter().any(|block| matches!(block, Block::ToolUse { name, .. } if name == "shutdown_response")) {
                    self.asked = None;
                }
            }
            Event::Asked { request_id, .. } => self.asked = Some(request_id.clone()),
            Event::Incarnation { .. } | Event::Idle { .. } => self.asked = None,
            _ => {}
        }
    }

    fn answer(&mut self) -> Pin<Box<dyn Future<Output = Result<Event, ModelError>> + '_>> {
        Box::pin(self.next_answer())
    }

    fn begin_subagent(&mut self, call: &str) {
        self.subagent = Subagent {
            call: call.to_owned(),
            answers: 0,
        };
    }

    fn answer_subagent(&mut self) -> Pin<Box<dyn Future<Output = Result<Event, ModelError>> + '_>> {
        Box::pin(self.next_answer_of_subagent())
    }
}

fn answer(content: Vec<Block>) -> Event {
    Event::Answer {
        content,
        usage: Usage::default(),
        cut: None,
        length: None,
        model_calls: 1,
    }
}

fn tool_use(answer: u64, number: u32, name: &str, input: Value) -> Block {
    call_of(format!("call-{answer}-{number}"), name, input)
}

fn call_of(id: String, name: &str, input: Value) -> Block {
    Block::ToolUse {
        id,
        name: name.to_owned(),
        input,
        message_id: None,
        request_id: None,
    }
}
