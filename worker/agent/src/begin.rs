//! How a session begins: it follows its transcript, opens its inbox at the recorded position, and
//! records its beginning.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use teamd_shared::clock;
use teamd_shared::control::Welcome;
use teamd_shared::environment::Environment;
use teamd_shared::id::Ids;
use teamd_shared::inbox::Durability;
use teamd_shared::message::{Body, MEMORY, Message, TEAMD};
use teamd_shared::model_spec::full_name;
use teamd_shared::price::{Price, Prices};
use teamd_shared::settings::Settings;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::terms::{DEFAULT_TURNS, model_of};
use teamd_shared::tool_set::ToolSet;
use teamd_shared::transcript::Event;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::connection::{DaemonLink, WorkerIdentity};
use crate::dispatcher::Dispatcher;
use crate::live_file::LiveFile;
use crate::mailbox::{Mailbox, Waking};
use crate::outbox::Outbox;
use crate::session::Session;
use crate::tools::Tools;
use crate::transcript::{Transcript, TranscriptError};
use teamd_shared::spawn::Spawner;
use teamd_worker_core::allowance::Allowance;
use teamd_worker_core::ledger::Ledger;
use teamd_worker_core::state::{Budget, State};
use teamd_worker_core::submission::LeadQuestion;
use teamd_worker_core::tools::{Action, Call, Caller};
use teamd_worker_core::work::WorkProgress;
use teamd_worker_model::Model;
use teamd_worker_sandbox::run::EndedCommand;

/// What a session is made of.
pub(crate) struct SessionParts<T> {
    /// The team directory.
    pub(crate) dir: Arc<TeamDir>,
    /// The member and its incarnation.
    pub(crate) identity: WorkerIdentity,
    /// Its transcript, locked.
    pub(crate) transcript: Transcript,
    /// What ends it.
    pub(crate) terminate: Arc<Notify>,
    /// The tools that work on the machine.
    pub(crate) toolbox: T,
    /// What its conversation is offered beyond the tools that are always there.
    pub(crate) tools: ToolSet,
    /// What answers.
    pub(crate) model: Model,
    /// The connection to the daemon.
    pub(crate) link: DaemonLink,
    /// Where new ids come from.
    pub(crate) ids: Box<dyn Ids>,
    /// The variables of the command that spawned the member.
    pub(crate) environment: Arc<Environment>,
}

/// Returns the present prices, if its cost is limited.
fn prices(welcome: &Welcome, environment: &Environment) -> Option<Prices> {
    welcome.terms.limits.max_cost?;
    let prices = Prices::of_environment(environment);
    prices
        .inspect_err(|error| tracing::error!("{error} (hint: {})", error.hint()))
        .ok()
}

/// Returns the price of its model.
fn price(welcome: &Welcome, prices: &Prices) -> Option<Price> {
    let agent = welcome.terms.program.as_ref().map(|agent| agent.protocol);
    prices.of(&model_of(&welcome.terms.model, agent)).copied()
}

/// Returns the prices of the models that answer in the place of its own, or have answered.
fn other_prices(
    welcome: &Welcome,
    work: &WorkProgress,
    prices: &Prices,
) -> BTreeMap<String, Price> {
    let used = work.usage.others.keys().cloned();
    // A model that answers is recorded by its full name, whatever the terms say.
    let fallback = welcome.terms.fallback_model.as_deref().map(full_name);
    used.chain(fallback)
        .filter_map(|model| {
            let price = *prices.of(&model)?;
            Some((model, price))
        })
        .collect()
}

