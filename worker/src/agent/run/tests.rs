//! Whole incarnations: real worker processes, and a double of the daemon at the other end of their
//! connection.

mod crashes;
mod double;
mod incarnations;
mod plans;
mod shutdowns;

use super::*;
use crate::args::{Confinement, JobArgs};

/// The test below, under which the test harness is a worker.
const ENTRY: &str = "agent::run::tests::worker_entry";

/// The argument that tells it so; team directory, name and incarnation follow.
const AS_WORKER: &str = "as-worker";

/// No test by itself: the others start it in the place of `team-worker run`.
#[test]
fn worker_entry() {
    let mut arguments = std::env::args()
        .skip_while(|argument| argument != AS_WORKER)
        .skip(1);
    if let Some(team_dir) = arguments.next() {
        let name = arguments.next().unwrap().parse().unwrap();
        let incarnation = arguments.next().unwrap().parse().unwrap();
        let confinement = Confinement {
            programs: Vec::new(),
            config: None,
            layers: teamd_shared::sandbox::Layers::default(),
            weak: false,
        };
        let job = JobArgs {
            team_dir: team_dir.into(),
            cgroup: None,
            confinement,
        };
        let code = run(&RunArgs {
            name,
            incarnation,
            job,
        });
        assert_eq!(code, ExitCode::SUCCESS);
    }
}
