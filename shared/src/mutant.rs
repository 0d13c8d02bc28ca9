//! Deliberate mistakes, to test the crash test: `scripts/crash-mutants` switches on one at a time,
//! and expects that a scenario detects it. A program that is built without the feature `mutants`,
//! as every release is, has none.

/// Tells whether a mistake is switched on, by the variable `TEAMD_MUTANT`.
pub fn is_on(name: &str) -> bool {
    cfg!(feature = "mutants") && std::env::var("TEAMD_MUTANT").is_ok_and(|mutant| mutant == name)
}
