//! The descendants of a process, as the kernel lists them. Nothing is signalled here.

use std::io;

use super::{Stat, is_gone};

/// Returns the children of a process, those of all its threads, including ended ones that are not
/// reaped: `/proc/PID/task/TID/children` (`proc_pid_task(5)`), or, where the kernel keeps no such
/// list, a look at every process.
///
/// The list can leave some out while another child is reaped, or a thread of the process ends.
///
/// # Errors
/// The system's error: then nothing is known. [`is_gone`] recognizes that of a process that has
/// ended.
pub fn children_of(process: u32) -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = thread?.path();
        match std::fs::read_to_string(thread.join("children")) {
            Ok(listed) => children.extend(
                listed
                    .split_ascii_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            ),
            Err(error) if !is_gone(&error) => return Err(error),
            Err(error) if error.kind() == io::ErrorKind::NotFound && thread.exists() => {
                return children_by_parent(process);
            }
            // The children of a thread that has ended meanwhile belong to another one.
            Err(_) => {}
        }
    }
    Ok(children)
}

/// As [`children_of`], by a look at every process there is: it leaves out no process that exists
/// throughout.
///
/// # Errors
/// The system's error.
pub fn children_by_parent(process: u32) -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        match Stat::of(pid) {
            Ok(stat) if stat.parent == process => children.push(pid),
            Ok(_) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(children)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_child_is_found_by_both_looks_until_it_is_reaped() {
        let me = std::process::id();
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let pid = child.id();
        assert_eq!(Stat::of(pid).unwrap().parent, me);
        // Threads of other tests may end meanwhile, which can hide the one that has this child.
        let deadline = Instant::now() + Duration::from_secs(30);
        while !children_of(me).unwrap().contains(&pid) {
            assert!(Instant::now() < deadline, "it is in no list");
        }
        assert!(children_by_parent(me).unwrap().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            !children_of(me).unwrap().contains(&pid)
                && !children_by_parent(me).unwrap().contains(&pid)
        );
    }

    #[test]
    fn to_list_the_children_of_an_ended_process_is_an_error() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(is_gone(&children_of(child.id()).unwrap_err()));
    }
}
