//! How much a member may do to its team in one piece of work, pure. A model has said enough long
//! before; what is not a model, or does not stop, would fill the disk of the team and the
//! conversations of the others.

/// How much the calls of a piece of work may hold, in bytes.
const MOST: usize = 4 << 20;

/// What a call counts at least: it makes lines in the journal and in inboxes, however short it is.
const LEAST: usize = 4 << 10;

/// What the calls of a piece of work have held.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allowance {
    used: usize,
}

impl Allowance {
    /// Counts a call that holds so many bytes, for each of so many receivers.
    ///
    /// # Errors
    /// That it is too much: a text for the model. Then it is not counted.
    pub fn spend(&mut self, bytes: usize, receivers: usize) -> Result<(), String> {
        let more = bytes.max(LEAST).saturating_mul(receivers.max(1));
        let used = self.used.saturating_add(more);
        if used > MOST {
            return Err(format!(
                "refused: what you tell and ask your team in one piece of work may hold {} MiB, and each call counts as {} KiB at least; end your turn, and \
                 write the rest to a file",
                MOST >> 20,
                LEAST >> 10
            ));
        }
        self.used = used;
        Ok(())
    }

    /// Begins another piece of work.
    pub fn renew(&mut self) {
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_short_calls_and_a_few_long_ones_are_too_much() {
        for (bytes, receivers, most) in [
            (10, 1, 1024),
            (1 << 20, 1, 4),
            (1 << 20, 3, 1),
            (10, 100, 10),
            (5 << 20, 1, 0),
        ] {
            let mut allowance = Allowance::default();
            let calls = (0..2000)
                .take_while(|_| allowance.spend(bytes, receivers).is_ok())
                .count();
            assert_eq!(calls, most, "{bytes} {receivers}");
            assert!(
                allowance
                    .spend(bytes, receivers)
                    .unwrap_err()
                    .starts_with("refused: ")
            );
            allowance.renew();
            assert_eq!(allowance.spend(bytes, receivers).is_ok(), most > 0);
        }
    }
}
