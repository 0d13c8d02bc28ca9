//! The process of a member among its other fields: all of it is there, or nothing.

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::process::Identity;

/// The fields of an [`Identity`], where there may be none.
///
/// With `flatten` alone, an identity of which one field is wrong would be read as none: a live
/// worker would be taken for one that never ran.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("dependentRequired" = {
    "pid": ["start_ticks", "boot_id"], "start_ticks": ["pid", "boot_id"], "boot_id": ["pid", "start_ticks"]
}))]
pub(super) struct Written {
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
    let Written {
        pid,
        start_ticks,
        boot_id,
    } = Written::deserialize(deserializer)?;
    match (pid, start_ticks, boot_id) {
        (None, None, None) => Ok(None),
        (Some(pid), Some(start_ticks), Some(boot_id)) => Ok(Some(Identity {
            pid,
            start_ticks,
            boot_id,
        })),
        _ => Err(D::Error::custom(
            "of `pid`, `start_ticks` and `boot_id` there are all or none",
        )),
    }
}

/// Reads what is there: null is no value of it.
fn some<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
