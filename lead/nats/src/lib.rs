//! `teamd-nats`: streams of bytes over a NATS cluster, where `ssh` cannot reach. It takes the place of
//! `ssh` on a host (`dial`), and that of `sshd` at home (`serve`), and knows nothing of teams.
//!
//! NATS carries messages, at most once, and remembers none. A stream is made of numbered messages
//! (`packet`); where a number is missing the stream ends, as a connection breaks, and those at its
//! ends begin anew by what they have on disk.

#![cfg(feature = "nats")]

mod carry;
mod cli;
mod dial;
mod end;
mod packet;
mod serve;
mod server;

pub use cli::run;
