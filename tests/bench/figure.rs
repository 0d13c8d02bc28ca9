//! The rows of the table, and the numbers in them.

use std::fmt;
use std::time::Duration;

/// The head of the table.
pub(crate) const HEAD: &str =
    "| figure | measured | limit, same run | ratio | aim | met |\n|---|---|---|---|---|---|";

/// One row.
#[derive(Debug)]
pub(crate) struct Figure {
    /// What was measured.
    pub(crate) name: String,
    /// What came out.
    pub(crate) measured: String,
    /// What the kernel alone takes; empty where the aim is a number.
    pub(crate) limit: String,
    /// The one through the other.
    pub(crate) ratio: Option<f64>,
    /// What is wanted.
    pub(crate) aim: &'static str,
    /// Whether it is so.
    pub(crate) met: bool,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            measured,
            limit,
            ratio,
            aim,
            met,
        } = self;
        let ratio = ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
        let met = if *met { "yes" } else { "**no**" };
        write!(
            f,
            "| {name} | {measured} | {limit} | {ratio} | {aim} | {met} |"
        )
    }
}

/// Durations of the same thing.
#[derive(Debug, Default)]
pub(crate) struct Sample(Vec<Duration>);

impl Sample {
    pub(crate) fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    /// Returns the duration that this share of all does not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted[(sorted.len() - 1) * percent / 100]
    }

    pub(crate) fn p50(&self) -> Duration {
        self.percentile(50)
    }

    pub(crate) fn p99(&self) -> Duration {
        self.percentile(99)
    }

    /// Returns how often one median holds the other.
    pub(crate) fn ratio(&self, limit: &Self) -> f64 {
        self.p50().as_secs_f64() / limit.p50().as_secs_f64()
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (p90 {})",
            time(self.p50()),
            time(self.percentile(90))
        )
    }
}

/// Writes a time with three digits.
pub(crate) fn time(took: Duration) -> String {
    let micros = took.as_secs_f64() * 1e6;
    match micros {
        0.0..1e3 => format!("{micros:.0} µs"),
        1e3..1e4 => format!("{:.2} ms", micros / 1e3),
        1e4..1e6 => format!("{:.1} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

/// Says where this was measured: without that a number says nothing.
pub(crate) fn machine(quick: bool) -> String {
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let files = file_system(&std::env::temp_dir().canonicalize().unwrap());
    let quick = if quick {
        "; a quick look, a tenth of the samples"
    } else {
        ""
    };
    format!(
        "Linux {kernel}, {cores} cores, files on {files}, load average at the start {load}{quick}"
    )
}

/// The type of the file system of a path: that of the longest mount point above it.
fn file_system(path: &std::path::Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let fields = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let above = fields.filter(|fields| fields.len() > 2 && path.starts_with(fields[1]));
    above
        .max_by_key(|fields| fields[1].len())
        .map_or_else(String::new, |fields| fields[2].to_owned())
}
