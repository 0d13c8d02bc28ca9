//! A start and a verdict with a long journal behind them.

use std::time::{Duration, Instant};

use crate::Effort;
use crate::figure::{Figure, Sample};
use crate::lifecycle::run;
use crate::limit::silent;
use crate::support::Team;

/// What either may take.
const AIM: Duration = Duration::from_millis(20);

/// Measures both with a million lines, and with none, in turns.
pub(crate) fn measure(effort: Effort) -> Vec<Figure> {
    let [short, long] = [0, effort.of(500_000)].map(|plans| {
        let team = Team::started();
        team.teamd(["stop"]).ok();
        team.write_long_journal(u32::try_from(plans.max(1)).unwrap());
        (team, plans * 2)
    });
    let [mut start, mut start_limit, mut verdict, mut verdict_limit] =
        [(); 4].map(|()| Sample::default());
    for _ in 0..effort.of(20).max(5) {
        for ((team, lines), start, verdict) in [
            (&short, &mut start_limit, &mut verdict_limit),
            (&long, &mut start, &mut verdict),
        ] {
            start.add(took(|| {
                let status = silent(&mut team.command(env!("CARGO_BIN_EXE_teamd"), ["start"]))
                    .status()
                    .unwrap();
                assert!(status.success(), "{status}");
            }));
            // The last plan gets the verdict that it has.
            let last = u32::try_from(lines / 2).unwrap().max(1) - 1;
            let verb = if last % 2 == 0 { "approve" } else { "reject" };
            verdict.add(took(|| run(team, &[verb, &format!("{last:08x}")])));
            team.teamd(["stop"]).ok();
        }
    }
    let row = |name: &str, sample: &Sample, limit: &Sample| Figure {
        name: format!("{name}, {} journal lines behind, p50", long.1),
        measured: sample.to_string(),
        limit: format!("a new journal: {limit}"),
        ratio: Some(sample.ratio(limit)),
        aim: "≤ 20 ms",
        met: sample.p50() <= AIM,
    };
    vec![
        row("`teamd start`", &start, &start_limit),
        row("`teamctl approve` (repeated)", &verdict, &verdict_limit),
    ]
}

fn took(what: impl FnOnce()) -> Duration {
    let began = Instant::now();
    what();
    began.elapsed()
}
