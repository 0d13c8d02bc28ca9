//! The memory of the machine: how much of it stays free before another command begins.

use teamd_shared::amount::format_size;
use teamd_shared::environment::Environment;
use teamd_shared::machine::memory::{limited_cgroups, of_cgroup, of_machine, stalled};
use teamd_shared::machine::{AdmissionRules, MachineSettings};
use teamd_shared::user_config::UserConfig;

/// Judges when the commands of a teammate wait for memory that is spawned from here.
pub(super) fn examine(of_team: &MachineSettings, environment: &Environment) -> Option<String> {
    // A mistake in the user's own configuration is told with that.
    let settings = UserConfig::machine_over(environment, *of_team);
    let Some(rules) = settings.admission() else {
        return Some("commands do not wait for it: a setting says so".to_owned());
    };
    Some(describe(&rules))
}

fn describe(rules: &AdmissionRules) -> String {
    let AdmissionRules {
        reserve, memory, ..
    } = rules;
    let machine = of_machine().map(|it| it.total);
    // The smallest cgroup around it is what counts, as a rule.
    let limits = limited_cgroups(None);
    let least = limits
        .iter()
        .filter_map(|it| of_cgroup(it))
        .map(|it| it.total)
        .min();
    let of_what = match (memory, least, machine) {
        (Some(total), ..) => format!("{}, which a setting pretends", format_size(*total)),
        (None, Some(total), _) => format!("{}, the limit of a cgroup", format_size(total)),
        (None, None, Some(total)) => format_size(total),
        (None, None, None) => "a memory that cannot be read here".to_owned(),
    };
    let pressure = match (memory, stalled()) {
        (Some(_), _) => "",
        (None, Some(_)) => ", or processes wait for it (PSI)",
        (None, None) => "; this kernel does not say how long processes wait for it (PSI)",
    };
    format!(
        "commands begin one after the other while less than {reserve} % of {of_what} is free{pressure} (docs/machine.md)"
    )
}
