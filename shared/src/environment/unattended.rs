//! What tells programs that no person is there: one that would open an editor, a pager or a prompt
//! ends at once, and says why. What the user has set for a terminal does not hold for commands of a
//! team, unless `[sandbox] env` names it.

use super::Environment;

/// Says what to do without an editor.
const NO_EDITOR: &str = "sh -c 'echo \"no editor here: give the text on the command line (git commit -m TEXT), or set \
    GIT_EDITOR=true to keep it as it is\" >&2; exit 1'";

/// Variables that always have this value.
const SET: &[(&str, &str)] = &[
    ("EDITOR", NO_EDITOR),
    ("VISUAL", NO_EDITOR),
    ("GIT_EDITOR", NO_EDITOR),
    ("GIT_SEQUENCE_EDITOR", NO_EDITOR),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    // With an empty program git asks none, not even that of its settings or of ssh.
    ("GIT_ASKPASS", ""),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("GCM_INTERACTIVE", "never"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("PIP_NO_INPUT", "1"),
];

/// The terminal of the person: a program that finds it here (such as a pinentry) would ask there.
const UNSET: &[&str] = &["GPG_TTY", "SSH_ASKPASS", "SUDO_ASKPASS"];

impl Environment {
    /// Sets what tells programs that no person is there, but for the variables that are `named`.
    pub fn tell_unattended(&mut self, named: &[String]) {
        // An editor of one program (`KUBE_EDITOR`) counts more than that of all.
        let own: Vec<String> = self
            .variables()
            .filter_map(|(name, _)| name.into_string().ok())
            .collect();
        for name in own.iter().filter(|name| !named.contains(name)) {
            if name.ends_with("EDITOR") {
                self.set(name, NO_EDITOR);
            } else if name.ends_with("PAGER") {
                self.set(name, "cat");
            }
        }
        for (name, value) in SET.iter().filter(|(name, _)| !is_among(name, named)) {
            self.set(name, value);
        }
        for name in UNSET.iter().filter(|name| !is_among(name, named)) {
            self.unset(name);
        }
    }
}

fn is_among(name: &str, names: &[String]) -> bool {
    names.iter().any(|other| other == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_program_of_a_person_is_asked_unless_it_is_named() {
        let given = [
            ("EDITOR", "vim"),
            ("KUBE_EDITOR", "code -w"),
            ("GH_PAGER", "less"),
            ("GPG_TTY", "/dev/pts/1"),
        ];
        let variables = given
            .map(|(name, value)| (name.into(), value.into()))
            .to_vec();
        let mut environment = Environment {
            variables,
            ..Environment::default()
        };
        let mut named = environment.clone();
        environment.tell_unattended(&[]);
        for name in [
            "EDITOR",
            "VISUAL",
            "GIT_EDITOR",
            "GIT_SEQUENCE_EDITOR",
            "KUBE_EDITOR",
        ] {
            assert!(
                environment.value(name).unwrap().contains("no editor here"),
                "{name}"
            );
        }
        assert_eq!(environment.value("GH_PAGER").as_deref(), Some("cat"));
        assert_eq!(environment.value("GPG_TTY"), None);
        named.tell_unattended(&["EDITOR".to_owned(), "GPG_TTY".to_owned()]);
        assert_eq!(named.value("EDITOR").as_deref(), Some("vim"));
        assert_eq!(named.value("GPG_TTY").as_deref(), Some("/dev/pts/1"));
        assert!(named.value("VISUAL").unwrap().contains("no editor here"));
    }
}
