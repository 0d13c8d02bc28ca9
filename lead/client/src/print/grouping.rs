//! What the members of a team need of a person: the one rule by which every view groups and sorts
//! them. Pure.

use std::cmp::Ordering;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use teamd_shared::amount::format_duration;
use teamd_shared::config::RosterMember;
use teamd_shared::journal::Team;
use teamd_shared::member::{ApproveBy, MemberStatus};
use teamd_shared::message::IdleReason;
use teamd_shared::request::{Kind, Request, Status};

use super::render::{BAD, DIM, exit};

/// How long a rejected shutdown needs a person, in seconds: after that it is only history.
const REFUSAL_FADES: f64 = 600.0;
/// How long a text may stay that counts seconds, in seconds.
const COUNTS: f64 = 10.0;
/// The longest first line of a plan that is shown, in characters.
const HEADLINE: usize = 160;
/// Headings of plans that say nothing.
const SAYS_NOTHING: [&str; 8] = [
    "plan",
    "the plan",
    "my plan",
    "overview",
    "summary",
    "proposal",
    "goal",
    "implementation plan",
];

/// What a member needs, in the order in which a person looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// A person has to decide something.
    NeedsYou,
    /// It cannot go on by itself.
    Stuck,
    /// It works, starts or leaves.
    Working,
    /// It waits for messages.
    Idle,
    /// It has ended as it was asked to.
    Ended,
}

impl Group {
    /// Returns the heading above its members.
    pub const fn title(self) -> &'static str {
        match self {
            Self::NeedsYou => "NEEDS YOU",
            Self::Stuck => "STUCK",
            Self::Working => "WORKING",
            Self::Idle => "IDLE",
            Self::Ended => "ENDED",
        }
    }

    /// Returns the style of its words.
    pub const fn style(self) -> Style {
        match self {
            Self::NeedsYou => AnsiColor::Yellow.on_default().bold(),
            Self::Stuck => BAD,
            Self::Working => AnsiColor::Cyan.on_default(),
            Self::Idle => AnsiColor::Green.on_default(),
            Self::Ended => DIM,
        }
    }
}

/// What the roster alone does not tell of a member.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts<'t> {
    /// Its process has ended, and no daemon has recorded it.
    pub unnoticed: bool,
    /// Its plan or permission that is pending, or else its work that a person is to review.
    pub plan: Option<&'t Request>,
    /// How many plans of it were rejected since the last one that was approved.
    pub rejected: usize,
    /// The shutdown that this incarnation has rejected.
    pub refusal: Option<&'t Request>,
}

impl<'t> Facts<'t> {
    /// Finds them in the fold of the journal.
    pub fn of(member: &RosterMember, team: &'t Team, unnoticed: bool) -> Self {
        let name = &member.name;
        let plan = team.awaited_by(name);
        let review = team
            .held_by(name)
            .and_then(|task| team.requests.get(task.review_id()?));
        let review = review.filter(|it| it.is_pending() && team.judge_of(it) == ApproveBy::Person);
        let refusal = team
            .shutdown_of(name)
            .filter(|it| it.status == Status::Rejected && !it.agent);
        // Few members have a plan pending, so few need a look at all requests.
        let since = plan
            .and_then(|_| team.members.get(name))
            .map(|state| state.record.conversation);
        let mut plans: Vec<&Request> = team
            .requests
            .values()
            .filter(|request| {
                request.kind == Kind::PlanApproval
                    && request.from == name.as_str()
                    && since.is_some_and(|since| request.incarnation >= since)
            })
            .collect();
        plans.sort_by(|a, b| b.created_at.total_cmp(&a.created_at));
        let until_approved = plans
            .iter()
            .take_while(|plan| plan.status != Status::Approved);
        let rejected = until_approved
            .filter(|plan| plan.status == Status::Rejected)
            .count();
        Self {
            unnoticed,
            plan: plan.or(review),
            rejected,
            refusal,
        }
    }
}

/// How a member stands, for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// What it needs.
    pub group: Group,
    /// Its state, in a person's word.
    pub word: &'static str,
    /// What it does, or the reason of its trouble; not yet escaped.
    pub what: String,
    /// Since when, in seconds since 1970.
    pub since: f64,
    /// When it is another by the time alone.
    pub changes_at: Option<f64>,
}

