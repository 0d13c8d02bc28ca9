//! Suggests what a person may have meant by an unknown word. Pure.

/// How many names are listed.
const MOST: usize = 12;

/// Returns the known word that is most like another one, if any is like it at all.
pub fn nearest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.map(|word| (distance(word, unknown), word)).min();
    near.filter(|(distance, word)| *distance <= word.len().div_ceil(3))
        .map(|(_, word)| word)
}

/// Explains that a teammate is not on the roster, and what to do: which name may be meant, and
/// which names there are. The daemon, `teamctl` and the chat use the same words.
pub fn unknown_teammate<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> (String, String) {
    let wrong = format!("there is no teammate named {name}");
    let hint = match known.clone().next() {
        None => "no teammate was spawned yet: `teamctl spawn NAME`".to_owned(),
        Some(_) => among(name, "the team has", known),
    };
    (wrong, hint)
}

/// Suggests one of the known names, and lists them behind `there_are`.
pub fn among<'a>(
    name: &str,
    there_are: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    let total = known.clone().count();
    let meant = nearest(name, known.clone())
        .map(|name| format!("did you mean {name}? "))
        .unwrap_or_default();
    let listed = known.take(MOST).collect::<Vec<_>>().join(", ");
    let more = match total.saturating_sub(MOST) {
        0 => String::new(),
        more => format!(" and {more} more (`teamctl status`)"),
    };
    format!("{meant}{there_are} {listed}{more}")
}

/// How many letters are to be added, taken out or changed (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.chars().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_leads_to_the_one_that_is_meant() {
        let hint = |name: &str, known: &[&str]| unknown_teammate(name, known.iter().copied()).1;
        assert_eq!(
            hint("alcie", &["alice", "bob"]),
            "did you mean alice? the team has alice, bob"
        );
        assert_eq!(hint("zoe", &["alice", "bob"]), "the team has alice, bob");
        assert_eq!(
            hint("zoe", &[]),
            "no teammate was spawned yet: `teamctl spawn NAME`"
        );
        let many: Vec<String> = (0..300).map(|n| format!("w{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(hint("zoe", &many).ends_with("w10, w11 and 288 more (`teamctl status`)"));
    }
}
