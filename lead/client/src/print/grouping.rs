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
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Request, Status};

use super::render::{BAD, DIM, exit};

/// How long a rejected shutdown needs a person, in seconds: after that it is only history.
const REFUSAL_FADES: f64 = 600.0;
/// How long a text may stay that counts seconds, in seconds.
const COUNTS: f64 = 10.0;
/// The longest first line of a plan that is shown, in characters.
const HEADLINE: usize = 160;
/// Headings of plans that carry no information.
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

/// What a member needs, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// A person has to decide something.
    NeedsYou,
    /// It cannot continue by itself.
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

/// What the roster alone does not show of a member.
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
        let mut plans = Vec::new();
        // Few members have a plan pending, so few need all requests.
        if plan.is_some()
            && let Some(state) = team.members.get(name)
        {
            let since = state.record.conversation;
            let of_member = team.requests.values().filter(|request| {
                request.kind == Kind::PlanApproval
                    && request.from == name.as_str()
                    && request.incarnation >= since
            });
            plans.extend(of_member);
        }
        plans.sort_by(|a: &&Request, b| b.created_at.total_cmp(&a.created_at));
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

/// The state of a member, for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberStanding {
    /// What it needs.
    pub group: Group,
    /// Its state, in a person's word.
    pub word: &'static str,
    /// What it does, or the reason of its trouble; not yet escaped.
    pub what: String,
    /// Since when, in seconds since 1970.
    pub since: f64,
    /// When it changes by time alone.
    pub changes_at: Option<f64>,
}

impl MemberStanding {
    /// Computes the state of a member at a time, in seconds since 1970.
    pub fn of(member: &RosterMember, facts: Facts<'_>, now: f64) -> Self {
        let status = member.status;
        let since = member.updated_at;
        let activity = member.activity.as_str();
        match status {
            MemberStatus::Crashed => {
                return Self::at(Group::Stuck, "crashed", ending(member), since);
            }
            MemberStatus::Shutdown | MemberStatus::Killed | MemberStatus::Lost => {
                return Self::at(Group::Ended, status.as_str(), ending(member), since);
            }
            _ if facts.unnoticed => {
                let what = "its process is gone".to_owned();
                return Self::at(Group::Stuck, "gone", what, since);
            }
            MemberStatus::AwaitingApproval => return Self::awaiting(member, facts),
            _ => {}
        }
        if let Some(unreachable) = member.unreachable_since {
            return Self::unreachable(member, unreachable, now);
        }
        if let Some(since) = member.silent_since {
            return Self::silent(activity, since, now);
        }
        let is_settled = matches!(status, MemberStatus::Idle | MemberStatus::Working);
        if is_settled && let Some(review) = facts.plan {
            let what = describe(review, 0);
            return Self::at(Group::NeedsYou, "review", what, review.created_at);
        }
        let refusal = facts
            .refusal
            .filter(|request| now - request.resolved_at.unwrap_or(0.0) < REFUSAL_FADES);
        if is_settled && let Some(refusal) = refusal {
            return Self::refused(refusal, since);
        }
        match status {
            MemberStatus::ShuttingDown => {
                Self::at(Group::Working, "leaving", activity.to_owned(), since)
            }
            MemberStatus::Idle => Self::idle(member),
            _ => Self::working(member, now),
        }
    }

    fn at(group: Group, word: &'static str, what: String, since: f64) -> Self {
        Self {
            group,
            word,
            what,
            since,
            changes_at: None,
        }
    }

    fn awaiting(member: &RosterMember, facts: Facts<'_>) -> Self {
        let Some(request) = facts.plan else {
            let activity = member.activity.clone();
            return Self::at(Group::NeedsYou, "plan", activity, member.updated_at);
        };
        let rejected = if request.kind == Kind::PlanApproval {
            facts.rejected
        } else {
            0
        };
        let what = describe(request, rejected);
        let noun = request.kind.noun();
        Self::at(Group::NeedsYou, noun, what, request.created_at)
    }