impl Standing {
    /// Computes how a member stands at a time, in seconds since 1970.
    pub fn of(member: &RosterMember, facts: Facts<'_>, now: f64) -> Self {
        let at = |group, word, what: &str, since| Self {
            group,
            word,
            what: what.to_owned(),
            since,
            changes_at: None,
        };
        let counting = |standing: Self| Self {
            changes_at: Some(now + COUNTS),
            ..standing
        };
        let status = member.status;
        let since = member.updated_at;
        let activity = member.activity.as_str();
        let ended = member
            .exit
            .as_ref()
            .map_or_else(String::new, |it| match &it.note {
                Some(note) => format!("{}; {note}", exit(it)),
                None => exit(it),
            });
        let silent = if !facts.unnoticed && !status.is_ended() {
            member.silent_since
        } else {
            None
        };
        let refusal = facts
            .refusal
            .filter(|it| now - it.resolved_at.unwrap_or(0.0) < REFUSAL_FADES);
        match (status, silent, refusal) {
            (MemberStatus::Crashed, ..) => at(Group::Stuck, "crashed", &ended, since),
            (MemberStatus::Shutdown | MemberStatus::Killed, ..) => {
                at(Group::Ended, status.as_str(), &ended, since)
            }
            _ if facts.unnoticed => at(Group::Stuck, "gone", "its process is gone", since),
            (MemberStatus::AwaitingApproval, ..) => match facts.plan {
                None => at(Group::NeedsYou, "plan", activity, since),
                Some(asked) => {
                    let tries = if asked.kind == Kind::PlanApproval {
                        facts.rejected
                    } else {
                        0
                    };
                    at(
                        Group::NeedsYou,
                        asked.kind.noun(),
                        &describe(asked, tries),
                        asked.created_at,
                    )
                }
            },
            (_, Some(since), _) => {
                let silent = Duration::try_from_secs_f64(now - since).unwrap_or_default();
                let what = format!("not responding for {}", format_duration(silent));
                let what = if activity.is_empty() {
                    what
                } else {
                    format!("{what}; {activity}")
                };
                counting(at(Group::Stuck, "silent", &what, since))
            }
            (MemberStatus::Idle | MemberStatus::Working, ..) if let Some(review) = facts.plan => {
                at(
                    Group::NeedsYou,
                    "review",
                    &describe(review, 0),
                    review.created_at,
                )
            }
            (MemberStatus::ShuttingDown, ..) => at(Group::Working, "leaving", activity, since),
            (MemberStatus::Idle | MemberStatus::Working, _, Some(refusal)) => {
                let why = refusal.reason.as_deref().unwrap_or_default();
                let since = refusal.resolved_at.unwrap_or(since);
                let stays = at(
                    Group::NeedsYou,
                    "stays",
                    &format!("rejected the shutdown: {why}"),
                    since,
                );
                Self {
                    changes_at: Some(since + REFUSAL_FADES),
                    ..stays
                }
            }
            (MemberStatus::Idle, ..) => match member.idle_reason {
                Some(IdleReason::Failed) => {
                    let why = activity.strip_prefix("failed: ").unwrap_or(activity);
                    at(Group::Stuck, "failed", why, since)
                }
                Some(IdleReason::MaxTurns | IdleReason::MaxTokens | IdleReason::MaxCost) => {
                    at(Group::Stuck, "limit", activity, since)
                }
                _ => at(Group::Idle, "idle", activity, since),
            },
            _ => {
                let pause = member.waiting.as_ref().map(|waiting| waiting.describe(now));
                let works = at(
                    Group::Working,
                    status.as_str(),
                    pause.as_deref().unwrap_or(activity),
                    since,
                );
                if pause.is_some() {
                    counting(works)
                } else {
                    works
                }
            }
        }
    }

    /// Orders members: by group; the longest first, but those that are idle or have ended by name.
    pub fn order((a, name): (&Self, &str), (b, other): (&Self, &str)) -> Ordering {
        let by_wait = match a.group {
            Group::NeedsYou | Group::Stuck | Group::Working => a.since.total_cmp(&b.since),
            Group::Idle | Group::Ended => Ordering::Equal,
        };
        a.group
            .cmp(&b.group)
            .then(by_wait)
            .then_with(|| natural(name, other))
    }
}

fn describe(plan: &Request, rejected: usize) -> String {
    let again = if rejected == 0 {
        String::new()
    } else {
        format!("try {}: ", rejected + 1)
    };
    format!(
        "{} {again}{}",
        plan.request_id,
        headline(&plan.payload.text())
    )
}

/// Returns the first line of a plan that says something, without the marks of a heading or a list.
pub fn headline(plan: &str) -> String {
    let bare = |line: &str| {
        let text = line
            .trim()
            .trim_start_matches(['#', '>', '-', '*'])
            .trim()
            .trim_matches('*')
            .trim();
        text.replace("**", "")
            .chars()
            .take(HEADLINE)
            .collect::<String>()
    };
    let first = plan.lines().map(bare).find(|line| {
        let said = line.trim_end_matches([':', '.']).to_lowercase();
        !said.is_empty() && !SAYS_NOTHING.contains(&said.as_str())
    });
    first
        .or_else(|| plan.lines().map(bare).find(|line| !line.is_empty()))
        .unwrap_or_default()
}

/// Orders names as people do: w2 before w10.
pub fn natural(a: &str, b: &str) -> Ordering {
    fn parts(name: &str) -> Vec<(&str, Option<u64>)> {
        let is_digit = |c: char| c.is_ascii_digit();
        let mut parts = Vec::new();
        let mut rest = name;
        while !rest.is_empty() {
            let text = rest.find(is_digit).unwrap_or(rest.len());
            let number = rest[text..]
                .find(|c| !is_digit(c))
                .map_or(rest.len(), |end| text + end);
            let digits = &rest[text..number];
            // A name that ends here stands before one with a number.
            parts.push((
                &rest[..text],
                (!digits.is_empty()).then(|| digits.parse().unwrap_or(u64::MAX)),
            ));
            rest = &rest[number..];
        }
        parts
    }
    parts(a).cmp(&parts(b)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests;
