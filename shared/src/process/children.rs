//! The descendants of a process, by what the kernel says. Nothing is signalled here.

use std::io;

use super::{is_gone, stat};

/// Returns the children of a process, those of all its threads, ended ones that are not reaped among them:
/// `/proc/PID/task/TID/children` (`proc_pid_task(5)`), or, where the kernel keeps no such list, a look at every process.
///
/// The list can leave some out while another child is reaped, or a thread of the process ends.
///
/// # Errors
/// The system's error: then nothing is known. [`is_gone`] tells that of a process that has ended.
pub fn children_of(process: u32) -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = thread?.path();
        match std::fs::read_to_string(thread.join("children")) {
            Ok(listed) => {
                children.extend(listed.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()))
            }
            Err(error) if !is_gone(&error) => return Err(error),
            Err(error) if error.kind() == io::ErrorKind::NotFound && thread.exists() => {
                return children_by_parent(process);
            }
            // A thread that has ended meanwhile has left its children to another one.
            Err(_) => {}
        }
    }
    Ok(children)
}

/// As [`children_of`], by a look at every process there is: it leaves out no process that exists throughout.
///
/// # Errors
/// The system's error.
pub fn children_by_parent(process: u32) -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        match parent_of(pid) {
            Ok(parent) if parent == process => children.push(pid),
            Ok(_) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(children)
}

/// Returns the parent of a process.
///
/// # Errors
/// The system's error; [`is_gone`] tells that of a process that has ended.
pub fn parent_of(process: u32) -> io::Result<u32> {
    let stat = stat(process)?;
    // The name (field 2) may hold spaces and parentheses: fields count from the last one.
    let parent =
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
    parent.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{process}/stat is not understood"))
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_child_is_found_by_both_looks_until_it_is_reaped() {
        let me = std::process::id();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        assert_eq!(parent_of(pid).unwrap(), me);
        // Threads of other tests may end meanwhile, which can hide the one that has this child.
        let deadline = Instant::now() + Duration::from_secs(30);
        while !children_of(me).unwrap().contains(&pid) {
            assert!(Instant::now() < deadline, "it is in no list");
        }
        assert!(children_by_parent(me).unwrap().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children_of(me).unwrap().contains(&pid) && !children_by_parent(me).unwrap().contains(&pid));
    }

    #[test]
    fn to_list_the_children_of_an_ended_process_is_an_error() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(is_gone(&children_of(child.id()).unwrap_err()));
    }
}
