//! `teamctl shutdown --all` of a hundred teammates.

use std::time::Duration;

use crate::Effort;
use crate::figure::{Figure, time};
use crate::idle::{end, team_of};
use crate::lifecycle::{once, run};

const CROWD: usize = 100;
const AIM: Duration = Duration::from_secs(2);

/// Measures it, once.
pub(crate) fn measure(_: Effort) -> Vec<Figure> {
    let team = team_of(CROWD);
    let (took, measured) = once(|| run(&team, &["shutdown", "--all"]));
    end(&team);
    vec![Figure {
        name: format!("`teamctl shutdown --all` of {CROWD} teammates"),
        measured: format!("{measured}, {} each", time(took / 100)),
        limit: String::new(),
        ratio: None,
        aim: "≤ 2 s here",
        met: took <= AIM,
    }]
}
