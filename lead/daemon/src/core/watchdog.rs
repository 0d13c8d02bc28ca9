//! The watchdog of one worker: when it is asked for an answer, and what follows from its silence.
//! Pure.
//!
//! A worker is asked only while it should answer: an idle worker that got nothing is left
//! alone, so an idle team uses no CPU. Silence is counted in looks at an unanswered question, each
//! of which had time to be answered, and not by the clock: a machine that was suspended, or a
//! daemon that was stopped, adds one look and not the hours in between.

use std::time::Duration;

/// How often a worker is examined until its silence counts.
const LOOKS: u32 = 4;

/// What is known of a worker's answers.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct ResponseWatch {
    /// Whether it has said on its connection that it can be asked.
    able: bool,
    /// Whether it has mail, and has said nothing since.
    has_mail: bool,
    /// The number of the last question.
    asked: u64,
    /// The number of the last question that is not open any more.
    closed: u64,
    /// When it is examined next, since the daemon began.
    next: Option<Duration>,
    /// How much silence is counted.
    silence: Duration,
    /// Seconds since 1970, when that began.
    since: f64,
}

/// Why a worker should answer, or need not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Should {
    /// It may be silent as long as it likes.
    Rest,
    /// It has something to do or to react to.
    Answer,
    /// It has no connection, and should make one: it cannot be asked.
    Connect,
}

/// What a look at a worker led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LookResult {
    /// The worker is to be asked, with this number.
    Ask(u64),
    /// It has been silent for the watchdog period, or longer.
    Silent,
}

impl ResponseWatch {
    /// Records that the worker is on another connection: the question on the one before may be
    /// lost.
    pub(crate) fn connected(&mut self) {
        self.able = false;
        self.closed = self.asked;
    }

    /// Records that the worker has sent something.
    pub(crate) fn heard(&mut self) {
        self.has_mail = false;
    }

    /// Records an answer; 0 says that the worker can be asked.
    pub(crate) fn pong(&mut self, number: u64) {
        self.able = true;
        if number > 0 && number == self.asked {
            self.closed = number;
            self.silence = Duration::ZERO;
            self.has_mail = false;
        }
    }

    /// Records that the worker has mail: it reports something before long, or is asked.
    pub(crate) fn mail_arrived(&mut self) {
        self.has_mail = true;
    }

