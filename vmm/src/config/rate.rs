// SPDX-License-Identifier: Apache-2.0
//! How much a device may do in a time, in Cloud Hypervisor's words.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use super::field::FieldError;
use super::options::{OptionError, Options, parse_number, parse_size};
use crate::devices::virtio::limit::{Limiter, Rate};

/// Keys of `--disk` and `--net`: those of bandwidth, in bytes, and those of operations.
pub(super) const KEYS: [&str; 6] =
    ["bw_size", "bw_one_time_burst", "bw_refill_time", "ops_size", "ops_one_time_burst", "ops_refill_time"];
/// A day: longer is a mistake.
const REFILL_MAX: u64 = 86_400_000;
const REFILL: &str = "must be a number of milliseconds, 1 to 86400000";
const SIZE: &str = "must be at least 1";

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BucketFields {
    size: u64,
    #[serde(default)]
    one_time_burst: Option<u64>,
    /// In milliseconds.
    refill_time: u64,
}

/// What of a device is limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bandwidth: Option<BucketFields>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ops: Option<BucketFields>,
}

impl RateConfig {
    /// Takes them from the pairs of an option; none if it has none of the keys.
    pub(super) fn parse(options: &Options) -> Result<Option<Self>, OptionError> {
        let [bw_size, bw_burst, bw_refill, ops_size, ops_burst, ops_refill] = KEYS;
        let bandwidth = bucket(options, bw_size, bw_burst, bw_refill, "bw_size=SIZE and bw_refill_time=MILLISECONDS")?;
        let ops = bucket(options, ops_size, ops_burst, ops_refill, "ops_size=NUMBER and ops_refill_time=MILLISECONDS")?;
        Ok((bandwidth.is_some() || ops.is_some()).then_some(Self { bandwidth, ops }))
    }

    /// One that limits nothing is none, so that there is one way to say so.
    pub(super) fn of_field<'de, D: Deserializer<'de>>(field: D) -> Result<Option<Self>, D::Error> {
        Ok(Option::deserialize(field)?.filter(|limits| *limits != Self::default()))
    }

    /// What is wrong with one that was not [parsed](Self::parse), of a device that the caller knows.
    pub(super) fn check(&self) -> Result<(), FieldError> {
        let bandwidth = ("rate_limiter_config.bandwidth.size", "rate_limiter_config.bandwidth.refill_time");
        let ops = ("rate_limiter_config.ops.size", "rate_limiter_config.ops.refill_time");
        for ((size_name, time_name), bucket) in [(bandwidth, self.bandwidth), (ops, self.ops)] {
            let Some(BucketFields { size, refill_time, .. }) = bucket else { continue };
            if size == 0 {
                return Err(FieldError::new(size_name, &size, SIZE));
            }
            if !(1..=REFILL_MAX).contains(&refill_time) {
                return Err(FieldError::new(time_name, &refill_time, REFILL));
            }
        }
        Ok(())
    }

    /// Buckets that are full now.
    #[must_use]
    pub fn limiter(&self) -> Limiter {
        let rate = |fields: BucketFields| Rate {
            size: fields.size,
            one_time_burst: fields.one_time_burst.unwrap_or(0),
            refill_time: Duration::from_millis(fields.refill_time),
        };
        Limiter::new(self.bandwidth.map(rate), self.ops.map(rate))
    }
}

fn bucket(
    options: &Options,
    size: &'static str,
    burst: &'static str,
    refill: &'static str,
    both: &'static str,
) -> Result<Option<BucketFields>, OptionError> {
    let positive = |text: &str| parse_size(text).and_then(|size| if size > 0 { Ok(size) } else { Err(SIZE) });
    let time = |text: &str| parse_number(text).filter(|time| (1..=REFILL_MAX).contains(time)).ok_or(REFILL);
    let fields = (options.value(size, positive)?, options.value(burst, parse_size)?, options.value(refill, time)?);
    match fields {
        (None, None, None) => Ok(None),
        (Some(size), one_time_burst, Some(refill_time)) => Ok(Some(BucketFields { size, one_time_burst, refill_time })),
        _ => Err(OptionError::Missing { option: options.option(), keys: both }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::in_options;
    use crate::field::Field;

    fn parse(text: &str) -> Result<Option<RateConfig>, String> {
        let parsed =
            Options::parse(Field::section("disks"), text, &KEYS).and_then(|options| RateConfig::parse(&options));
        parsed.map_err(|error| in_options(|| error.to_string()))
    }

    #[test]
    fn words_and_json_are_the_same() {
        let limits = parse("bw_size=1M,bw_refill_time=100,bw_one_time_burst=4K,ops_size=10,ops_refill_time=1000");
        let json = r#"{"bandwidth":{"size":1048576,"one_time_burst":4096,"refill_time":100},
                       "ops":{"size":10,"refill_time":1000}}"#;
        assert_eq!(limits, Ok(Some(serde_json::from_str(json).unwrap())));
        let bandwidth = BucketFields { size: 1 << 20, one_time_burst: None, refill_time: 100 };
        assert_eq!(
            parse("bw_size=1M,bw_refill_time=100"),
            Ok(Some(RateConfig { bandwidth: Some(bandwidth), ops: None }))
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, expected) in [
            ("bw_size=1M", "--disk bw_size=SIZE and bw_refill_time=MILLISECONDS: is missing: must be given"),
            (
                "ops_one_time_burst=1",
                "--disk ops_size=NUMBER and ops_refill_time=MILLISECONDS: is missing: must be given",
            ),
            ("bw_size=0,bw_refill_time=1", "--disk bw_size=0: must be at least 1"),
            ("bw_size=1,bw_refill_time=0", "--disk bw_refill_time=0: must be a number of milliseconds, 1 to 86400000"),
        ] {
            assert_eq!(parse(text), Err(expected.to_owned()), "{text}");
        }
        for (json, expected) in [
            (r#"{"ops":{"size":0,"refill_time":1}}"#, "rate_limiter_config.ops.size=0: must be at least 1"),
            (
                r#"{"bandwidth":{"size":1,"refill_time":0}}"#,
                "rate_limiter_config.bandwidth.refill_time=0: must be a number of milliseconds, 1 to 86400000",
            ),
        ] {
            let limits: RateConfig = serde_json::from_str(json).unwrap();
            assert_eq!(limits.check().unwrap_err().alone(), expected);
        }
    }
}
