//! A sequence diagram of what happened: a lifeline for each agent, an arrow for each message, a bar
//! for each incarnation. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use teamd_client::print::escape;
use teamd_client::print::grouping::headline;
use teamd_client::print::render::count;
use teamd_client::print::table::cut;
use teamd_shared::id::RequestId;
use teamd_shared::message::{ALL, LEAD, TEAMD, USER};

use super::steps::{FeedStep, RequestStage, StepSubject, Turning};

/// The most lifelines: the lead and those that take part most. One more is for all others.
pub const LIFELINES: usize = 13;
/// The most events of a picture.
pub const EVENTS: usize = 400;
/// The longest text of an event, in columns.
const LABEL: usize = 60;

/// A diagram.
#[derive(Debug, PartialEq)]
pub struct Sequence {
    /// The names of the lifelines, from the left; escaped.
    pub lifelines: Vec<String>,
    /// Oldest first.
    pub events: Vec<SequenceEvent>,
    /// How many earlier events are left out.
    pub earlier: usize,
}

/// An arrow between two lifelines, or a note on one.
#[derive(Debug, PartialEq)]
pub struct SequenceEvent {
    /// Seconds since 1970.
    pub at: f64,
    /// The number of the lifeline where it begins.
    pub from: usize,
    /// The same: a note.
    pub to: usize,
    /// In one short line, escaped.
    pub label: String,
    /// In one line, as long as it is, escaped.
    pub line: String,
    /// Whole, and not escaped.
    pub text: String,
    /// The number of the request that it is part of, in the order of the diagram, and where that
    /// stands with it.
    pub request: Option<(usize, RequestStage)>,
    /// The end of an incarnation that it is.
    pub turning: Option<Turning>,
    /// Whether something went wrong.
    pub is_trouble: bool,
}

impl Sequence {
    /// Makes the diagram of the last of these steps, with so many lifelines at most.
    pub fn of<'s>(
        steps: impl IntoIterator<Item = &'s FeedStep>,
        (last, most): (usize, usize),
    ) -> Self {
        let steps: Vec<&FeedStep> = steps.into_iter().filter(|step| is_drawn(step)).collect();
        let (earlier, steps) = steps.split_at(steps.len().saturating_sub(last));
        let (lifelines, others) = lifelines(steps, most.clamp(2, LIFELINES));
        let place = |name: &str| {
            lifelines
                .iter()
                .position(|line| line == name)
                .or(others)
                .unwrap_or(0)
        };
        let mut requests: HashMap<&RequestId, usize> = HashMap::new();
        let events = steps.iter().map(|step| {
            let count = requests.len();
            let request = step
                .request
                .as_ref()
                .map(|(id, stage)| (*requests.entry(id).or_insert(count), *stage));
            let from = place(agent(&step.from));
            let to = if step.to.is_empty() || step.to == ALL {
                from
            } else {
                place(agent(&step.to))
            };
            let turning = match step.about {
                StepSubject::Member(turning) => turning,
                _ => None,
            };
            // A lifeline of many does not say whose it is.
            let is_shared = [from, to].map(Some).contains(&others) && !step.to.is_empty();
            let names = if is_shared {
                format!("{} → {}: ", step.from, step.to)
            } else {
                String::new()
            };
            let line = escape::line(&(names + &label(step))).into_owned();
            let label = cut(&line, Some(LABEL));
            let text = step.text.clone();
            let is_trouble = step.is_trouble;
            SequenceEvent {
                at: step.at,
                from,
                to,
                label,
                line,
                text,
                request,
                turning,
                is_trouble,
            }
        });
        let events = events.collect();
        let lifelines = lifelines
            .iter()
            .map(|name| escape::line(name).into_owned())
            .collect();
        Self {
            lifelines,
            events,
            earlier: earlier.len(),
        }
    }
}

impl Sequence {
    /// Returns the incarnations: the lifeline of each, and from which to which event; one that
    /// began earlier has no first event, and one that continues has no last.
    pub fn incarnations(&self) -> Vec<(usize, Option<usize>, Option<usize>)> {
        let mut open: BTreeMap<usize, Option<usize>> = BTreeMap::new();
        let mut all = Vec::new();
        let mut lifelines_before = BTreeSet::new();
        for (row, event) in self.events.iter().enumerate() {
            let is_first = event.turning.is_some() && lifelines_before.insert(event.from);
            match event.turning {
                Some(Turning::Began) => _ = open.entry(event.from).or_insert(Some(row)),
                Some(Turning::Ended) => {
                    let from = open.remove(&event.from).or(is_first.then_some(None));
                    all.extend(from.map(|from| (event.from, from, Some(row))));
                }
                None => {}
            }
        }
        all.extend(
            open.into_iter()
                .map(|(lifeline, from)| (lifeline, from, None)),
        );
        all
    }
}

/// Tells whether a step is in a diagram: what agents do to each other, and when their processes
/// begin and end.
fn is_drawn(step: &FeedStep) -> bool {
    match step.about {
        StepSubject::Team => false,
        StepSubject::Member(turning) => turning.is_some() || step.is_trouble,
        StepSubject::Message | StepSubject::Request | StepSubject::Task => true,
    }
}

