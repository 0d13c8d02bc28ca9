//! What the programs cost, each figure beside a limit that is measured in the same run: what the
//! kernel takes for the same work without us. `scripts/bench` runs it, `docs/performance.md`
//! explains it.
//!
//! Nothing fails because a machine is slow: a figure that misses its aim is a row that says so.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a harness: it stops where it cannot measure"
)]

mod agents;
mod crowd;
#[path = "../support/far.rs"]
mod far;
mod figure;
mod hand;
mod hosts;
mod idle;
mod journal;
mod latency;
mod lifecycle;
mod limit;
mod machine;
mod many;
mod peer;
mod sandbox;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "the end-to-end tests use the rest")]
mod support;
mod tasks;
mod views;
mod work;
mod writers;

use std::process::ExitCode;

use figure::Figure;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// A look instead of a measurement.
    pub(crate) quick: bool,
}

impl Effort {
    /// Chooses between the full number and a tenth of it.
    pub(crate) fn of(self, full: usize) -> usize {
        if self.quick { full.div_ceil(10) } else { full }
    }
}

/// A group of figures that are measured together, under the name that a filter selects.
type Group = (&'static str, fn(Effort) -> Vec<Figure>);

const GROUPS: [Group; 17] = [
    ("latency", latency::measure),
    ("lifecycle", lifecycle::measure),
    ("writers", writers::measure),
    ("journal", journal::measure),
    ("sandbox", sandbox::measure),
    ("memory", idle::memory),
    ("cpu", idle::cpu),
    ("crowd", crowd::measure),
    ("many", many::measure),
    ("tasks", tasks::measure),
    ("work", work::measure),
    ("views", views::measure),
    ("agents", agents::measure),
    ("machine", machine::measure),
    ("hosts-mail", hosts::mail),
    ("hosts-ssh", hosts::over_ssh),
    ("hosts-crowd", hosts::crowd),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some((peer::FLAG, rest)) = args
        .split_first()
        .map(|(first, rest)| (first.as_str(), rest))
    {
        return peer::run(rest);
    }
    let mut quick = false;
    let mut filters = Vec::new();
    for arg in args {
        match arg.as_str() {
            "--quick" => quick = true,
            // What `cargo bench` adds for every bench target.
            "--bench" => {}
            name if GROUPS.iter().any(|(group, _)| group.contains(name)) => filters.push(arg),
            _ => {
                let names = GROUPS.map(|(group, _)| group).join(", ");
                println!(
                    "usage: scripts/bench [--quick] [NAME]…, a NAME being a part of one of: {names}"
                );
                return ExitCode::from(2);
            }
        }
    }
    println!("{}\n\n{}", figure::machine(quick), figure::HEAD);
    let wanted = |group: &str| {
        filters.is_empty() || filters.iter().any(|filter| group.contains(filter.as_str()))
    };
    for (_, measure) in GROUPS.iter().filter(|(group, _)| wanted(group)) {
        for figure in measure(Effort { quick }).iter() {
            println!("{figure}");
        }
    }
    ExitCode::SUCCESS
}
