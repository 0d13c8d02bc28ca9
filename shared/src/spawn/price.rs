//! The price check: the cost of a teammate can be limited only if the price of its model is known.

use crate::config::RosterMember;
use crate::control::SpawnOrder;
use crate::model_spec::ModelSpec;
use crate::price::{PriceError, Prices};
use crate::terms::{is_of_service, model_of};

/// Makes sure that the price of a teammate's model is known if its cost is limited. `recorded` is
/// the roster's record of a teammate that is resumed.
///
/// # Errors
/// [`PriceError`] if the price is not known.
pub fn require_price(
    order: &SpawnOrder,
    recorded: Option<&RosterMember>,
) -> Result<(), PriceError> {
    let terms = &order.terms;
    let limit = terms
        .max_cost
        .or(recorded.and_then(|member| member.limits.max_cost));
    if limit.is_none() {
        return Ok(());
    }
    let model = match (&terms.model, recorded) {
        (Some(model), _) => model.to_string(),
        (None, Some(member)) => member.model.clone(),
        (None, None) => ModelSpec::script().to_string(),
    };
    let protocol = match &terms.program {
        Some(program) => Some(program.protocol),
        None => recorded
            .and_then(|member| member.agent.as_ref())
            .map(|agent| agent.protocol),
    };
    let prices = Prices::of_environment(&order.environment)?;
    prices.require(&model_of(&model, protocol))?;
    let fallback = match (&terms.fallback_model, recorded) {
        (Some(model), _) => Some(model.to_string()),
        (None, Some(member)) => member.fallback_model.clone(),
        (None, None) => None,
    };
    match fallback.filter(|fallback| is_of_service(fallback, &model)) {
        Some(fallback) => prices.require(&fallback),
        None => Ok(()),
    }
}
