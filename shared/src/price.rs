//! What models cost: the prices that are built in, and those of the user's own file.
//!
//! Only [`Prices::load`] reads a file. **Who reads**: commands that show what a team has cost, and
//! a worker with a limit of cost, when it begins. A model without a known price has no cost: it is
//! never guessed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::model_spec::{ModelSpec, Provider, full_name};
use crate::usage::Usage;
use crate::user_dirs::config_dir;

const BUILT_IN: &str = include_str!("prices.toml");

const MILLION: u64 = 1_000_000;

/// An amount of money, in millionths of a dollar. It is written in dollars.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "f64", into = "f64")]
#[schemars(with = "f64", extend("minimum" = 0, "exclusiveMaximum" = 9e9))]
pub struct Dollars(u64);

impl Dollars {
    /// Subtracts what was spent.
    #[must_use]
    pub fn less(self, spent: Self) -> Self {
        Self(self.0.saturating_sub(spent.0))
    }

    /// Returns this amount so many times.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }
}

impl std::ops::Add for Dollars {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl TryFrom<f64> for Dollars {
    type Error = &'static str;

    fn try_from(dollars: f64) -> Result<Self, Self::Error> {
        let millionths = (dollars * MILLION as f64).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is not negative, and below 2^53"
        )]
        let amount = (0.0..9e15)
            .contains(&millionths)
            .then_some(Self(millionths as u64));
        amount.ok_or("an amount in dollars such as 0.5 or 20")
    }
}

impl From<Dollars> for f64 {
    fn from(amount: Dollars) -> Self {
        amount.0 as Self / MILLION as Self
    }
}

impl fmt::Display for Dollars {
    /// Writes cents, and more digits for an amount below half a cent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dollars = f64::from(*self);
        match self.0 {
            1..5_000 => write!(f, "${dollars:.4}"),
            _ => write!(f, "${dollars:.2}"),
        }
    }
}

/// Reads an amount of money above 0, as `2.50` or `$2.50`.
///
/// # Errors
/// What is expected.
pub fn parse_dollars(text: &str) -> Result<Dollars, &'static str> {
    let expected = "an amount in dollars above 0 such as 0.50 or 20";
    let amount = text.strip_prefix('$').unwrap_or(text).parse::<f64>().ok();
    let amount = amount.and_then(|amount| Dollars::try_from(amount).ok());
    amount.filter(|amount| amount.0 > 0).ok_or(expected)
}

/// What a million tokens of each kind cost with a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    input: Dollars,
    output: Dollars,
    cache_write: Dollars,
    cache_read: Dollars,
}

impl Price {
    /// Returns what these tokens cost.
    pub fn cost(&self, usage: &Usage) -> Dollars {
        let parts = [
            (usage.input_tokens, self.input),
            (usage.output_tokens, self.output),
            (usage.cache_creation_input_tokens, self.cache_write),
            (usage.cache_read_input_tokens, self.cache_read),
        ];
        let sum: u128 = parts
            .iter()
            .map(|(tokens, price)| u128::from(*tokens) * u128::from(price.0))
            .sum();
        Dollars(u64::try_from(sum / u128::from(MILLION)).unwrap_or(u64::MAX))
    }
}

/// Why a price is not known. Fits behind "error: ".
#[derive(Debug, thiserror::Error)]
pub enum PriceError {
    /// The user's file cannot be used.
    #[error("cannot read the prices in {}: {why}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// Work with this model cannot be limited by its cost.
    #[error("the price of {model} is not known: its cost cannot be limited")]
    Unknown {
        /// The model.
        model: String,
        /// The user's file.
        path: PathBuf,
    },
}

impl PriceError {
    /// Returns what to do next. Fits behind "hint: ".
    pub fn hint(&self) -> String {
        match self {
            Self::File { .. } => {
                "a model is `[\"PROVIDER:MODEL\"]` with `input`, `output`, `cache_write` and `cache_read`: dollars for a \
                 million tokens"
                    .to_owned()
            }
            Self::Unknown { model, path } => format!(
                "add `[\"{model}\"]` with `input`, `output`, `cache_write` and `cache_read` (dollars for a million tokens) \
                 to {}; {}or limit it with --max-tokens",
                path.display(),
                other_model(model)
            ),
        }
    }
}

/// Names a model of the same service whose price is built in, if there is one.
fn other_model(model: &str) -> String {
    let provider = model
        .parse::<ModelSpec>()
        .map_or(Provider::Anthropic, |spec| spec.provider);
    if provider == Provider::Google {
        return String::new();
    }
    let priced = full_name(provider.as_str());
    format!("or name a model whose price is known (`--model {priced}`); ")
}

