//! The diagram as Mermaid, which web pages of repositories draw. Pure.

use teamd_view::model::{RequestStage, Sequence, SequenceEvent, Turning};

/// Draws the diagram.
pub(super) fn draw(sequence: &Sequence) -> String {
    let mut text = "sequenceDiagram\n".to_owned();
    for (number, name) in sequence.lifelines.iter().enumerate() {
        text.push_str(&format!("    participant p{number} as {}\n", quoted(name)));
    }
    let mut active = vec![false; sequence.lifelines.len()];
    for event in &sequence.events {
        let SequenceEvent { from, to, .. } = event;
        let label = quoted(&event.label);
        if from == to {
            text.push_str(&format!("    Note over p{from}: {label}\n"))
        } else {
            text.push_str(&format!("    p{from}{}p{to}: {label}\n", arrow(event)))
        }
        // An incarnation that began earlier has no beginning here.
        match (event.turning, active[*from]) {
            (Some(Turning::Began), false) => text.push_str(&format!("    activate p{from}\n")),
            (Some(Turning::Ended), true) => text.push_str(&format!("    deactivate p{from}\n")),
            _ => continue,
        }
        active[*from] = !active[*from];
    }
    text
}

const fn arrow(event: &SequenceEvent) -> &'static str {
    match event.request {
        Some((_, RequestStage::Rejected | RequestStage::Expired)) => "--x",
        Some((_, RequestStage::Approved)) => "-->>",
        _ => "->>",
    }
}

/// Replaces what Mermaid would act on.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for (at, c) in text.char_indices() {
        // The word `end` ends a block, wherever it is.
        let is_end = text
            .get(at..at + 3)
            .is_some_and(|word| word.eq_ignore_ascii_case("end"));
        if is_end || "#;<>&%:\"`{}".contains(c) {
            quoted.push_str(&format!("#{};", c as u32));
        } else {
            quoted.push(c);
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_model_wrote_is_a_word_of_mermaid() {
        assert_eq!(
            quoted("end; p1->>p0: <b>#x"),
            "#101;nd#59; p1-#62;#62;p0#58; #60;b#62;#35;x"
        );
        let event = |from, to, turning| SequenceEvent {
            at: 1.0,
            from,
            to,
            label: "x".to_owned(),
            line: String::new(),
            text: String::new(),
            request: (from != to).then_some((0, RequestStage::Rejected)),
            turning,
            is_trouble: false,
        };
        let began = Some(Turning::Began);
        let ended = Some(Turning::Ended);
        let events = vec![
            event(0, 0, ended),
            event(1, 1, began),
            event(1, 0, None),
            event(1, 1, ended),
        ];
        let lifelines = vec!["lead".to_owned(), "end".to_owned()];
        let drawn = draw(&Sequence {
            lifelines,
            events,
            earlier: 0,
        });
        insta::assert_snapshot!(drawn, @r"
        sequenceDiagram
            participant p0 as lead
            participant p1 as #101;nd
            Note over p0: x
            Note over p1: x
            activate p1
            p1--xp0: x
            Note over p1: x
            deactivate p1
        ");
    }
}
