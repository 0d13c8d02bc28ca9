//! Whether the lead agent that runs is the one that a command asks for, and what becomes of the difference. Pure.
//!
//! Nothing that was asked for is passed over without a word. One that waits and could not go on is begun again with
//! what is set now; one that works, or could, is not ended by talking to it.

use teamd_shared::config::RosterMember;
use teamd_shared::member::Status;
use teamd_shared::model_spec::ModelSpec;

use super::party::Begin;
use crate::error::CommandError;
use crate::exit_code::ExitCode;

/// What becomes of it.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// There is none that matters.
    Agrees,
    /// It is told.
    Tell {
        /// What there is.
        note: String,
        /// What to do about it.
        hint: String,
    },
    /// The agent is begun again.
    Anew {
        /// What it could not do, and with what it is begun again.
        note: String,
    },
}

/// What is asked for by the command, and what is set where it was given.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    /// How the agent is begun where it does not run.
    pub(super) begin: &'a Begin,
    /// The model that `begin` names.
    pub(super) model: Option<ModelSpec>,
    /// The model that it would have if nothing named one.
    pub(super) usual: Option<ModelSpec>,
    /// The variables of its service that were otherwise where it was started.
    pub(super) differing: Vec<String>,
}

/// Decides it.
///
/// # Errors
/// [`ExitCode::Conflict`] for what only another life can have.
pub(super) fn judge(member: &RosterMember, asked: &Asked<'_>) -> Result<Verdict, CommandError> {
    let name = &member.name;
    let model = asked.model.as_ref().filter(|model| !is_of(member, model));
    let workspace = asked.begin.workspace.as_ref().filter(|named| **named != member.workspace);
    let failed = member.activity.strip_prefix("failed: ").filter(|_| member.status == Status::Idle);
    let only_service = workspace.is_none() && !asked.begin.fresh;
    let anew = || format!("`teamctl shutdown {name}`, then the same command");
    let refused = |what: String, hint: String| Err(CommandError::new(ExitCode::Conflict, what).hint(hint));
    match (failed, model, workspace) {
        (Some(failed), model, _) if only_service && (model.is_some() || !asked.differing.is_empty()) => {
            let with = model.map_or_else(|| with(&asked.differing), |model| format!("the model {model}"));
            Ok(Verdict::Anew {
                note: format!("{name} could not go on: {failed}; it is begun again with {with}"),
            })
        }
        (_, Some(model), _) => refused(
            format!(
                "{name} runs already, with the model {}: --model {model} would change nothing",
                member.model
            ),
            format!("{} goes on with its conversation; without --model you talk to it as it is", anew()),
        ),
        (_, _, Some(named)) => refused(
            format!("{name} runs already, in {}: --workspace {named} would change nothing", member.workspace),
            format!("{} goes on with its conversation there", anew()),
        ),
        _ if asked.begin.fresh => refused(
            format!("{name} runs already: --fresh would begin no new conversation"),
            format!("{} does; without --fresh its conversation goes on", anew()),
        ),
        _ if !asked.differing.is_empty() => Ok(Verdict::Tell {
            note: format!("{name} was not started with {}", with(&asked.differing)),
            hint: format!("{} goes on with what is set here", anew()),
        }),
        _ => Ok(scripted(member, asked)),
    }
}

/// Tells whether a member has the model that is named; of one provider without a model, any.
fn is_of(member: &RosterMember, model: &ModelSpec) -> bool {
    let has = member.model.parse::<ModelSpec>().ok();
    has.is_some_and(|has| has == *model || model.model.is_none() && has.provider == model.provider)
}

fn with(variables: &[String]) -> String {
    format!("the {} that is set here", variables.join(" and the "))
}

