//! The Python that runs the stubs.

use std::process::Command;
use std::sync::LazyLock;

/// Without the packages of this machine, which no stub needs: to look for them takes most of the
/// time of a start.
pub(crate) const STUB: &str = "'python3', '-S'";

/// Whether it is here. It is tried once, not by each test.
pub(crate) fn is_here() -> bool {
    static HERE: LazyLock<bool> = LazyLock::new(|| {
        let run = Command::new("python3").args(["-S", "-c", ""]).status();
        run.is_ok_and(|status| status.success())
    });
    *HERE
}
