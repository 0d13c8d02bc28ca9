//! The hosts as a table that fits the terminal.

use teamd_client::print::clock;
use teamd_client::print::table::{Cell, Table, room};
use teamd_shared::amount::format_size;
use teamd_shared::clock::wall;
use teamd_shared::host::{HostStatus, HostVitals, LinkState};

const TITLES: [&str; 9] = [
    "NAME",
    "LINK",
    "STATE",
    "TEAMMATES",
    "LOAD",
    "MEMORY",
    "VERSION",
    "SINCE",
    "",
];

/// In which order columns are left out where there is no room.
const LEFT_OUT: [&str; 6] = ["VERSION", "SINCE", "LINK", "TEAMMATES", "LOAD", "MEMORY"];

/// The least that is left for what is wrong with a link, in columns, before another column is left
/// out.
const WHY: usize = 28;

/// Lays the hosts out for a terminal of so many columns; without a terminal nothing is left out.
pub(super) fn fitting(hosts: &[HostStatus], terminal: Option<usize>) -> Table {
    let mut all = Table::new(&TITLES);
    for status in hosts {
        all.row(cells(status));
    }
    let Some(terminal) = terminal else {
        return all;
    };
    let widths = all.widths();
    let wanted = widths.last().map_or(1, |why| (*why).clamp(1, WHY));
    let mut columns: Vec<usize> = (0..TITLES.len()).collect();
    for left_out in LEFT_OUT {
        let taken: Vec<usize> = columns.iter().map(|column| widths[*column]).collect();
        if room(&taken, terminal) >= wanted {
            break;
        }
        columns.retain(|column| TITLES[*column] != left_out);
    }
    all.only(&columns)
}

fn cells(status: &HostStatus) -> Vec<Cell> {
    let (state, why) = match &status.link {
        LinkState::Up => ("connected", String::new()),
        LinkState::Unreachable { why } => ("unreachable", why.clone()),
        LinkState::NeedsAttention { why, hint } => ("needs you", format!("{why}: {hint}")),
    };
    let since = clock::span((wall() - status.since).max(0.0));
    let vitals = status.vitals.as_ref();
    vec![
        Cell::new(status.host.name.as_str()),
        Cell::new(status.host.way.to_string()),
        Cell::new(state),
        Cell::new(status.teammates.to_string()),
        Cell::new(vitals.map_or_else(|| "-".to_owned(), load)),
        Cell::new(vitals.map_or_else(|| "-".to_owned(), memory)),
        Cell::new(status.version.as_deref().unwrap_or("-")),
        Cell::new(since),
        Cell::new(why).wrapping(),
    ]
}

/// Shows how many processes want a processor, and how many there are.
fn load(vitals: &HostVitals) -> String {
    format!("{:.1} of {}", vitals.load, vitals.processors)
}

/// Shows how much memory can be had, and whether processes wait for it.
fn memory(vitals: &HostVitals) -> String {
    let available = format_size(vitals.memory_available);
    let all = format_size(vitals.memory);
    match vitals.memory_stalled {
        Some(share) if share >= 1.0 => format!("{available} of {all}, {share:.0}% stalled"),
        _ => format!("{available} of {all}"),
    }
}