/// The prices that are built in, parsed when the first one is looked up: most processes need none.
static BUILT_IN_PRICES: LazyLock<BTreeMap<String, Price>> = LazyLock::new(|| {
    // A test parses it.
    toml::from_str(BUILT_IN).unwrap_or_default()
});

/// The prices of models.
#[derive(Debug, Clone)]
pub struct Prices {
    /// Those of the user's file. They come before those that are built in.
    own: BTreeMap<String, Price>,
    /// The user's file, whether it exists or not.
    path: PathBuf,
}

impl Prices {
    /// Returns the prices that are built in.
    pub fn built_in() -> Self {
        Self {
            own: BTreeMap::new(),
            path: PathBuf::from("~/.config/teamd/prices.toml"),
        }
    }

    /// Adds the prices of the user's own file to those that are built in.
    ///
    /// # Errors
    /// [`PriceError::File`] if the user's file cannot be read or parsed.
    pub fn load(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, PriceError> {
        let mut prices = Self::built_in();
        let Ok(config) = config_dir(variable) else {
            return Ok(prices);
        };
        prices.path = config.join("prices.toml");
        let failed = |why: String| PriceError::File {
            path: prices.path.clone(),
            why,
        };
        let text = match std::fs::read_to_string(&prices.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(prices),
            Err(error) => return Err(failed(error.to_string())),
        };
        let own = toml::from_str(&text);
        prices.own = own.map_err(|error| failed(error.to_string().trim_end().to_owned()))?;
        Ok(prices)
    }

    /// Loads the prices of the user whose environment a teammate is spawned with.
    ///
    /// # Errors
    /// As [`Prices::load`].
    pub fn of_environment(environment: &Environment) -> Result<Self, PriceError> {
        Self::load(|name| environment.path(name).map(PathBuf::into_os_string))
    }

    /// Returns the price of a model, as the roster names it.
    pub fn of(&self, model: &str) -> Option<&Price> {
        let full = full_name(model);
        self.of_full(&full).or_else(|| self.of_full(undated(&full)))
    }

    fn of_full(&self, model: &str) -> Option<&Price> {
        self.own.get(model).or_else(|| BUILT_IN_PRICES.get(model))
    }

    /// Returns what these tokens of a model cost; none if its price is not known.
    pub fn cost(&self, model: &str, usage: &Usage) -> Option<Dollars> {
        if usage.is_nothing() {
            return Some(Dollars::default());
        }
        self.of(model).map(|price| price.cost(usage))
    }

    /// Makes sure that the price of a model is known.
    ///
    /// # Errors
    /// [`PriceError::Unknown`] if it is not.
    pub fn require(&self, model: &str) -> Result<(), PriceError> {
        match self.of(model) {
            Some(_) => Ok(()),
            None => Err(PriceError::Unknown {
                model: full_name(model),
                path: self.path.clone(),
            }),
        }
    }
}

/// How old the built-in prices may be, in days, before that is worth a note.
const OLD: i64 = 183;

/// Returns the day of the built-in prices, as `2026-11-26`.
pub fn date() -> &'static str {
    // A test reads it.
    let first = BUILT_IN.lines().next().unwrap_or_default();
    first.strip_prefix("# Date: ").unwrap_or_default()
}

/// Tells whether the built-in prices are old at a time, in seconds since 1970.
pub fn are_old(now: f64) -> bool {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it has been less than a million days"
    )]
    let today = (now / 86_400.0).floor() as i64;
    day(date()).is_none_or(|day| today - day > OLD)
}

/// Counts the days from 1970 to a date (<https://howardhinnant.github.io/date_algorithms.html>).
fn day(date: &str) -> Option<i64> {
    let mut numbers = date.split('-').map(|number| number.parse::<i64>().ok());
    let year = numbers.next()??;
    let month = numbers.next()??;
    let day = numbers.next()??;
    let year = if month <= 2 { year - 1 } else { year };
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let of_era = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    Some(year.div_euclid(400) * 146_097 + of_era - 719_468)
}

