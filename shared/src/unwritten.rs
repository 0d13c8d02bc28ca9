//! What a person can do if a file cannot be written.

/// The system's errors, and the next step for each.
const STEPS: [(&[&str], &str); 5] = [
    (
        &["No space left on device", "uota exceeded"],
        "free space on the disk",
    ),
    (
        &["Read-only file system"],
        "make that file system writable (`mount`, `dmesg` say why it is not)",
    ),
    (
        &["Permission denied", "Operation not permitted"],
        "let this user write there (`ls -l`, `lsattr`)",
    ),
    (
        &["No such file or directory", "Stale file handle"],
        "put that directory back",
    ),
    (&["Input/output error"], "look at the disk (`dmesg`)"),
];

/// Returns the next step after an error of the system, by its text. Fits before ": then it
/// continues".
pub fn next_step(why: &str) -> &'static str {
    let step = STEPS
        .iter()
        .find(|(texts, _)| texts.iter().any(|text| why.contains(text)));
    step.map_or("fix that", |(_, next)| next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_named_only_where_there_is_none() {
        let of = |number: i32| next_step(&std::io::Error::from_raw_os_error(number).to_string());
        use rustix::io::Errno;
        for full in [Errno::NOSPC, Errno::DQUOT] {
            assert_eq!(of(full.raw_os_error()), "free space on the disk");
        }
        assert!(of(Errno::ACCESS.raw_os_error()).starts_with("let this user write there"));
        assert!(of(Errno::ROFS.raw_os_error()).contains("writable"));
        assert_eq!(of(Errno::NFILE.raw_os_error()), "fix that");
    }
}
