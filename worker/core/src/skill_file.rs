//! What a `SKILL.md` says of itself, between two lines of three dashes at its beginning. Pure.
//!
//! Any program may have written it, and its name and description are put into what a model is told:
//! so they are one line of visible characters, or the skill does not count.

use teamd_shared::visible::is_hidden;

/// How long a name may be, in bytes.
const MAX_NAME: usize = 64;

/// How much of a description is told, in characters.
const MAX_DESCRIPTION: usize = 250;

/// What a skill says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillHeader {
    /// Its name: letters, digits and `-`.
    pub name: String,
    /// What it is for, on one line.
    pub description: String,
}

impl SkillHeader {
    /// Reads the beginning of a file. `folder`: the name of its folder, which counts where the file
    /// names none.
    ///
    /// # Errors
    /// Why it is no skill. Fits behind "… is no skill: ".
    pub fn read(text: &str, folder: &str) -> Result<Self, String> {
        let fields = HeaderLines::of(text)?;
        let name = fields.get("name").unwrap_or_else(|| folder.to_owned());
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_plain) {
            return Err(format!(
                "its name {name:?} is not made of at most {MAX_NAME} lower-case letters, digits and `-`"
            ));
        }
        let description = fields.get("description").unwrap_or_default();
        if description.is_empty() {
            return Err("it has no description".to_owned());
        }
        if description.chars().any(is_hidden) {
            return Err("its description has characters that nobody sees".to_owned());
        }
        Ok(Self {
            name,
            description: cut(&description),
        })
    }
}

/// Cuts a description where it is too long.
fn cut(description: &str) -> String {
    let mut shown: String = description.chars().take(MAX_DESCRIPTION).collect();
    if shown.len() < description.len() {
        shown.push('…');
    }
    shown
}

/// The lines between the dashes.
struct HeaderLines<'t>(Vec<&'t str>);

impl<'t> HeaderLines<'t> {
    fn of(text: &'t str) -> Result<Self, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut lines = text.lines();
        if lines.next().map(str::trim_end) != Some("---") {
            return Err("it does not begin with `---`, a name and a description".to_owned());
        }
        let mut fields = Vec::new();
        for line in lines {
            if line.trim_end() == "---" {
                return Ok(Self(fields));
            }
            fields.push(line);
        }
        Err("its beginning has no second line `---`, or is too long".to_owned())
    }

    /// Returns a text of the top level on one line: plain, in quotes, or in a block.
    fn get(&self, key: &str) -> Option<String> {
        let is_key = |line: &&str| {
            line.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with(':'))
        };
        let at = self.0.iter().position(is_key)?;
        let first = self.0[at][key.len() + 1..].trim();
        let is_block = first.starts_with('>') || first.starts_with('|');
        let mut words: Vec<&str> = if is_block {
            Vec::new()
        } else {
            first.split_whitespace().collect()
        };
        for line in &self.0[at + 1..] {
            if !line.trim().is_empty() && !line.starts_with([' ', '\t']) {
                break;
            }
            words.extend(line.split_whitespace());
        }
        Some(unquoted(&words.join(" ")))
    }
}

/// Takes the quotes off a text.
fn unquoted(text: &str) -> String {
    for (quote, escaped) in [('"', "\\\""), ('\'', "''")] {
        let inside = text
            .strip_prefix(quote)
            .and_then(|it| it.strip_suffix(quote));
        if let Some(inside) = inside {
            return inside.replace(escaped, &quote.to_string());
        }
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(fields: &str) -> Result<(String, String), String> {
        let header = SkillHeader::read(&format!("---\n{fields}\n---\n# Text\n"), "folder")?;
        Ok((header.name, header.description))
    }

    #[test]
    fn a_name_and_a_description_are_read_however_they_are_written() {
        for (fields, name, description) in [
            (
                "name: pdf\ndescription: Fills forms: all.",
                "pdf",
                "Fills forms: all.",
            ),
            ("description: \"Says \\\"hi\\\"\"", "folder", "Says \"hi\""),
            ("description: 'It''s'\r\nname: 'a-1'\r", "a-1", "It's"),
            (
                "description: >-\n  Two\n  lines\nlicense: MIT",
                "folder",
                "Two lines",
            ),
            (
                "description: Goes\n  on\nmetadata:\n  name: other",
                "folder",
                "Goes on",
            ),
        ] {
            assert_eq!(
                read(fields),
                Ok((name.to_owned(), description.to_owned())),
                "{fields}"
            );
        }
        let long = read(&format!("description: {}", "x".repeat(2000))).unwrap();
        assert_eq!(long.1.chars().count(), MAX_DESCRIPTION + 1);
    }

    #[test]
    fn what_says_nothing_or_hides_something_is_no_skill() {
        for (fields, why) in [
            ("name: x", "no description"),
            ("name: x\ndescription: ''", "no description"),
            ("name: ../x\ndescription: a", "name"),
            ("name: X y\ndescription: a", "name"),
            ("name: x\ndescription: a\u{1b}[2Jb", "nobody sees"),
            ("name: x\ndescription: a\u{202e}b", "nobody sees"),
            ("name: x\u{7}\ndescription: a", "name"),
        ] {
            let error = read(fields).unwrap_err();
            assert!(error.contains(why), "{fields:?}: {error}");
        }
        for text in ["", "# Text", "---\nname: x\ndescription: y"] {
            assert!(SkillHeader::read(text, "x").is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_line_of_visible_characters_or_refused(text in "(---\n)?(name:|description: |\\PC|[\n\r\t\"'>|-]){0,60}(\n---\n)?") {
            if let Ok(header) = SkillHeader::read(&text, "x") {
                prop_assert!(!header.description.chars().any(is_hidden));
                prop_assert!(header.name.len() <= MAX_NAME);
            }
        }
    }
}
