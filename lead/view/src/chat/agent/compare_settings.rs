//! Compares the lead agent that runs with the options and settings of a `teamctl chat`. Pure.
//!
//! No option is ignored in silence. A lead agent that waits after a failure is started again with
//! the current settings; one that works, or could work, is not ended by a chat.

use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_shared::config::RosterMember;
use teamd_shared::member::MemberStatus;
use teamd_shared::message::IdleReason;
use teamd_shared::model_spec::ModelSpec;
use teamd_shared::terms::BUILT_IN;
use teamd_shared::transcript::Event;

use super::options::LeadOptions;

/// A difference that is reported to the person.
#[derive(Debug, PartialEq)]
pub(super) struct Difference {
    pub(super) note: String,
    /// What to do about it; none: the agent is started again.
    pub(super) hint: Option<String>,
}

/// Returns why the last work of a member failed, if it did and the member waits. The roster follows
/// a moment after the transcript, whose last entry this is.
pub(super) fn failure(member: &RosterMember, last: Option<&Event>) -> Option<String> {
    if member.status != MemberStatus::Idle {
        return None;
    }
    match last {
        Some(Event::Idle {
            idle_reason: IdleReason::Failed,
            content,
            ..
        }) => {
            let what = content.lines().next().unwrap_or_default();
            Some(what.split(" (hint: ").next().unwrap_or(what).to_owned())
        }
        Some(Event::Idle { .. }) => None,
        _ => member.activity.strip_prefix("failed: ").map(str::to_owned),
    }
}

/// Compares them, and returns a difference that matters. `failed` says why the last work failed,
/// `usual` is the model that a lead agent would get here without options.
///
/// # Errors
/// [`ExitCode::Conflict`] if only another incarnation could have what the options ask for.
pub(super) fn compare(
    member: &RosterMember,
    options: &LeadOptions,
    failed: Option<String>,
    usual: Option<&ModelSpec>,
) -> Result<Option<Difference>, CommandError> {
    let name = &member.name;
    let asked = options.model()?;
    let model = asked.as_ref().filter(|model| !is_of(member, model));
    let workspace = options
        .workspace
        .as_ref()
        .filter(|named| **named != member.workspace);
    let again = format!("`teamctl shutdown {name}`, then the same command");
    match (failed, model, workspace) {
        (Some(failed), _, None) if !options.fresh => {
            let note = format!(
                "{name} could not continue: {failed}; it is started again with the settings here"
            );
            Ok(Some(Difference { note, hint: None }))
        }
        (_, Some(model), _) => refused(
            format!(
                "{name} runs already, with the model {}: --model {model} would change nothing",
                member.model
            ),
            format!(
                "{} continues its conversation; without --model you talk to it as it is",
                again
            ),
        ),
        _ if let Some(agent) = options
            .agent
            .as_ref()
            .filter(|agent| *agent != agent_of(member)) =>
        {
            refused(
                format!(
                    "{name} runs already, as the agent {}: --agent {agent} would change nothing",
                    agent_of(member)
                ),
                format!("{} continues with that agent", again),
            )
        }
        (_, _, Some(named)) => refused(
            format!(
                "{name} runs already, in {}: --workspace {named} would change nothing",
                member.workspace
            ),
            format!("{} continues its conversation there", again),
        ),
        _ if options.fresh => refused(
            format!("{name} runs already: --fresh would begin no new conversation"),
            format!(
                "{} begins one; without --fresh its conversation continues",
                again
            ),
        ),
        _ => Ok(scripted(member, asked.as_ref(), usual)),
    }
}

/// Returns the name of the agent that a member is.
fn agent_of(member: &RosterMember) -> &str {
    member.agent.as_ref().map_or(BUILT_IN, |agent| &agent.name)
}

/// Tells whether a member has the model that is named; of one provider without a model, any.
fn is_of(member: &RosterMember, model: &ModelSpec) -> bool {
    let has = member.model.parse::<ModelSpec>().ok();
    has.is_some_and(|has| has == *model || model.model.is_none() && has.provider == model.provider)
}

/// A lead agent that was started without a key has the built-in model.
fn scripted(
    member: &RosterMember,
    asked: Option<&ModelSpec>,
    usual: Option<&ModelSpec>,
) -> Option<Difference> {
    let name = &member.name;
    let usual = usual.filter(|usual| **usual != ModelSpec::script())?;
    (member.model == "script" && asked.is_none()).then(|| Difference {
        note: format!("{name} runs the built-in `script` model, but the settings here name {usual}"),
        hint: Some(format!(
            "`teamctl shutdown {name}`, then `teamctl chat --model {usual}` continues with that model"
        )),
    })
}

