//! A Gantt chart of a team: what each member and task did when, within a window of time. Pure.

use teamd_shared::name::Name;
use teamd_shared::task::TaskId;

use super::ledger::ConversationLedger;
use super::past::{Life, Past, Stand, TaskPast, TimeSpan};

/// How many parts of a window are distinguished: a shorter time is drawn as one part.
const PARTS: f64 = 1_000.0;
/// How many incarnations of a member are drawn, the last ones.
const LIVES: usize = 200;

/// The time that is shown, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Window {
    pub from: f64,
    pub to: f64,
}

/// What a member did. Later fields are drawn above earlier ones.
#[derive(Debug, PartialEq)]
pub(crate) struct Bars<'p> {
    pub lives: &'p [Life],
    pub working: Vec<TimeSpan>,
    pub(crate) awaiting: Vec<TimeSpan>,
    pub leaving: Vec<TimeSpan>,
}

impl Window {
    fn has(self, (from, to): TimeSpan) -> bool {
        from <= self.to && to.is_none_or(|to| to >= self.from)
    }

    /// Returns what is visible of these: times that cannot be distinguished are merged.
    fn seen(self, mut spans: Vec<TimeSpan>) -> Vec<TimeSpan> {
        let part = (self.to - self.from).max(0.0) / PARTS;
        spans.retain(|span| self.has(*span));
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut seen: Vec<TimeSpan> = Vec::new();
        for (from, to) in spans {
            match seen.last_mut() {
                Some((_, last @ Some(_))) if last.is_some_and(|last| from - last < part) => {
                    *last = to.map(|to| last.unwrap_or(to).max(to));
                }
                // The last one continues.
                Some((_, None)) => {}
                _ => seen.push((from, to)),
            }
        }
        seen
    }
}

impl Past {
    /// Returns what a member did in a window; none if it had no process then.
    pub(crate) fn bars(
        &self,
        name: &Name,
        (ledger, runs): (Option<&ConversationLedger>, bool),
        window: Window,
    ) -> Option<Bars<'_>> {
        let lives = self.lives.get(name)?;
        let first = lives
            .partition_point(|life| life.ended.is_some_and(|(at, _)| at < window.from))
            .max(lives.len().saturating_sub(LIVES));
        let lives = &lives[first..];
        let lives = &lives[..lives.partition_point(|life| life.decided <= window.to)];
        let exits = self.exits(name);
        // Nothing continues after its process has ended.
        let seen = |spans: Vec<TimeSpan>| {
            window.seen(
                spans
                    .into_iter()
                    .map(|(from, to)| {
                        let exit = exits.iter().copied().find(|&exit| exit >= from);
                        (
                            from,
                            [to, exit].into_iter().flatten().min_by(f64::total_cmp),
                        )
                    })
                    .collect(),
            )
        };
        (!lives.is_empty()).then(|| Bars {
            lives,
            working: seen(
                ledger
                    .map(|ledger| ledger.worked(&exits, runs))
                    .unwrap_or_default(),
            ),
            awaiting: seen(self.awaiting(name)),
            leaving: seen(self.leaving(name)),
        })
    }

    /// Returns the tasks on which anything was done in a window, the one that began last first.
    pub(crate) fn tasks_in(&self, window: Window) -> Vec<(TaskId, &TaskPast)> {
        let tasks = self.tasks.iter().filter(|(_, task)| {
            task.spans
                .iter()
                .any(|(stand, span)| *stand != Stand::Pending && window.has(*span))
        });
        let mut tasks: Vec<_> = tasks.map(|(id, task)| (*id, task)).collect();
        tasks.sort_by(|(_, a), (_, b)| began(b).total_cmp(&began(a)));
        tasks
    }
}

/// Returns when the work on a task began.
fn began(task: &TaskPast) -> f64 {
    let mut spans = task.spans.iter();
    let work = spans.find(|(stand, _)| *stand != Stand::Pending);
    work.map_or(0.0, |(_, (from, _))| *from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use teamd_client::testing::{asked, spawned};

    #[test]
    fn what_cannot_be_told_apart_is_one_and_what_is_outside_is_not_there() {
        let window = Window {
            from: 100.0,
            to: 1_100.0,
        };
        let spans = vec![
            (500.5, Some(501.0)),
            (10.0, Some(50.0)),
            (90.0, Some(110.0)),
            (499.0, Some(500.0)),
            (900.0, None),
            (950.0, Some(960.0)),
            (2000.0, None),
        ];
        let seen = window.seen(spans);
        assert_eq!(
            seen,
            [(90.0, Some(110.0)), (499.0, Some(501.0)), (900.0, None)]
        );
        let many: Vec<TimeSpan> = (0..100_000)
            .map(|n| (f64::from(n) / 100.0, Some(f64::from(n) / 100.0)))
            .collect();
        assert_eq!(window.seen(many), [(100.0, Some(999.99))]);
        // A clock that jumped: a span that ends before it begins breaks nothing.
        assert_eq!(
            window.seen(vec![(600.0, Some(200.0))]),
            [(600.0, Some(200.0))]
        );
    }

    #[test]
    fn a_plan_waits_no_longer_than_its_process_lives() {
        let mut past = Past::default();
        let exit = spawned(3, "alice")
            .replace("\"spawned\"", "\"exited\"")
            .replace("running", "crashed");
        let text = spawned(1, "alice")
            + &asked(2, "a1b2c3d4", "plan_approval")
            + &exit.replace("\"at\":1.0", "\"at\":9.0");
        for line in text.lines() {
            past.line(&serde_json::from_str(line).unwrap());
        }
        let alice = Name::new("alice").unwrap();
        let window = Window {
            from: 0.0,
            to: 100.0,
        };
        let bars = past.bars(&alice, (None, false), window).unwrap();
        assert_eq!(
            (bars.lives.len(), bars.awaiting),
            (1, vec![(2.0, Some(9.0))])
        );
        assert_eq!(
            past.bars(
                &alice,
                (None, false),
                Window {
                    from: 10.0,
                    to: 20.0
                }
            ),
            None
        );
        assert_eq!(past.bars(&Name::lead(), (None, false), window), None);
    }
}
