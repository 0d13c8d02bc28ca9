//! The digits that an answer of a person needs while `approve_code` is set: a program that may type
//! commands does not see them without looking at what is shown to a person.
//!
//! They are in the memory of this process alone: in no file, and in no log. A daemon that starts
//! makes others, and takes none for a minute for what waits already: so a program that tries them
//! wins nothing by starting it again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use teamd_shared::control::{Refusal, RefusalCode};
use teamd_shared::id::RequestId;
use uuid::Uuid;

/// How often a code may be given wrong before another one takes its place.
const TRIES: u32 = 3;

/// How long no code is taken after that, and after the start of a daemon.
const PAUSE: Duration = Duration::from_secs(60);

/// The code of a request.
#[derive(Clone)]
struct Code {
    digits: String,
    wrong: u32,
    /// Until then none is taken.
    closed_until: Option<Instant>,
}

impl Code {
    fn new(closed_until: Option<Instant>) -> Self {
        Self {
            digits: format!("{:04}", Uuid::new_v4().as_u128() % 10_000),
            wrong: 0,
            closed_until,
        }
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Code({} wrong)", self.wrong)
    }
}

/// What came of a code that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Given {
    /// It is right.
    Right,
    /// It is not taken.
    Refused(Refusal),
    /// It was the last wrong one: another code has taken its place.
    Replaced(Refusal),
}

/// The codes of the pending requests, and who has given one.
#[derive(Debug)]
pub(crate) struct ApproveCodes {
    is_on: bool,
    codes: HashMap<RequestId, Code>,
    /// Which request a connection has given the code of.
    given: HashMap<u64, RequestId>,
}

impl ApproveCodes {
    /// Makes those of the requests that wait already. `is_on`: whether an answer needs one.
    pub(crate) fn new(is_on: bool, waiting: impl Iterator<Item = RequestId>, now: Instant) -> Self {
        let codes = waiting.map(|request| (request, Code::new(Some(now + PAUSE))));
        Self {
            is_on,
            codes: codes.collect(),
            given: HashMap::new(),
        }
    }

    /// Tells whether an answer needs one.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns the code of a pending request; none if answers need none.
    pub(crate) fn of(&mut self, request: &RequestId) -> Option<String> {
        self.is_on.then(|| self.code(request).digits.clone())
    }

    fn code(&mut self, request: &RequestId) -> &mut Code {
        self.codes
            .entry(request.clone())
            .or_insert_with(|| Code::new(None))
    }

    /// Takes the code of a pending request from a connection.
    pub(crate) fn give(
        &mut self,
        connection: u64,
        request: &RequestId,
        digits: &str,
        now: Instant,
    ) -> Given {
        if !self.is_on {
            return Given::Right;
        }
        let code = self.code(request);
        let closed_for = code
            .closed_until
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        if !closed_for.is_zero() {
            return Given::Refused(not_yet(request, closed_for));
        }
        if code.digits == digits {
            self.given.insert(connection, request.clone());
            return Given::Right;
        }
        code.wrong += 1;
        let refusal = wrong_code(request);
        if code.wrong < TRIES {
            return Given::Refused(refusal);
        }
        *code = Code::new(Some(now + PAUSE));
        Given::Replaced(refusal)
    }

    /// Tells whether an answer on this connection needs no code, or has given it.
    pub(crate) fn may_answer(&self, connection: u64, request: &RequestId) -> bool {
        !self.is_on || self.given.get(&connection) == Some(request)
    }

    /// Forgets a closed connection.
    pub(crate) fn forget(&mut self, connection: u64) {
        self.given.remove(&connection);
    }

    /// Forgets the codes of what is not pending any more.
    pub(crate) fn retain(&mut self, is_pending: impl Fn(&RequestId) -> bool) {
        self.codes.retain(|request, _| is_pending(request));
    }
}

fn not_yet(request: &RequestId, closed_for: Duration) -> Refusal {
    let message = format!(
        "no code of {request} is taken now: three wrong ones were given, or the daemon was started"
    );
    let seconds = closed_for.as_secs() + 1;
    Refusal::new(RefusalCode::Rejected, message)
        .hint(format!("it has a new one; answer in {seconds} s"))
}

fn wrong_code(request: &RequestId) -> Refusal {
    let message = format!("that is not the code of {request}");
    Refusal::new(RefusalCode::Rejected, message).hint("`teamctl top` and the page show it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> RequestId {
        RequestId::new(text).unwrap()
    }

    /// Returns digits that are not these.
    fn other_than(digits: &str) -> &'static str {
        if digits == "0000" { "1111" } else { "0000" }
    }

    #[test]
    fn an_answer_needs_the_code_of_its_own_request_on_its_own_connection() {
        let now = Instant::now();
        let mut codes = ApproveCodes::new(true, std::iter::empty(), now);
        let one = codes.of(&id("one")).unwrap();
        assert!(one.len() == 4 && one.bytes().all(|byte| byte.is_ascii_digit()));
        assert_eq!(codes.of(&id("one")), Some(one.clone()));
        assert!(!codes.may_answer(7, &id("one")));
        assert_eq!(codes.give(7, &id("one"), &one, now), Given::Right);
        assert!(codes.may_answer(7, &id("one")));
        assert!(!codes.may_answer(7, &id("two")) && !codes.may_answer(8, &id("one")));
        codes.forget(7);
        assert!(!codes.may_answer(7, &id("one")));
        assert!(!format!("{codes:?}").contains(&one));
    }

    #[test]
    fn after_three_wrong_tries_a_new_code_is_taken_a_minute_later() {
        let now = Instant::now();
        let mut codes = ApproveCodes::new(true, std::iter::empty(), now);
        let first = codes.of(&id("one")).unwrap();
        for _ in 1..TRIES {
            let given = codes.give(7, &id("one"), other_than(&first), now);
            assert!(matches!(given, Given::Refused(_)), "{given:?}");
        }
        let given = codes.give(7, &id("one"), other_than(&first), now);
        assert!(matches!(given, Given::Replaced(_)), "{given:?}");
        let second = codes.of(&id("one")).unwrap();
        assert!(matches!(
            codes.give(7, &id("one"), &second, now + PAUSE / 2),
            Given::Refused(_)
        ));
        assert!(!codes.may_answer(7, &id("one")));
        assert_eq!(
            codes.give(7, &id("one"), &second, now + PAUSE),
            Given::Right
        );
        codes.retain(|_| false);
        assert!(codes.codes.is_empty());
    }

    #[test]
    fn a_daemon_that_starts_takes_no_code_for_what_waits_already() {
        let now = Instant::now();
        let mut codes = ApproveCodes::new(true, [id("one")].into_iter(), now);
        let one = codes.of(&id("one")).unwrap();
        let early = now + PAUSE - Duration::from_millis(1500);
        let Given::Refused(refusal) = codes.give(7, &id("one"), &one, early) else {
            panic!("it was taken");
        };
        assert!(
            format!("{refusal:?}").contains("answer in 2 s"),
            "{refusal:?}"
        );
        assert_eq!(codes.give(7, &id("one"), &one, now + PAUSE), Given::Right);
        let two = codes.of(&id("two")).unwrap();
        assert_eq!(codes.give(7, &id("two"), &two, now), Given::Right);
    }

    #[test]
    fn without_the_setting_there_are_no_codes() {
        let mut codes = ApproveCodes::new(false, std::iter::empty(), Instant::now());
        assert_eq!(codes.of(&id("one")), None);
        assert!(codes.may_answer(7, &id("one")));
    }
}
