//! The steps of a turn whose model is an agent: it is started, it gets its messages, and its calls
//! are followed.

use teamd_shared::mutant;
use teamd_shared::transcript::Event;

use crate::session::Session;
use crate::tools::Tools;
use crate::transcript::TranscriptError;
use teamd_worker_core::state::{NextStep, Why};
use teamd_worker_core::submission::{Asks, LeadQuestion};
use teamd_worker_core::tools::Outcome;
use teamd_worker_model::CallProgress;

impl<T: Tools> Session<T> {
    /// Makes sure that the agent runs, if the model is one, and that its gate is set before it gets
    /// its messages.
    pub(super) async fn ready_agent(&mut self) -> Result<(), String> {
        if self.model.agent().is_none() {
            return Ok(());
        }
        self.close_gate().await;
        self.start_agent().await?;
        self.dispatcher.toolbox.opened().await;
        Ok(())
    }

    /// Closes the gate of the agent, if it must be closed.
    pub(super) async fn close_gate(&mut self) {
        if self.dispatcher.state.must_end_background() {
            self.dispatcher.toolbox.end_background().await;
            self.dispatcher.state.background(false);
        }
    }

    /// Sends the agent what the transcript holds for it. The transcript is synced before: what it
    /// lost after the agent got it would be sent again.
    pub(super) fn send_news(&mut self) -> Result<(), TranscriptError> {
        let Some(agent) = self.model.agent() else {
            return Ok(());
        };
        agent.permissions = self.dispatcher.state.permissions();
        let news = agent.news();
        if !news.is_empty() {
            self.dispatcher
                .toolbox
                .allow(Some(self.dispatcher.state.budget_left()));
        }
        if !news.is_empty() && !mutant::is_on("told-before-it-lasts") {
            self.transcript.sync()?;
        }
        agent.send(news);
        Ok(())
    }

    /// Starts the agent, if the model is one that does not run.
    pub(crate) async fn start_agent(&mut self) -> Result<(), String> {
        let Some(agent) = self.model.agent() else {
            return Ok(());
        };
        let gate = self.dispatcher.state.gate();
        agent.follow_gate(gate);
        let Some(launch) = agent.launch() else {
            return Ok(());
        };
        self.dispatcher.toolbox.agent_ended().await;
        agent.attach(self.dispatcher.toolbox.start_process(launch, gate)?);
        self.dispatcher
            .state
            .background(self.dispatcher.toolbox.has_background());
        Ok(())
    }

    /// Waits for a call that runs in the agent.
    pub(super) async fn follow_call(
        &mut self,
        name: &str,
        id: &str,
    ) -> Result<(), TranscriptError> {
        self.dispatcher.state.calling(name.to_owned(), false, true);
        let Self {
            dispatcher,
            model,
            ids,
            ..
        } = self;
        let Some(agent) = model.agent() else {
            return Ok(());
        };
        agent.permissions = dispatcher.state.permissions();
        let progress = dispatcher
            .run_unless(agent.outcome(id), |state| state.news().is_some())
            .await;
        let outcome = match progress {
            // The call is the next step again.
            Ok(None) => {
                dispatcher.state.call_goes_on();
                return Ok(());
            }
            Ok(Some(CallProgress::Cost)) => {
                dispatcher.state.call_goes_on();
                return self.charge();
            }
            Ok(Some(CallProgress::Beside(event))) => {
                dispatcher.state.call_goes_on();
                return self.beside(event);
            }
            Ok(Some(CallProgress::Outcome(outcome))) => outcome,
            Ok(Some(CallProgress::Asks(permission))) => {
                let asks = Asks::Permission(permission);
                let message_id = ids.message();
                let request_id = ids.request();
                dispatcher.state.submitting(LeadQuestion {
                    asks,
                    message_id,
                    request_id,
                });
                return Ok(());
            }
            Err(why) => {
                self.stop_agent(&why).await?;
                Outcome::error(self.broken_off(&why))
            }
        };
        self.end_call(outcome)?;
        // It may have asked a model.
        self.charge()
    }

    /// Ends the turn of the agent, or the agent itself if it must not continue in any case.
    pub(super) async fn stop_agent(&mut self, why: &Why) -> Result<(), TranscriptError> {
        let Self {
            dispatcher, model, ..
        } = self;
        match (model.agent(), why) {
            (Some(agent), Why::Interrupted) => dispatcher.run_to_end(agent.interrupt()).await,
            (Some(agent), _) => {
                // While it cancels its turn, it asks no model.
                dispatcher.toolbox.allow(None);
                dispatcher.run_to_end(agent.end()).await;
            }
            (None, _) => return Ok(()),
        }
        self.charge()
    }

    /// Sends an agent what has arrived while its turn continues in a call.
    pub(super) async fn pass_on_news(&mut self) -> Result<(), TranscriptError> {
        if self.model.agent().is_none() || self.dispatcher.state.news().is_none() {
            return Ok(());
        }
        match self.dispatcher.state.news() {
            Some(NextStep::Show { request_id, reason }) => {
                self.record(Event::Asked { request_id, reason })?
            }
            _ => drop(self.consume()?),
        }
        self.close_gate().await;
        self.send_news()
    }
}
