//! The process of a member among its other fields: all of its fields are there, or none.

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::process::Identity;

/// The fields of an [`Identity`], where there may be none.
///
/// With `flatten` alone, an identity with one wrong field would be read as none, and a live worker
/// would be taken for one that never ran.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("dependentRequired" = {
    "pid": ["start_ticks", "boot_id"], "start_ticks": ["pid", "boot_id"], "boot_id": ["pid", "start_ticks"]
}))]
pub(super) struct ProcessFields {
    /// The process id.
    #[serde(default, deserialize_with = "some")]
    #[schemars(with = "u32")]
    pid: Option<u32>,
    /// Clock ticks between the boot and the start of the process.
    #[serde(default, deserialize_with = "some")]
    #[schemars(with = "u64")]
    start_ticks: Option<u64>,
    /// The boot that both belong to.
    #[serde(default, deserialize_with = "some")]
    #[schemars(with = "String")]
    boot_id: Option<String>,
}

pub(super) fn read<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Identity>, D::Error> {
    let ProcessFields {
        pid,
        start_ticks,
        boot_id,
    } = ProcessFields::deserialize(deserializer)?;
    match (pid, start_ticks, boot_id) {
        (None, None, None) => Ok(None),
        (Some(pid), Some(start_ticks), Some(boot_id)) => Ok(Some(Identity {
            pid,
            start_ticks,
            boot_id,
        })),
        _ => Err(D::Error::custom(
            "`pid`, `start_ticks` and `boot_id` must be given together",
        )),
    }
}

/// Reads a field that is present: null is not allowed.
fn some<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