/// The built-in model is what one gets who has no key yet.
fn scripted(member: &RosterMember, asked: &Asked<'_>) -> Verdict {
    let name = &member.name;
    let usual = asked.usual.as_ref().filter(|usual| **usual != ModelSpec::script());
    match usual.filter(|_| member.model == "script" && asked.model.is_none()) {
        Some(usual) => Verdict::Tell {
            note: format!("{name} runs the built-in `script` model, though what is set here names {usual}"),
            hint: format!("`teamctl shutdown {name}`, then `teamctl chat --model {usual}` goes on with that"),
        },
        None => Verdict::Agrees,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lead(status: &str, activity: &str, model: &str) -> RosterMember {
        let member = json!({"name": "lead", "status": status, "gate": "open", "model": model,
            "workspace": "/w", "activity": activity});
        serde_json::from_value(member).unwrap()
    }

    fn judged(member: &RosterMember, begin: &Begin, differing: &[&str]) -> Result<Verdict, CommandError> {
        let model = begin.model.as_ref().map(|model| model.parse().unwrap());
        let usual = Some("anthropic".parse().unwrap());
        let differing = differing.iter().map(|name| (*name).to_owned()).collect();
        judge(member, &Asked { begin, model, usual, differing })
    }

    fn model(name: &str) -> Begin {
        Begin { model: Some(name.to_owned()), ..Begin::default() }
    }

    #[test]
    fn what_is_as_it_was_asked_for_is_not_spoken_of() {
        let lead = lead("idle", "", "anthropic:m1");
        for begin in [
            Begin::default(),
            model("anthropic:m1"),
            model("anthropic"),
            Begin { workspace: Some("/w".to_owned()), ..Begin::default() },
        ] {
            assert_eq!(judged(&lead, &begin, &[]), Ok(Verdict::Agrees), "{begin:?}");
        }
    }

    #[test]
    fn what_only_another_life_can_have_is_refused() {
        let fresh = Begin { fresh: true, ..Begin::default() };
        let elsewhere = Begin { workspace: Some("/x".to_owned()), ..Begin::default() };
        for status in ["idle", "working"] {
            let lead = lead(status, "", "anthropic:m1");
            for begin in [model("anthropic:m2"), model("openai"), fresh.clone(), elsewhere.clone()] {
                let error = judged(&lead, &begin, &["TEAM_CA"]).unwrap_err();
                assert_eq!(error.code(), ExitCode::Conflict);
                assert!(error.next_step().unwrap().contains("`teamctl shutdown lead`, then"), "{error:?}");
            }
        }
        let failed = lead("idle", "failed: wrong key", "anthropic:m1");
        assert!(judged(&failed, &fresh, &["TEAM_CA"]).is_err(), "a conversation is not ended by the way");
    }

    #[test]
    fn one_that_failed_and_waits_is_begun_again_with_what_is_set_now() {
        let failed = lead("idle", "failed: anthropic refuses the key", "anthropic:m1");
        for (begin, differing, with) in [
            (Begin::default(), &["ANTHROPIC_API_KEY"][..], "the ANTHROPIC_API_KEY that is set here"),
            (model("openai:m2"), &[], "the model openai:m2"),
        ] {
            let Ok(Verdict::Anew { note }) = judged(&failed, &begin, differing) else { panic!() };
            assert!(note.contains("refuses the key") && note.ends_with(with), "{note}");
        }
        assert_eq!(judged(&failed, &Begin::default(), &[]), Ok(Verdict::Agrees), "the same would fail again");
        let works = lead("working", "thinking", "anthropic:m1");
        let Ok(Verdict::Tell { note, .. }) = judged(&works, &Begin::default(), &["TEAM_CA", "HTTP_PROXY"])
        else {
            panic!()
        };
        assert_eq!(note, "lead was not started with the TEAM_CA and the HTTP_PROXY that is set here");
    }

    #[test]
    fn a_key_that_the_built_in_model_does_not_use_is_told() {
        let scripted = lead("idle", "", "script");
        assert!(matches!(judged(&scripted, &Begin::default(), &[]), Ok(Verdict::Tell { .. })));
        assert_eq!(judged(&scripted, &model("script"), &[]), Ok(Verdict::Agrees));
    }
}
