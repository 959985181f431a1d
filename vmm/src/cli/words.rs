// SPDX-License-Identifier: Apache-2.0
//! Errors in the words of whoever typed a command line: the rest of flatboot names fields of the configuration, and this is where
//! they become options.

use crate::field::{self, Field, Spelled};

/// Sections, and fields that are options of their own or what an option is without a key.
const OPTIONS: [(&str, &str); 30] = [
    ("payload", "--kernel"),
    ("payload.kernel", "--kernel"),
    ("payload.firmware", "--firmware"),
    ("payload.initramfs", "--initramfs"),
    ("payload.cmdline", "--cmdline"),
    ("cpus", "--cpus"),
    ("memory", "--memory"),
    ("memory.zones", "--memory-zone"),
    ("numa", "--numa"),
    ("study", "--study"),
    ("disks", "--disk"),
    ("disks.path", "--disk"),
    ("net", "--net"),
    ("vsock", "--vsock"),
    ("balloon", "--balloon"),
    ("rng", "--rng"),
    ("rng.src", "--rng"),
    ("serial", "--serial"),
    ("serial.file", "--serial"),
    ("serial_limit", "--serial-limit"),
    ("console", "--console"),
    ("console.mode", "--console"),
    ("timeline", "--timeline"),
    ("restart_on_reset", "--restart-on-reset"),
    ("landlock_enable", "--landlock"),
    ("shutdown_timeout", "--shutdown-timeout"),
    // Of the process, and not of a VM.
    ("api_socket", "--api-socket"),
    ("event_monitor", "--event-monitor"),
    ("table", "--table"),
    ("restore", "--restore"),
];

/// Fields, and the keys that they are in the option of their section; the others are called the same.
const KEYS: [(&str, &str); 9] = [
    ("boot_vcpus", "boot"),
    ("fds", "fd"),
    ("disable_io_uring", "_disable_io_uring"),
    ("rate_limiter_config.bandwidth.size", "bw_size"),
    ("rate_limiter_config.bandwidth.one_time_burst", "bw_one_time_burst"),
    ("rate_limiter_config.bandwidth.refill_time", "bw_refill_time"),
    ("rate_limiter_config.ops.size", "ops_size"),
    ("rate_limiter_config.ops.one_time_burst", "ops_one_time_burst"),
    ("rate_limiter_config.ops.refill_time", "ops_refill_time"),
];

/// What `say` says, with options for fields.
pub fn in_options<T>(say: impl FnOnce() -> T) -> T {
    field::in_words(spelled, say)
}

fn spelled(field: Field) -> Option<Spelled> {
    let (kind, name) = (field.kind(), field.name());
    if let Some(option) = option(&kind) {
        return Some(Spelled { name: option.to_owned(), joint: ' ' });
    }
    let option = option(kind.strip_suffix(name)?.strip_suffix('.')?)?;
    let key = KEYS.iter().find(|(field, _)| *field == name).map_or(name, |(_, key)| key);
    Some(Spelled { name: format!("{option} {key}"), joint: '=' })
}

fn option(kind: &str) -> Option<&'static str> {
    OPTIONS.iter().find(|(field, _)| *field == kind).map(|(_, option)| *option)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;
    use crate::config::{RawConfig, VmConfig};

    #[test]
    fn fields_become_options() {
        for (field, expected) in [
            (Field::of("memory", "size"), "--memory size=x"),
            (Field::of("memory.zones", "id").at(1), "--memory-zone id=x"),
            (Field::of("cpus", "boot_vcpus"), "--cpus boot=x"),
            (Field::of("payload", "kernel"), "--kernel x"),
            (Field::of("disks", "path").at(1), "--disk x"),
            (Field::of("disks", "rate_limiter_config.ops.size").at(1), "--disk ops_size=x"),
            (Field::section("timeline"), "--timeline x"),
            (Field::section("desired_balloon"), "desired_balloon=x"),
            (Field::of("", "path"), ".path=x"),
        ] {
            assert_eq!(in_options(|| field.is("x").to_string()), expected);
        }
        assert_eq!(in_options(|| Field::section("disks").at(1).to_string()), "--disk");
    }

    #[test]
    fn these_options_are_there_and_no_field_is_without_one() {
        let known: Vec<_> = ["run", "map"]
            .into_iter()
            .flat_map(|verb| {
                Cli::command().find_subcommand(verb).unwrap().clone().get_arguments().cloned().collect::<Vec<_>>()
            })
            .filter_map(|argument| Some(format!("--{}", argument.get_long()?)))
            .collect();
        for (field, option) in OPTIONS {
            assert!(known.iter().any(|known| known == option), "{field}: {option}");
        }
        let whole = RawConfig {
            kernel: Some("k".into()),
            vsock: Some("cid=3,socket=s".to_owned()),
            balloon: Some("size=0".to_owned()),
            serial: "file=s".to_owned(),
            serial_limit: Some("1M".to_owned()),
            timeline: Some("t".into()),
            ..RawConfig::default()
        };
        let json: serde_json::Value =
            serde_json::from_str(&VmConfig::try_from(whole).unwrap().to_json().unwrap()).unwrap();
        for section in json.as_object().unwrap().keys() {
            assert!(option(section).is_some(), "{section}");
        }
    }
}
