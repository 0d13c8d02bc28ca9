//! The figures of a whole run, as a table in Markdown.

use std::collections::BTreeMap;

use crate::faults::Fault;
use crate::stage::Victim;

/// One kind of run.
pub(crate) type Cell = (&'static str, Victim, Fault);

/// What came of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    pub(crate) points: u64,
    pub(crate) runs: u64,
    pub(crate) missed: u64,
    pub(crate) violations: u64,
}

/// Prints the table: a row for what was run, and the sums of all there is.
pub(crate) fn print(cells: &BTreeMap<Cell, Figures>) {
    println!("\n| scenario | victim | fault | points | runs | not reached | violations |");
    println!("|---|---|---|---:|---:|---:|---:|");
    let mut sum = Figures::default();
    for ((scenario, victim, fault), figures) in cells {
        let Figures {
            points,
            runs,
            missed,
            violations,
        } = figures;
        if *runs > 0 {
            println!(
                "| {scenario} | {} | {} | {points} | {runs} | {missed} | {violations} |",
                victim.name(),
                fault.name()
            );
        }
        sum.points += points;
        sum.runs += runs;
        sum.missed += missed;
        sum.violations += violations;
    }
    println!(
        "| **all** | | | {} | {} | {} | {} |",
        sum.points, sum.runs, sum.missed, sum.violations
    );
}
