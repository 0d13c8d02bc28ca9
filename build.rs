//! Tells the programs their version: that of the package, and the commit with its date, as
//! `TEAMD_VERSION`.
//!
//! The commit is left out without `git`, and in a source archive, which has no repository.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A repository further up is that of another project.
    let commit = Path::new(".git").exists().then(commit).flatten();
    let commit = commit.map_or_else(String::new, |commit| format!(" ({commit})"));
    println!(
        "cargo::rustc-env=TEAMD_VERSION={}{commit}",
        env!("CARGO_PKG_VERSION")
    );
    start_fast_in_tests();
    unwind_without_library();
}

/// Links the programs of a debug build for a fixed address: the tests start thousands of processes,
/// and to relocate a program takes half of the time of its start. What is released keeps its random
/// address.
fn start_fast_in_tests() {
    let is_debug = std::env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    let is_gnu = std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "gnu");
    if is_debug && is_gnu {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}

/// Links what walks a stack for a backtrace into the programs, where the C compiler has it: to load
/// it as a library takes a tenth of a millisecond of each start, and each confined command starts
/// two of our processes. A linker that does not find it there takes the library.
fn unwind_without_library() {
    let is_gnu = std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "gnu");
    let is_native = std::env::var("HOST").ok() == std::env::var("TARGET").ok();
    if !is_gnu || !is_native {
        return;
    }
    let asked = Command::new("cc")
        .arg("-print-file-name=libgcc_eh.a")
        .output();
    let Ok(answer) = asked else {
        return;
    };
    let file = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    // It answers with the bare name if there is none.
    if let Some(folder) = Path::new(&file).parent().filter(|it| it.is_absolute()) {
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}

/// Returns the commit and its date. The next build asks again if `HEAD` has moved.
fn commit() -> Option<String> {
    // git writes a line to the log of HEAD for each move. HEAD itself names a branch, and stays.
    for file in ["logs/HEAD", "HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        // Cargo runs the script at each build for a file that is missing.
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&[
        "-c",
        "log.showSignature=false",
        "log",
        "-1",
        "--abbrev=7",
        "--format=%h %cs",
    ])
}

/// Returns what git prints, if it succeeds.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
