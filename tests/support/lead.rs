//! The lead agent of a test's team: started as `teamctl chat` starts it, told what to do as a
//! person does.

use std::os::unix::ffi::OsStrExt;

use serde_json::Value;
use teamd_shared::control::{
    Command, Done, Greeting, PROTOCOL, Peer, Refusal, Reply, SpawnOrder, TaggedCommand, connect,
};
use teamd_shared::environment::Environment;
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::model_spec::ModelSpec;
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::terms::TermsPatch;

use super::Team;

impl Team {
    /// Starts the lead agent with the script model, and waits until it is ready.
    pub(crate) fn start_lead(&self) {
        self.start_lead_with(|_| {});
    }

    /// Starts it in another way.
    pub(crate) fn start_lead_with(&self, change: impl FnOnce(&mut SpawnOrder)) {
        self.begin_lead(false, change);
    }

    /// Begins the next incarnation of the lead agent, with the conversation of its last one.
    pub(crate) fn resume_lead(&self) {
        self.begin_lead(true, |_| {});
    }

    fn begin_lead(&self, resume: bool, change: impl FnOnce(&mut SpawnOrder)) {
        let mut order = SpawnOrder {
            terms: TermsPatch {
                role: Some("lead".to_owned()),
                model: Some(ModelSpec::script()),
                ..TermsPatch::default()
            },
            resume,
            ..SpawnOrder::new(Name::lead(), self.environment())
        };
        change(&mut order);
        let spawn = Command::Spawn {
            id: RandomIds.request(),
            order: Box::new(order),
        };
        let ready = self.asks(vec![spawn]).pop().unwrap();
        assert!(matches!(ready, Ok(Done::Ready { .. })), "{ready:?}");
    }

    /// The environment of everything that the test starts.
    fn environment(&self) -> Environment {
        let command = self.command("true", std::iter::empty::<&str>());
        let bytes = |text: &std::ffi::OsStr| text.as_bytes().to_vec();
        let variables = command
            .get_envs()
            .filter_map(|(name, value)| Some((bytes(name), bytes(value?))));
        Environment {
            variables: variables.collect(),
            secrets: Vec::new(),
            umask: 0o022,
        }
    }

    /// Sends commands over the control socket, one after the other, and returns their answers.
    fn asks(&self, commands: Vec<Command>) -> Vec<Result<Done, Refusal>> {
        let dir = TeamDir::open(&self.path("")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut daemon = connect(&dir).await.unwrap();
            daemon
                .send(&Greeting {
                    protocol: PROTOCOL,
                    peer: Peer::Client,
                })
                .await
                .unwrap();
            let mut answers = Vec::new();
            for (tag, command) in (1..).zip(commands) {
                daemon.send(&TaggedCommand { tag, command }).await.unwrap();
                let reply: Reply = daemon.receive().await.unwrap().unwrap();
                answers.push(reply.result);
            }
            answers
        })
    }

    /// Sends commands at once over the control socket. When the daemon has taken them in, does
    /// something meanwhile, and then returns their answers.
    pub(crate) fn asks_at_once(
        &self,
        commands: Vec<Command>,
        meanwhile: impl FnOnce(),
    ) -> Vec<Result<Done, Refusal>> {
        let dir = TeamDir::open(&self.path("")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut daemon = connect(&dir).await.unwrap();
            daemon
                .send(&Greeting {
                    protocol: PROTOCOL,
                    peer: Peer::Client,
                })
                .await
                .unwrap();
            let count = commands.len();
            for (tag, command) in (1..).zip(commands.into_iter().chain([Command::Ping])) {
                daemon.send(&TaggedCommand { tag, command }).await.unwrap();
            }
            let pong: Reply = daemon.receive().await.unwrap().unwrap();
            assert!(
                matches!(pong.result, Ok(Done::Pong { .. })),
                "too early: {pong:?}"
            );
            meanwhile();
            let mut replies = Vec::new();
            while replies.len() < count {
                replies.push(daemon.receive::<Reply>().await.unwrap().unwrap());
            }
            replies.into_iter().map(|reply| reply.result).collect()
        })
    }

    /// How many pieces of work the lead agent has ended.
    pub(crate) fn lead_turns(&self) -> usize {
        self.entries("lead", "idle").len()
    }

    /// Waits until the lead agent has ended that many pieces of work.
    pub(crate) fn until_lead_ended(&self, count: usize) {
        self.until(
            &format!("the lead agent to end {count} pieces of work"),
            || self.lead_turns() >= count,
        );
    }

    /// Tells the lead agent, once it has nothing else to do, what to do, as a person does; waits
    /// until it has done so, and returns the results.
    pub(crate) fn lead_does(&self, orders: &str) -> Vec<Value> {
        self.teamctl(["wait", "lead", "--for", "idle"]).ok();
        let before = self.transcript("lead").len();
        self.send("lead", orders);
        self.until_done("lead", orders, before)
    }
}