    /// Tells whether it has mail, and has said nothing since.
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail
    }

    /// Returns how much silence is counted.
    pub(crate) fn silence(&self) -> Duration {
        self.silence
    }

    /// Returns when the silence began, in seconds since 1970.
    pub(crate) fn since(&self) -> f64 {
        self.since
    }

    /// Returns when it is examined next, since the daemon began.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.next
    }

    /// Tells whether it was asked, and has not answered.
    pub(crate) fn is_open(&self) -> bool {
        self.asked > self.closed
    }

    /// Arms the next look, as long as the worker should answer.
    pub(crate) fn arm(&mut self, should: Should, now: Duration, patience: Duration) {
        if should == Should::Rest && !self.is_open() {
            self.next = None;
        } else {
            self.next.get_or_insert(now + patience / LOOKS);
        }
    }

    /// Looks at the worker, if that is due.
    pub(crate) fn look(
        &mut self,
        should: Should,
        (now, wall): (Duration, f64),
        patience: Duration,
    ) -> Option<LookResult> {
        if self.next.is_none_or(|next| next > now) {
            return None;
        }
        let step = patience / LOOKS;
        self.next = (should != Should::Rest || self.is_open()).then(|| now + step);
        if self.silence.is_zero() && !self.is_open() {
            self.since = wall;
        }
        if !self.is_open() && should != Should::Connect {
            let ask = should == Should::Answer && self.able;
            self.asked += u64::from(ask);
            return ask.then_some(LookResult::Ask(self.asked));
        }
        self.silence = self.silence.saturating_add(step);
        (self.silence >= patience).then_some(LookResult::Silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Looks again and again, each time that it is due; returns what was found, and when, in
    /// seconds.
    fn looks(watch: &mut ResponseWatch, should: Should, times: usize) -> Vec<(u64, LookResult)> {
        let mut found = Vec::new();
        for _ in 0..times {
            let Some(at) = watch.next() else { break };
            found.extend(
                watch
                    .look(should, (at, 0.0), PATIENCE)
                    .map(|finding| (at.as_secs(), finding)),
            );
        }
        found
    }

    fn working() -> ResponseWatch {
        let mut watch = ResponseWatch::default();
        watch.connected();
        watch.pong(0);
        watch.arm(Should::Answer, Duration::ZERO, PATIENCE);
        watch
    }

    #[test]
    fn a_resting_worker_is_never_looked_at() {
        let mut watch = working();
        watch.arm(Should::Rest, Duration::ZERO, PATIENCE);
        assert_eq!(watch.next(), None);
        assert_eq!(watch.look(Should::Rest, (PATIENCE, 0.0), PATIENCE), None);
    }

    #[test]
    fn silence_is_told_after_the_time_and_ends_after_twice_the_time() {
        let found = looks(&mut working(), Should::Answer, 9);
        let silent = [75, 90, 105, 120, 135].map(|at| (at, LookResult::Silent));
        assert_eq!(
            (found[0], &found[1..]),
            ((15, LookResult::Ask(1)), silent.as_slice())
        );
    }

    #[test]
    fn a_worker_that_answers_is_only_asked_again() {
        let mut watch = working();
        for number in 1..100 {
            assert_eq!(
                looks(&mut watch, Should::Answer, 1)[0].1,
                LookResult::Ask(number)
            );
            watch.pong(number);
        }
        assert_eq!(watch.silence(), Duration::ZERO);
    }

    #[test]
    fn hours_of_suspension_count_as_one_look() {
        let mut watch = working();
        looks(&mut watch, Should::Answer, 1);
        let day = Duration::from_secs(86_400);
        assert_eq!(watch.look(Should::Answer, (day, 0.0), PATIENCE), None);
        assert_eq!(
            (watch.silence(), watch.next()),
            (PATIENCE / 4, Some(day + PATIENCE / 4))
        );
        watch.pong(1);
        assert_eq!(watch.silence(), Duration::ZERO);
    }

    #[test]
    fn an_old_answer_is_no_answer() {
        let mut watch = working();
        looks(&mut watch, Should::Answer, 1);
        watch.pong(1);
        looks(&mut watch, Should::Answer, 2);
        let before = watch.silence();
        watch.pong(1);
        watch.pong(0);
        assert!(before > Duration::ZERO && watch.silence() == before);
    }

    #[test]
    fn a_question_that_was_lost_with_its_connection_is_asked_again_and_the_silence_goes_on() {
        let mut watch = working();
        looks(&mut watch, Should::Answer, 3);
        let before = watch.silence();
        watch.connected();
        assert_eq!(
            looks(&mut watch, Should::Answer, 1),
            [],
            "it has not said yet that it can be asked"
        );
        watch.pong(0);
        assert_eq!(
            looks(&mut watch, Should::Answer, 1)[0].1,
            LookResult::Ask(2)
        );
        assert_eq!(watch.silence(), before);
    }

    #[test]
    fn a_worker_without_a_connection_is_reported_and_not_ended() {
        let mut watch = ResponseWatch::default();
        watch.arm(Should::Connect, Duration::ZERO, PATIENCE);
        let found = looks(&mut watch, Should::Connect, 100);
        assert_eq!(found[0], (60, LookResult::Silent));
        assert!(
            found
                .iter()
                .all(|(_, finding)| *finding == LookResult::Silent),
            "{found:?}"
        );
    }

    #[test]
    fn a_worker_of_an_earlier_version_is_not_asked() {
        let mut watch = ResponseWatch::default();
        watch.connected();
        watch.arm(Should::Answer, Duration::ZERO, PATIENCE);
        assert_eq!(looks(&mut watch, Should::Answer, 50), []);
    }
}
