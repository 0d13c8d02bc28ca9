//! Which of the points are tried, and in which order.

use crate::faults::Fault;
use crate::options::Options;
use crate::plan::Job;
use crate::tracer::{Point, Seen};

/// Chooses the points: all of them, or a sample, which goes on until enough were tried or the time
/// is over.
pub(crate) fn choose(seen: &[(Job, Seen)], options: &Options) -> Vec<Job> {
    let mut random = Random(options.seed);
    let mut chosen: Vec<(f64, Job)> = Vec::new();
    for (job, seen) in seen {
        for (&fault, &count) in &seen.counts {
            if !options.faults.is_empty() && !options.faults.contains(&fault) {
                continue;
            }
            let (first, last) = options.points.unwrap_or((1, count));
            let only_visible = matches!(fault, Fault::Kill | Fault::Both)
                && (options.visible || options.is_sample());
            let points: Vec<u64> = (first..=last)
                .filter(|at| !only_visible || seen.visible.contains(at))
                .collect();
            let order = if options.is_sample() {
                shuffled(points.len(), &mut random)
            } else {
                (0..points.len()).collect()
            };
            let offset = random.below(options.every);
            for (turn, index) in order.into_iter().enumerate() {
                if !(index as u64 + offset).is_multiple_of(options.every) {
                    continue;
                }
                let place = if options.is_sample() {
                    (turn as f64 + random.fraction()) / weight(fault)
                } else {
                    0.0
                };
                chosen.push((
                    place,
                    Job {
                        point: Some(Point {
                            fault,
                            at: points[index],
                        }),
                        ..*job
                    },
                ));
            }
        }
    }
    chosen.sort_by(|one, other| one.0.total_cmp(&other.0));
    chosen.truncate(options.runs.unwrap_or(usize::MAX));
    chosen.into_iter().map(|(_, job)| job).collect()
}

/// How much sooner a sample comes to a fault.
fn weight(fault: Fault) -> f64 {
    match fault {
        Fault::Kill => 5.0,
        Fault::Unsynced | Fault::Tear => 2.0,
        _ => 1.0,
    }
}

/// A random order of the indices.
fn shuffled(count: usize, random: &mut Random) -> Vec<usize> {
    let mut keyed: Vec<(u64, usize)> = (0..count).map(|index| (random.next(), index)).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, index)| index).collect()
}

/// `SplitMix64`: any seed will do.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