/// Returns the owner of the lifeline: a person and the daemon act on that of the lead.
fn agent(name: &str) -> &str {
    if [USER, TEAMD].contains(&name) {
        LEAD
    } else {
        name
    }
}

/// Returns the lifelines, and which of them is for all members without one of their own.
fn lifelines(steps: &[&FeedStep], most: usize) -> (Vec<String>, Option<usize>) {
    let mut first: Vec<&str> = vec![LEAD];
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in steps
        .iter()
        .flat_map(|step| [step.from.as_str(), step.to.as_str()])
        .map(agent)
    {
        if name.is_empty() || name == ALL {
            continue;
        }
        let count = counts.entry(name).or_default();
        if *count == 0 && name != LEAD {
            first.push(name);
        }
        *count += 1;
    }
    // The lifeline of all others would be that of the only other one.
    if first.len() <= most + 1 {
        return (first.into_iter().map(str::to_owned).collect(), None);
    }
    let mut by_count: Vec<&str> = first[1..].to_vec();
    by_count.sort_by_key(|name| std::cmp::Reverse(counts[name]));
    let left_out = by_count.split_off(most - 1);
    first.retain(|name| !left_out.contains(name));
    let others = count(left_out.len(), "other");
    let lifelines = first.into_iter().map(str::to_owned).chain([others]);
    (lifelines.collect(), Some(most))
}

fn label(step: &FeedStep) -> String {
    let text = headline(&step.text);
    let what = match (&step.request, step.about) {
        (Some((id, RequestStage::Asked)), StepSubject::Request) => format!("{} {id}", step.what),
        (Some((id, stage)), StepSubject::Request) => format!("{} {id} {}", step.what, stage.word()),
        _ => step.what.clone(),
    };
    let to_all = if step.to == ALL { "to all: " } else { "" };
    match (what.is_empty(), text.is_empty()) {
        (true, _) => format!("{to_all}{text}"),
        (false, true) => what,
        (false, false) => format!("{what}: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use teamd_shared::name::Name;

    fn said(from: &str, to: &str, text: &str) -> FeedStep {
        let line =
            json!({"type": "message", "from": from, "to": to, "content": text, "timestamp": 1.0});
        FeedStep::of_message(&Name::lead(), line.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn those_that_take_part_most_have_a_lifeline_and_the_others_share_one() {
        let mut steps: Vec<FeedStep> = (0..20)
            .map(|n| said("lead", &format!("w{n}"), "hi"))
            .collect();
        steps.extend((10..20).map(|n| said(&format!("w{n}"), "w0", "hi")));
        let sequence = Sequence::of(&steps, (EVENTS, LIFELINES));
        assert_eq!(sequence.lifelines.len(), LIFELINES + 1);
        assert_eq!(
            (
                sequence.lifelines[0].as_str(),
                sequence.lifelines[13].as_str()
            ),
            ("lead", "8 others")
        );
        let places: Vec<usize> = sequence.events.iter().map(|event| event.to).collect();
        assert_eq!(places[..4], [1, 2, 13, 13]);
        let labels = [&sequence.events[0].label, &sequence.events[2].label];
        assert_eq!(labels, ["hi", "lead → w2: hi"]);
        let few = Sequence::of(&steps[..3], (EVENTS, 3));
        assert_eq!(
            few.lifelines,
            ["lead", "w0", "w1", "w2"],
            "no lane is called `1 others`"
        );
        assert_eq!(
            Sequence::of(&steps, (EVENTS, 2)).lifelines,
            ["lead", "w0", "19 others"]
        );
        let only_last = Sequence::of(
            &vec![said("user", "lead", "x"); EVENTS + 3],
            (EVENTS, LIFELINES),
        );
        assert_eq!((only_last.earlier, only_last.events.len()), (3, EVENTS));
        assert_eq!(
            (only_last.lifelines.len(), only_last.events[0].to),
            (1, 0),
            "a note on the lead"
        );
    }

    #[test]
    fn an_incarnation_begins_and_ends_with_its_process() {
        let turn = |turning, from| SequenceEvent {
            at: 1.0,
            from,
            to: from,
            label: String::new(),
            line: String::new(),
            text: String::new(),
            request: None,
            turning,
            is_trouble: false,
        };
        let began = Some(Turning::Began);
        let ended = Some(Turning::Ended);
        let turns = [
            (ended, 1),
            (began, 2),
            (began, 1),
            (None, 1),
            (ended, 2),
            (ended, 2),
            (began, 2),
        ];
        let events = turns.map(|(turning, from)| turn(turning, from)).into();
        let sequence = Sequence {
            lifelines: Vec::new(),
            events,
            earlier: 0,
        };
        let expected = [
            (1, None, Some(0)),
            (2, Some(1), Some(4)),
            (1, Some(2), None),
            (2, Some(6), None),
        ];
        assert_eq!(sequence.incarnations(), expected);
    }
}
