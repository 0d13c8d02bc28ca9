//! The status of a member that people see. Derived, pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Phase;

/// The status of a member that people see.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
#[schemars(rename = "Status")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum MemberStatus {
    /// Spawned, but not ready yet.
    Starting,
    /// Waiting for messages.
    Idle,
    /// Working on a message.
    Working,
    /// Waiting for the answer to its plan.
    AwaitingApproval,
    /// Asked to shut down, or about to exit.
    ShuttingDown,
    /// Ended after it approved a shutdown.
    Shutdown,
    /// Terminated.
    Killed,
    /// Ended unexpectedly.
    Crashed,
    /// On a host that is gone for good, as a person has said.
    Lost,
}

impl MemberStatus {
    /// Returns the status as it is written.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Tells whether the member has ended.
    pub const fn is_ended(self) -> bool {
        matches!(
            self,
            Self::Shutdown | Self::Killed | Self::Crashed | Self::Lost
        )
    }

    /// Computes the status; it is stored nowhere. The end counts first, then a shutdown, then a
    /// plan, then what the worker last reported.
    pub fn of(phase: Phase, leaving: bool, plan_pending: bool, doing: Doing) -> Self {
        match phase {
            Phase::Shutdown => Self::Shutdown,
            Phase::Killed => Self::Killed,
            Phase::Crashed => Self::Crashed,
            Phase::Lost => Self::Lost,
            Phase::Spawning | Phase::Running if leaving => Self::ShuttingDown,
            Phase::Spawning => Self::Starting,
            Phase::Running if plan_pending => Self::AwaitingApproval,
            Phase::Running => match doing {
                Doing::Starting => Self::Starting,
                Doing::Idle => Self::Idle,
                Doing::Working => Self::Working,
            },
        }
    }
}

/// What a worker last reported that it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// It is not ready yet.
    #[default]
    Starting,
    /// It waits for messages, or for a verdict.
    Idle,
    /// It works.
    Working,
}

/// A pause in which a worker waits for the service of its model.
///
/// It is also part of control frames: no field may be left out when it is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// Seconds since 1970, when it ends at the latest.
    pub until: f64,
    /// What for, in a few words of our own.
    pub why: String,
}

impl Waiting {
    /// Why a model call waits that was accepted and has no answer yet: a model may think that long.
    pub const SILENT: &str = "the service is silent";

    /// How the reason begins where an agent has asked the model.
    pub const UNHEARD: &str = "for the model, which has said nothing";

    /// Tells whether the service is known to be unavailable: it is overloaded, or cannot be
    /// reached.
    pub fn is_outage(&self) -> bool {
        self.why != Self::SILENT && !self.why.starts_with(Self::UNHEARD)
    }

    /// Describes it at a time, in seconds since 1970.
    pub fn describe(&self, now: f64) -> String {
        let left = (self.until - now).ceil();
        if left >= 1.0 {
            format!("waiting {left} s: {}", self.why)
        } else {
            format!("waiting: {}", self.why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_counts_before_a_shutdown_before_a_plan_before_what_the_worker_says() {
        for doing in [Doing::Starting, Doing::Idle, Doing::Working] {
            for plan in [false, true] {
                for leaving in [false, true] {
                    assert_eq!(
                        MemberStatus::of(Phase::Crashed, leaving, plan, doing),
                        MemberStatus::Crashed
                    );
                    assert_eq!(
                        MemberStatus::of(Phase::Shutdown, leaving, plan, doing),
                        MemberStatus::Shutdown
                    );
                }
                assert_eq!(
                    MemberStatus::of(Phase::Running, true, plan, doing),
                    MemberStatus::ShuttingDown
                );
            }
            assert_eq!(
                MemberStatus::of(Phase::Running, false, true, doing),
                MemberStatus::AwaitingApproval
            );
        }
        assert_eq!(
            MemberStatus::of(Phase::Running, false, false, Doing::Working),
            MemberStatus::Working
        );
        assert_eq!(
            MemberStatus::of(Phase::Spawning, false, false, Doing::Starting),
            MemberStatus::Starting
        );
    }

    #[test]
    fn a_pause_is_told_with_the_seconds_that_are_left() {
        let waiting = Waiting {
            until: 100.0,
            why: "overloaded (529)".to_owned(),
        };
        assert_eq!(waiting.describe(82.5), "waiting 18 s: overloaded (529)");
        for over in [100.0, 200.0, f64::NAN] {
            assert_eq!(waiting.describe(over), "waiting: overloaded (529)");
        }
    }

    #[test]
    fn a_status_is_read_as_it_is_written() {
        for status in [
            MemberStatus::Starting,
            MemberStatus::AwaitingApproval,
            MemberStatus::ShuttingDown,
            MemberStatus::Crashed,
        ] {
            assert_eq!(
                <MemberStatus as clap::ValueEnum>::from_str(status.as_str(), false),
                Ok(status)
            );
        }
        assert!(<MemberStatus as clap::ValueEnum>::from_str("gone", false).is_err());
    }
}
