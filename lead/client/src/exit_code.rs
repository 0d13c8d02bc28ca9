//! The exit codes of `teamd` and `teamctl`. Scripts depend on them: a number never changes its
//! meaning.

use teamd_shared::control::RefusalCode;

/// How a program ended. Each error belongs to one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[repr(u8)]
pub enum ExitCode {
    /// 0: done. For a shutdown: the process has exited, however it ended.
    Done = 0,
    /// 1: failed.
    Failed = 1,
    /// 2: the command line or a setting is wrong.
    Usage = 2,
    /// 3: the teammate rejected it.
    Rejected = 3,
    /// 4: no such teammate or request, or an ambiguous prefix.
    NotFound = 4,
    /// 5: timed out.
    TimedOut = 5,
    /// 6: the daemon is not running.
    NotRunning = 6,
    /// 7: conflict: already answered, name taken, not running.
    Conflict = 7,
    /// 130: Ctrl-C while waiting. It ends the waiting, not the request.
    Interrupted = 130,
    /// 143: SIGTERM, after the terminal is given back.
    Terminated = 143,
}

/// For several names the code of the first kind that occurs, in this order. Of the kinds that the
/// specification ranks, 1, 5, 3, 4, 7, 0; the others concern the command as a whole and go before.
const RANKING: [ExitCode; 10] = [
    ExitCode::Terminated,
    ExitCode::Interrupted,
    ExitCode::Usage,
    ExitCode::NotRunning,
    ExitCode::Failed,
    ExitCode::TimedOut,
    ExitCode::Rejected,
    ExitCode::NotFound,
    ExitCode::Conflict,
    ExitCode::Done,
];

impl ExitCode {
    /// Returns the `code` of a JSON error.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the number that the shell sees.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Reads the `code` of a JSON error.
    pub(crate) fn of_str(code: &str) -> Option<Self> {
        RANKING.into_iter().find(|ranked| ranked.as_str() == code)
    }

    /// Returns the highest-ranking of several codes; done if there is none.
    pub fn highest(codes: impl IntoIterator<Item = Self>) -> Self {
        codes
            .into_iter()
            .min_by_key(|code| RANKING.iter().position(|ranked| ranked == code))
            .unwrap_or(Self::Done)
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.number())
    }
}

impl From<RefusalCode> for ExitCode {
    fn from(code: RefusalCode) -> Self {
        match code {
            RefusalCode::Failed | RefusalCode::NotReady => Self::Failed,
            RefusalCode::Usage => Self::Usage,
            RefusalCode::Rejected => Self::Rejected,
            RefusalCode::NotFound => Self::NotFound,
            RefusalCode::Conflict | RefusalCode::Taken => Self::Conflict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ExitCode::{Conflict, Done, Failed, Interrupted, NotFound, Rejected, TimedOut, Usage};

    #[test]
    fn of_several_names_the_highest_ranking_code_counts() {
        assert_eq!(ExitCode::highest([]), Done);
        let ranked = [Failed, TimedOut, Rejected, NotFound, Conflict, Done];
        for (rank, code) in ranked.into_iter().enumerate() {
            let mut reversed = ranked[rank..].to_vec();
            reversed.reverse();
            assert_eq!(ExitCode::highest(reversed), code);
            assert_eq!(ExitCode::highest([code, Interrupted]), Interrupted);
        }
    }

    #[test]
    fn every_code_has_a_rank_a_number_and_a_name_of_its_own() {
        let numbers: Vec<u8> = [
            Done,
            Failed,
            Usage,
            Rejected,
            NotFound,
            TimedOut,
            ExitCode::NotRunning,
            Conflict,
        ]
        .map(ExitCode::number)
        .to_vec();
        assert_eq!(numbers, (0..=7).collect::<Vec<u8>>());
        assert_eq!(Interrupted.number(), 130);
        let mut names = RANKING.map(ExitCode::as_str).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RANKING.len());
    }
}
