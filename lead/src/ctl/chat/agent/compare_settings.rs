//! Compares the lead agent that runs with the options and settings of a `teamctl chat`. Pure.
//!
//! No option is ignored in silence. A lead agent that waits after a failure is started again with the current settings; one
//! that works, or could work, is not ended by a chat.

use teamd_shared::config::RosterMember;
use teamd_shared::member::MemberStatus;
use teamd_shared::model_spec::ModelSpec;

use super::target::LeadOptions;
use crate::error::CommandError;
use crate::exit_code::ExitCode;

/// A difference of which the person is told.
#[derive(Debug, PartialEq)]
pub(super) struct Difference {
    pub(super) note: String,
    /// What to do about it; none: the agent is started again.
    pub(super) hint: Option<String>,
}

/// The options and settings of the command.
#[derive(Debug)]
pub(super) struct RequestedSettings<'a> {
    pub(super) options: &'a LeadOptions,
    /// The model that the options name.
    pub(super) model: Option<ModelSpec>,
    /// The model that a lead agent would get here without options.
    pub(super) usual: Option<ModelSpec>,
    /// The variables of its service that differ from those with which it was started.
    pub(super) differing: Vec<String>,
}

/// Compares them, and returns a difference that matters.
///
/// # Errors
/// [`ExitCode::Conflict`] if only another incarnation could have what the options ask for.
pub(super) fn compare(
    member: &RosterMember,
    asked: &RequestedSettings<'_>,
) -> Result<Option<Difference>, CommandError> {
    let name = &member.name;
    let model = asked.model.as_ref().filter(|model| !is_of(member, model));
    let workspace = asked.options.workspace.as_ref().filter(|named| **named != member.workspace);
    let failed = member.activity.strip_prefix("failed: ").filter(|_| member.status == MemberStatus::Idle);
    let only_service = workspace.is_none() && !asked.options.fresh;
    let again = || format!("`teamctl shutdown {name}`, then the same command");
    let refused = |what: String, hint: String| Err(CommandError::new(ExitCode::Conflict, what).hint(hint));
    match (failed, model, workspace) {
        (Some(failed), model, _) if only_service && (model.is_some() || !asked.differing.is_empty()) => {
            let with = model.map_or_else(|| with(&asked.differing), |model| format!("the model {model}"));
            let note = format!("{name} could not go on: {failed}; it is started again with {with}");
            Ok(Some(Difference { note, hint: None }))
        }
        (_, Some(model), _) => refused(
            format!(
                "{name} runs already, with the model {}: --model {model} would change nothing",
                member.model
            ),
            format!("{} continues its conversation; without --model you talk to it as it is", again()),
        ),
        (_, _, Some(named)) => refused(
            format!("{name} runs already, in {}: --workspace {named} would change nothing", member.workspace),
            format!("{} continues its conversation there", again()),
        ),
        _ if asked.options.fresh => refused(
            format!("{name} runs already: --fresh would begin no new conversation"),
            format!("{} begins one; without --fresh its conversation continues", again()),
        ),
        _ if !asked.differing.is_empty() => Ok(Some(Difference {
            note: format!("{name} was not started with {}", with(&asked.differing)),
            hint: Some(format!("{} continues with the settings here", again())),
        })),
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

/// A lead agent that was started without a key has the built-in model.
fn scripted(member: &RosterMember, asked: &RequestedSettings<'_>) -> Option<Difference> {
    let name = &member.name;
    let usual = asked.usual.as_ref().filter(|usual| **usual != ModelSpec::script())?;
    (member.model == "script" && asked.model.is_none()).then(|| Difference {
        note: format!("{name} runs the built-in `script` model, but the settings here name {usual}"),
        hint: Some(format!(
            "`teamctl shutdown {name}`, then `teamctl chat --model {usual}` continues with that model"
        )),
    })
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

    fn compared(
        member: &RosterMember,
        options: &LeadOptions,
        differing: &[&str],
    ) -> Result<Option<Difference>, CommandError> {
        let model = options.model.as_ref().map(|model| model.parse().unwrap());
        let usual = Some("anthropic".parse().unwrap());
        let differing = differing.iter().map(|name| (*name).to_owned()).collect();
        compare(member, &RequestedSettings { options, model, usual, differing })
    }

    fn model(name: &str) -> LeadOptions {
        LeadOptions { model: Some(name.to_owned()), ..LeadOptions::default() }
    }

    #[test]
    fn no_difference_is_no_note() {
        let lead = lead("idle", "", "anthropic:m1");
        for options in [
            LeadOptions::default(),
            model("anthropic:m1"),
            model("anthropic"),
            LeadOptions { workspace: Some("/w".to_owned()), ..LeadOptions::default() },
        ] {
            assert_eq!(compared(&lead, &options, &[]), Ok(None), "{options:?}");
        }
    }

    #[test]
    fn what_only_another_incarnation_can_have_is_refused() {
        let fresh = LeadOptions { fresh: true, ..LeadOptions::default() };
        let elsewhere = LeadOptions { workspace: Some("/x".to_owned()), ..LeadOptions::default() };
        for status in ["idle", "working"] {
            let lead = lead(status, "", "anthropic:m1");
            for options in [model("anthropic:m2"), model("openai"), fresh.clone(), elsewhere.clone()] {
                let error = compared(&lead, &options, &["TEAM_CA"]).unwrap_err();
                assert_eq!(error.code(), ExitCode::Conflict);
                assert!(error.next_step().unwrap().contains("`teamctl shutdown lead`, then"), "{error:?}");
            }
        }
        let failed = lead("idle", "failed: wrong key", "anthropic:m1");
        assert!(compared(&failed, &fresh, &["TEAM_CA"]).is_err(), "a conversation is not ended by the way");
    }

    #[test]
    fn one_that_failed_and_waits_is_started_again_with_the_current_settings() {
        let failed = lead("idle", "failed: anthropic refuses the key", "anthropic:m1");
        for (options, differing, with) in [
            (LeadOptions::default(), &["ANTHROPIC_API_KEY"][..], "the ANTHROPIC_API_KEY that is set here"),
            (model("openai:m2"), &[], "the model openai:m2"),
        ] {
            let Ok(Some(Difference { note, hint: None })) = compared(&failed, &options, differing) else {
                panic!()
            };
            assert!(note.contains("refuses the key") && note.ends_with(with), "{note}");
        }
        assert_eq!(compared(&failed, &LeadOptions::default(), &[]), Ok(None), "the same would fail again");
        let works = lead("working", "thinking", "anthropic:m1");
        let Ok(Some(Difference { note, hint: Some(_) })) =
            compared(&works, &LeadOptions::default(), &["TEAM_CA", "HTTP_PROXY"])
        else {
            panic!()
        };
        assert_eq!(note, "lead was not started with the TEAM_CA and the HTTP_PROXY that is set here");
    }

    #[test]
    fn a_key_that_the_built_in_model_does_not_use_is_told() {
        let scripted = lead("idle", "", "script");
        assert!(matches!(
            compared(&scripted, &LeadOptions::default(), &[]),
            Ok(Some(Difference { hint: Some(_), .. }))
        ));
        assert_eq!(compared(&scripted, &model("script"), &[]), Ok(None));
    }
}
