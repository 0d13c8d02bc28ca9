//! Writes the manual pages of the programs into a directory:
//! `cargo run --example man-pages -- DIR`. `scripts/dist` runs it.

use std::io::{Error, Result};

fn main() -> Result<()> {
    let directory = std::env::args_os()
        .nth(1)
        .ok_or_else(|| Error::other("usage: man-pages DIR"))?;
    let [teamd, teamctl] = teamd_lead::command_lines();
    for program in [teamd, teamctl, teamd_worker::command_line()] {
        clap_mangen::generate_to(program, &directory)?;
    }
    Ok(())
}