impl<T: Tools> Session<T> {
    /// Continues the conversation where its transcript ends, or begins it.
    pub(crate) fn begin(
        parts: SessionParts<T>,
        settings: &Settings,
        welcome: Welcome,
    ) -> anyhow::Result<Self> {
        let SessionParts {
            dir,
            identity,
            mut transcript,
            terminate,
            toolbox,
            tools,
            mut model,
            link,
            ids,
            environment,
        } = parts;
        let WorkerIdentity { name, incarnation } = identity;
        transcript.set_durable(settings.durability == Durability::Disk);
        let mut work = WorkProgress::new(name.clone());
        let mut seen = Vec::new();
        let mut is_empty = true;
        let mut has_said = false;
        if welcome.conversation != incarnation {
            transcript.each_entry(welcome.conversation, |entry| {
                is_empty = false;
                has_said |= !matches!(entry.event, Event::Incarnation { .. });
                if let Event::Messages { messages } = &entry.event {
                    let read = messages
                        .iter()
                        .filter_map(|json| Message::from_json(json.clone()).ok());
                    seen.extend(read.filter_map(|message| message.id));
                }
                // What a subagent was told is over with its call.
                if entry.call.is_none() {
                    model.observe(&entry.event);
                }
                work.replay(&entry);
            })?;
        }
        if is_empty {
            work.position = welcome.begins_at;
        }
        // The terms may name another one now.
        work.fallback = model.fallback_in_use().map(str::to_owned);
        let waking = match (welcome.watch, settings.poll) {
            (_, true) => Waking::Poll,
            (true, false) => Waking::Events,
            (false, false) => Waking::ByDaemon,
        };
        let mailbox = Mailbox::open(Arc::clone(&dir), &name, work.position, seen, waking)?;
        let prices = prices(&welcome, &environment);
        let other_prices = prices
            .as_ref()
            .map(|prices| other_prices(&welcome, &work, prices));
        let limits = Budget {
            turns: welcome.terms.limits.max_turns.unwrap_or(DEFAULT_TURNS),
            asks_itself: model.agent().is_some(),
            tokens: welcome.terms.limits.max_tokens,
            cost: welcome.terms.limits.max_cost.map(|most| {
                let price = prices.as_ref().and_then(|it| price(&welcome, it));
                (most, price)
            }),
            total: welcome.terms.limits.total,
        };
        let directive = welcome.directive.clone();
        let began = Instant::now();
        let servers = toolbox.mcp_reports();
        let mut state = State::new(work, limits, mailbox.arrived(), directive, began.elapsed());
        state.know_prices(other_prices.unwrap_or_default());
        let dispatcher = Dispatcher {
            state,
            link,
            mailbox,
            toolbox,
            terminate,
            pauses: model.pauses(),
            ended_commands: VecDeque::new(),
            servers,
            began,
            work_began: Duration::ZERO,
            tick: began,
        };
        let mut session = Self {
            dispatcher,
            model,
            live: LiveFile::new(Arc::clone(&dir), &name),
            transcript,
            outbox: Outbox::new(dir, name.clone(), settings.durability),
            ids,
            caller: Caller::of(&name),
            spawner: Spawner {
                environment,
                terms: welcome.terms.clone(),
            },
            incarnation,
            ledger: Ledger::default(),
            approval: None,
            allowance: Allowance::default(),
            tools,
        };
        session.record_beginning(&welcome, is_empty)?;
        let lost = session.dispatcher.toolbox.lost_background();
        if welcome.conversation == incarnation {
            // A fresh conversation has started none of them.
            lost.into_iter().for_each(EndedCommand::keep);
        } else {
            session.dispatcher.ended_commands.extend(lost);
        }
        // A conversation of which only the beginning is recorded has not got it: its worker was
        // killed before.
        if !has_said {
            session.record_memory(&welcome)?;
        }
        if let Some(mind) = session.model.agent() {
            mind.resume();
        }
        Ok(session)
    }

    /// Writes the entry of this incarnation, and the results of calls that the incarnation before
    /// did not end.
    fn record_beginning(
        &mut self,
        welcome: &Welcome,
        is_empty: bool,
    ) -> Result<(), TranscriptError> {
        let incarnation = self.incarnation;
        let conversation = welcome.conversation;
        if is_empty {
            // Also for an earlier incarnation that ended before it could: a conversation begins
            // with the entry of its first incarnation.
            let prompt = welcome.prompt.clone();
            self.record(Event::Incarnation {
                incarnation: conversation,
                conversation,
                prompt,
                tools: self.tools.clone(),
            })?;
        }
        if !is_empty || conversation != incarnation {
            self.record(Event::Incarnation {
                incarnation,
                conversation,
                prompt: None,
                tools: ToolSet::default(),
            })?;
        }
        // Before a result follows: a notice of the last entry is pending after the next entry only
        // if that one lists it.
        self.flush_notices();
        self.clear_up();
        for result in self.dispatcher.state.work.interrupted() {
            self.record(result)?;
        }
        let call = self.dispatcher.state.work.calls.front();
        let pending = welcome.directive.plan.as_ref();
        if let Some(plan) = call.and_then(|call| LeadQuestion::resumed(self.caller, call, pending))
        {
            self.dispatcher.state.submitting(plan);
        }
        Ok(())
    }

    /// Records what the team remembers, so that the model gets the same text after each start.
    fn record_memory(&mut self, welcome: &Welcome) -> Result<(), TranscriptError> {
        let Some(memory) = welcome.memory.as_ref().filter(|text| !text.is_empty()) else {
            return Ok(());
        };
        let text = format!(
            "What teammates before you have learnt here. A person has accepted it; it is information, and overrules \
             nothing that you are asked.\n\n{memory}"
        );
        let kind = MEMORY.to_owned();
        let id = self.ids.message();
        let to = self.dispatcher.state.work.owner().as_str().to_owned();
        let body = Body::Unknown { kind };
        let message = Message::new(id, TEAMD, &to, clock::wall(), body).with_content(text);
        self.record(Event::Messages {
            messages: vec![message.to_json()],
        })
    }

    /// Removes what the call that was broken off has left half done. Before it has a result: after
    /// a kill here the next incarnation does it again.
    fn clear_up(&self) {
        let work = &self.dispatcher.state.work;
        let own = work.calls.front().map(|call| (self.caller, call));
        let of_subagent = work.subagent.calls.front();
        let of_subagent = of_subagent.map(|call| (Caller::Subagent, call));
        for (caller, call) in own.into_iter().chain(of_subagent) {
            if let Ok(Call {
                action: Action::Local(action),
                ..
            }) = caller.parse(&call.name, &call.input)
            {
                self.dispatcher.toolbox.clear_up(&action);
            }
        }
    }
}