/// Returns the name of a model without the date of its release.
fn undated(model: &str) -> &str {
    match model.rsplit_once('-') {
        Some((name, date)) if date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit()) => {
            name
        }
        _ => model,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage() -> Usage {
        Usage {
            input_tokens: 1_000_000,
            output_tokens: 100_000,
            cache_read_input_tokens: 2_000_000,
            cache_creation_input_tokens: 10_000,
        }
    }

    fn with_file(text: &str) -> Result<Prices, PriceError> {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::create_dir(scratch.path().join("teamd")).unwrap();
        let mut file = std::fs::File::create(scratch.path().join("teamd/prices.toml")).unwrap();
        io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        Prices::load(|name| {
            (name == "XDG_CONFIG_HOME").then(|| scratch.path().as_os_str().to_owned())
        })
    }

    #[test]
    fn what_is_built_in_is_a_price_list() {
        let built_in: BTreeMap<String, Price> = toml::from_str(BUILT_IN).unwrap();
        assert!(built_in.keys().all(|model| {
            model
                .parse::<ModelSpec>()
                .is_ok_and(|it| it.to_string() == *model)
        }));
        assert_eq!(*BUILT_IN_PRICES, built_in);
        assert!(day(date()).is_some_and(|day| day > 20_000), "{}", date());
        let sources = BUILT_IN
            .lines()
            .filter(|line| line.starts_with("# Source: ") && line.contains("2026-"));
        assert_eq!(sources.count(), built_in.len());
    }

    #[test]
    fn each_kind_of_tokens_has_its_price_and_what_is_not_known_has_none() {
        let prices = Prices::built_in();
        let cost = |model: &str| prices.cost(model, &usage());
        // 5 + 2.50 + 1 + 0.0625
        assert_eq!(cost("anthropic:claude-opus-4-5"), Some(Dollars(8_562_500)));
        assert_eq!(
            cost("anthropic:claude-opus-4-5-20251101"),
            Some(Dollars(8_562_500))
        );
        for unknown in [
            "anthropic:claude-opus-4-5-fast",
            "openai:claude-opus-4-5",
            "x",
        ] {
            assert_eq!(cost(unknown), None, "{unknown}");
            assert_eq!(
                prices.cost(unknown, &Usage::default()),
                Some(Dollars(0)),
                "what was not used is free"
            );
        }
    }

    #[test]
    fn prices_are_old_after_half_a_year() {
        assert_eq!(
            (day("1970-01-01"), day("2000-03-01"), day("2026-11-26")),
            (Some(0), Some(11_017), Some(20_783))
        );
        let of_list = day(date()).unwrap() as f64 * 86_400.0;
        assert!(
            !are_old(of_list)
                && !are_old(of_list + 180.0 * 86_400.0)
                && are_old(of_list + 190.0 * 86_400.0)
        );
    }

    #[test]
    fn the_users_file_adds_and_replaces() {
        let price = "input = 1\noutput = 0\ncache_write = 0\ncache_read = '0'\n".replace('\'', "");
        let file =
            format!("['anthropic:claude-sonnet-5-5']\n{price}['anthropic:claude-opus-5']\n{price}");
        let prices = with_file(&file).unwrap();
        assert_eq!(
            prices.cost("anthropic", &usage()),
            Some(Dollars(1_000_000)),
            "the default model is meant"
        );
        assert_eq!(
            prices.cost("anthropic:claude-opus-5", &usage()),
            Some(Dollars(1_000_000))
        );
        assert!(prices.of("anthropic:claude-sonnet-5").is_some());
        for wrong in [
            "['x:y']\ninput = 1\n",
            &file.replace("= 1", "= -1"),
            &file.replace("output", "out"),
        ] {
            let error = with_file(wrong).unwrap_err();
            assert!(error.to_string().contains("teamd/prices.toml: "), "{error}");
        }
        let error = prices.require("openai:x").unwrap_err();
        assert!(
            error.hint().contains("[\"openai:x\"]") && error.hint().contains("teamd/prices.toml")
        );
    }

    #[test]
    fn money_is_read_and_told_as_people_write_it() {
        assert_eq!(parse_dollars("$2.50"), Ok(Dollars(2_500_000)));
        assert_eq!(parse_dollars("20"), Ok(Dollars(20_000_000)));
        for bad in ["", "0", "-1", "NaN", "inf", "1e99", "2,50", "two"] {
            assert!(parse_dollars(bad).is_err(), "{bad}");
        }
        for (amount, shown) in [
            (0, "$0.00"),
            (1_234, "$0.0012"),
            (12_345, "$0.01"),
            (8_562_500, "$8.56"),
        ] {
            assert_eq!(Dollars(amount).to_string(), shown);
        }
    }
}
