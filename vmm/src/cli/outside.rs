// SPDX-License-Identifier: Apache-2.0
//! Who else has a say in what happens to a VM, and who watches.

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::api::Listen;
use crate::config::{ConfigError, OptionError, OutputFile};
use crate::field::Field;
use crate::inherited;
use crate::keeper;
use crate::run::{First, Outside};

const API: Field = Field::section("api_socket");
const EVENTS: Field = Field::section("event_monitor");

/// The options for others.
#[derive(Debug, Clone, Default, Args)]
pub struct OutsideArgs {
    /// Take requests by HTTP on a UNIX socket: Cloud Hypervisor's API
    ///
    /// PATH is created, and removed at the end; N is an inherited listening socket. Without a command, flatboot waits for a VM to
    /// be created.
    #[arg(long, value_name = "path=PATH|fd=N")]
    pub api_socket: Option<String>,

    /// Write events of the VM to FILE, or to descriptor N: one JSON object each
    #[arg(long, value_name = "path=FILE|fd=N")]
    pub event_monitor: Option<String>,
}

/// A file by its path, or by the number that it was inherited as.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Path(PathBuf),
    Descriptor(i32),
}

impl OutsideArgs {
    /// What they mean, beside the VM `first`. Events that were in the file are gone behind this, but for those of a VM that starts
    /// again.
    pub fn open(self, first: Option<&First>) -> Result<Outside, ConfigError> {
        let api = self.api_socket.map(|text| place(API, &text)).transpose()?;
        let events = self.event_monitor.map(|text| place(EVENTS, &text)).transpose()?;
        let events = events.map(|place| open_events(place, first)).transpose()?;
        let api = api.map(|place| match place {
            Place::Path(path) => Listen::Path(path),
            Place::Descriptor(number) => Listen::Descriptor(number),
        });
        Ok(Outside { api, events })
    }
}

/// As Cloud Hypervisor has it, a path may stand alone.
fn place(option: Field, text: &str) -> Result<Place, OptionError> {
    let wrong = || OptionError::word(option, text, "must be path=PATH or fd=N");
    match text.split_once('=') {
        Some(("path", path)) if !path.is_empty() => Ok(Place::Path(path.into())),
        Some(("fd", number)) => {
            let number = number.parse().ok().filter(|number| *number > 2);
            number.map(Place::Descriptor).ok_or_else(|| OptionError::word(option, text, "must be fd=N with N above 2"))
        }
        None if !text.is_empty() => Ok(Place::Path(text.into())),
        _ => Err(wrong()),
    }
}

fn open_events(place: Place, first: Option<&First>) -> Result<File, ConfigError> {
    match place {
        Place::Path(path) => {
            let mut file = OutputFile::open(EVENTS, Path::new(&path))?;
            first.map_or(Ok(()), |first| first.leaves_alone(&file))?;
            if keeper::has_restarted() {
                file.append();
            }
            Ok(file.commit()?)
        }
        Place::Descriptor(number) => inherited::duplicate(number).map(File::from).map_err(|error| {
            let must = format!("{error}: must be a file that this process was started with");
            OptionError::word(EVENTS, &format!("fd={number}"), &must).into()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::in_options;

    #[test]
    fn a_path_or_a_number() {
        for (text, expected) in [
            ("path=/run/x", Place::Path("/run/x".into())),
            ("/run/x", Place::Path("/run/x".into())),
            ("fd=3", Place::Descriptor(3)),
        ] {
            assert_eq!(place(API, text), Ok(expected));
        }
        for (text, expected) in [
            ("", "--api-socket \"\": must be path=PATH or fd=N"),
            ("path=", "--api-socket path=: must be path=PATH or fd=N"),
            ("socket=/x", "--api-socket socket=/x: must be path=PATH or fd=N"),
            ("fd=2", "--api-socket fd=2: must be fd=N with N above 2"),
            ("fd=x", "--api-socket fd=x: must be fd=N with N above 2"),
        ] {
            assert_eq!(in_options(|| place(API, text).unwrap_err().to_string()), expected);
        }
    }
}