fn refused(what: String, hint: String) -> Result<Option<Difference>, CommandError> {
    Err(CommandError::new(ExitCode::Conflict, what).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use teamd_shared::testing::roster_member;

    fn lead(status: &str, activity: &str, model: &str) -> RosterMember {
        let fields =
            json!({"name": "lead", "status": status, "model": model, "activity": activity});
        serde_json::from_value(roster_member(&fields)).unwrap()
    }

    fn compared(
        member: &RosterMember,
        options: &LeadOptions,
    ) -> Result<Option<Difference>, CommandError> {
        compare(
            member,
            options,
            failure(member, None),
            Some(&"anthropic".parse().unwrap()),
        )
    }

    fn model(name: &str) -> LeadOptions {
        LeadOptions {
            model: Some(name.to_owned()),
            ..LeadOptions::default()
        }
    }

    #[test]
    fn no_difference_is_no_note() {
        let lead = lead("idle", "", "anthropic:m1");
        for options in [
            LeadOptions::default(),
            model("anthropic:m1"),
            model("anthropic"),
            LeadOptions {
                workspace: Some("/w".to_owned()),
                ..LeadOptions::default()
            },
            LeadOptions {
                agent: Some(BUILT_IN.to_owned()),
                ..LeadOptions::default()
            },
        ] {
            assert_eq!(compared(&lead, &options), Ok(None), "{options:?}");
        }
    }

    #[test]
    fn what_only_another_incarnation_can_have_is_refused() {
        let fresh = LeadOptions {
            fresh: true,
            ..LeadOptions::default()
        };
        let elsewhere = LeadOptions {
            workspace: Some("/x".to_owned()),
            ..LeadOptions::default()
        };
        for status in ["idle", "working"] {
            let lead = lead(status, "", "anthropic:m1");
            let claude = LeadOptions {
                agent: Some("claude".to_owned()),
                ..LeadOptions::default()
            };
            let all = [
                model("anthropic:m2"),
                model("openai"),
                fresh.clone(),
                elsewhere.clone(),
                claude,
            ];
            for options in all {
                let error = compared(&lead, &options).unwrap_err();
                assert_eq!(error.code(), ExitCode::Conflict);
                assert!(
                    error
                        .next_step()
                        .unwrap()
                        .contains("`teamctl shutdown lead`, then"),
                    "{error:?}"
                );
            }
        }
        let failed = lead("idle", "failed: wrong key", "anthropic:m1");
        assert!(
            compared(&failed, &fresh).is_err(),
            "a conversation is not ended by the way"
        );
    }

    #[test]
    fn one_that_failed_and_waits_is_started_again_with_the_current_settings() {
        let failed = lead("idle", "failed: anthropic refuses the key", "anthropic:m1");
        for options in [LeadOptions::default(), model("openai:m2")] {
            let Ok(Some(Difference { note, hint: None })) = compared(&failed, &options) else {
                panic!()
            };
            assert!(
                note.contains("refuses the key; it is started again"),
                "{note}"
            );
        }
        let works = lead("working", "thinking", "anthropic:m1");
        assert_eq!(compared(&works, &LeadOptions::default()), Ok(None));
    }

    #[test]
    fn the_transcript_is_ahead_of_the_roster() {
        let idle = |reason: &str, content: &str| {
            let id = uuid::Uuid::nil();
            let entry = json!({"entry": "idle", "idle_reason": reason, "content": content, "message_id": id});
            serde_json::from_value::<Event>(entry).unwrap()
        };
        let late = lead("idle", "", "anthropic:m1");
        let why = failure(
            &late,
            Some(&idle("failed", "a wrong key (hint: another)\nmore")),
        );
        assert_eq!(why.as_deref(), Some("a wrong key"));
        let late = lead("idle", "failed: a wrong key", "anthropic:m1");
        assert_eq!(failure(&late, Some(&idle("available", "done"))), None);
        let works = lead("working", "thinking", "anthropic:m1");
        assert_eq!(failure(&works, Some(&idle("failed", "a wrong key"))), None);
    }

    #[test]
    fn a_key_that_the_built_in_model_does_not_use_is_told() {
        let scripted = lead("idle", "", "script");
        assert!(matches!(
            compared(&scripted, &LeadOptions::default()),
            Ok(Some(Difference { hint: Some(_), .. }))
        ));
        assert_eq!(compared(&scripted, &model("script")), Ok(None));
    }
}