    /// Its host cannot be reached: what it does now is not known, and nothing was ended.
    fn unreachable(member: &RosterMember, since: f64, now: f64) -> Self {
        let time = Duration::try_from_secs_f64(now - since).unwrap_or_default();
        let host = member.host.as_ref().map_or("its host", Name::as_str);
        let time = format_duration(time);
        let mut what = format!("{host} cannot be reached for {time}");
        // A daemon that has not heard of it yet does not know what it did.
        if member.status != MemberStatus::Starting {
            what = format!("{what}; was {}", member.status.as_str());
        }
        Self {
            changes_at: Some(now + COUNTS),
            ..Self::at(Group::Stuck, "unreachable", what, since)
        }
    }

    fn silent(activity: &str, since: f64, now: f64) -> Self {
        let silence = Duration::try_from_secs_f64(now - since).unwrap_or_default();
        let mut what = format!("not responding for {}", format_duration(silence));
        if !activity.is_empty() {
            what = format!("{what}; {activity}");
        }
        Self {
            changes_at: Some(now + COUNTS),
            ..Self::at(Group::Stuck, "silent", what, since)
        }
    }

    fn refused(refusal: &Request, since: f64) -> Self {
        let why = refusal.reason.as_deref().unwrap_or_default();
        let since = refusal.resolved_at.unwrap_or(since);
        let what = format!("rejected the shutdown: {why}");
        Self {
            changes_at: Some(since + REFUSAL_FADES),
            ..Self::at(Group::NeedsYou, "stays", what, since)
        }
    }

    fn idle(member: &RosterMember) -> Self {
        let activity = member.activity.as_str();
        let (group, word, what) = match member.idle_reason {
            Some(IdleReason::Failed) => {
                let why = activity.strip_prefix("failed: ").unwrap_or(activity);
                (Group::Stuck, "failed", why)
            }
            Some(IdleReason::MaxTurns | IdleReason::MaxTokens | IdleReason::MaxCost) => {
                (Group::Stuck, "limit", activity)
            }
            _ => (Group::Idle, "idle", activity),
        };
        Self::at(group, word, what.to_owned(), member.updated_at)
    }

    fn working(member: &RosterMember, now: f64) -> Self {
        let pause = member.waiting.as_ref().map(|waiting| waiting.describe(now));
        let changes_at = pause.as_ref().map(|_| now + COUNTS);
        let what = pause.unwrap_or_else(|| member.activity.clone());
        Self {
            changes_at,
            ..Self::at(
                Group::Working,
                member.status.as_str(),
                what,
                member.updated_at,
            )
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

/// Describes how a member has ended.
fn ending(member: &RosterMember) -> String {
    let Some(ended) = &member.exit else {
        return String::new();
    };
    match &ended.note {
        Some(note) => format!("{}; {note}", exit(ended)),
        None => exit(ended),
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

/// Returns the first informative line of a plan, without the marks of a heading or a list.
pub fn headline(plan: &str) -> String {
    let first = plan.lines().map(without_marks).find(|line| {
        let heading = line.trim_end_matches([':', '.']).to_lowercase();
        !heading.is_empty() && !SAYS_NOTHING.contains(&heading.as_str())
    });
    first
        .or_else(|| {
            plan.lines()
                .map(without_marks)
                .find(|line| !line.is_empty())
        })
        .unwrap_or_default()
}

/// Removes the marks of a heading or a list from a line of Markdown, and shortens it.
fn without_marks(line: &str) -> String {
    let text = line
        .trim()
        .trim_start_matches(['#', '>', '-', '*'])
        .trim()
        .trim_matches('*')
        .trim();
    text.replace("**", "").chars().take(HEADLINE).collect()
}

/// Orders names as people do: w2 before w10.
pub fn natural(a: &str, b: &str) -> Ordering {
    fn parts(name: &str) -> Vec<(&str, Option<u64>)> {
        let mut parts = Vec::new();
        let mut rest = name;
        while !rest.is_empty() {
            let text = rest
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(rest.len());
            let number = rest[text..]
                .find(|c: char| !c.is_ascii_digit())
                .map_or(rest.len(), |end| text + end);
            let digits = &rest[text..number];
            // A name that ends here comes before one with a number.
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
