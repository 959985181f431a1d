// SPDX-License-Identifier: Apache-2.0
//! The socket device: connections between programs of the guest and of the host.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::field::FieldError;
use super::options::{OptionError, Options, parse_number};
use super::rate::{self, RateConfig};
use crate::field::Field;
use crate::leave::Leave;
use crate::listener::{self, Bound};

/// Where it is in a configuration.
pub(super) const OPTION: Field = Field::section("vsock");

/// Context ids below are the hypervisor's, the local one and the host's; the last one is nobody's.
const CID_MIN: u32 = 3;
const CID: &str = "must be a context id, 3 to 4294967294";
/// An address has 108 bytes, and the longest path is that of port 4294967295 with a zero behind it.
const PATH_MAX: usize = 108 - "_4294967295".len() - 1;

/// A socket device whose socket is still to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VsockOption {
    /// The guest's context id.
    cid: u32,
    /// Where programs of the host connect to; paths that begin so are theirs.
    socket: PathBuf,
    /// What it is called by whoever asks for it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(default, deserialize_with = "RateConfig::of_field", skip_serializing_if = "Option::is_none")]
    rate_limiter_config: Option<RateConfig>,
}

/// A socket device whose socket is there.
#[derive(Debug)]
pub struct VsockConfig {
    /// The guest's context id.
    pub cid: u32,
    /// The socket's path.
    pub path: PathBuf,
    /// The socket.
    pub listener: (Bound, UnixListener),
    /// What it is called.
    pub id: Option<String>,
    /// How much it may do in a time, in each direction.
    pub limits: Option<RateConfig>,
}

impl VsockOption {
    /// Takes the text of `--vsock`.
    pub(super) fn parse(text: &str) -> Result<Self, OptionError> {
        let keys = [["cid", "socket", "id"].as_slice(), &rate::KEYS].concat();
        let options = Options::parse(OPTION, text, &keys)?;
        let cid = |text: &str| parse_number(text).and_then(|number| u32::try_from(number).ok()).ok_or(CID);
        let missing = OptionError::Missing { option: OPTION, keys: "cid=N and socket=PATH" };
        let (Some(cid), Some(socket)) = (options.value("cid", cid)?, options.get("socket")) else {
            return Err(missing);
        };
        let id = options.get("id").map(str::to_owned);
        let vsock = Self { cid, socket: socket.into(), id, rate_limiter_config: RateConfig::parse(&options)? };
        vsock.check_fields().map_err(|error| options.wrong_field(error))?;
        Ok(vsock)
    }

    /// Whether its fields have values that they can have.
    pub(super) fn check(&self) -> Result<(), FieldError> {
        self.check_fields()?;
        self.rate_limiter_config.map_or(Ok(()), |limits| limits.check())
    }

    fn check_fields(&self) -> Result<(), FieldError> {
        if !(CID_MIN..u32::MAX).contains(&self.cid) {
            return Err(FieldError::new("cid", &self.cid, CID));
        }
        let wrong = |must: String| FieldError::new("socket", &self.socket.display(), &must);
        listener::check(&self.socket, PATH_MAX).map_err(wrong)
    }

    /// Where its socket is to be.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Makes its socket, which `leave` knows from then on. That there can be none is an error.
    pub(super) fn open(self, leave: &Leave) -> Result<VsockConfig, FieldError> {
        let failed = |what: String| FieldError::of(OPTION.member("socket"), &self.socket.display(), &what);
        let mut making = leave.making();
        let listener = listener::bind(self.socket.clone()).map_err(failed)?;
        making.vm.push(Box::new(listener.0.remover()));
        Ok(VsockConfig { cid: self.cid, path: self.socket, listener, id: self.id, limits: self.rate_limiter_config })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::in_options;

    fn parse(text: &str) -> Result<VsockOption, String> {
        VsockOption::parse(text).map_err(|error| in_options(|| error.to_string()))
    }

    #[test]
    fn words_and_json_are_the_same() {
        for (text, json) in [
            ("cid=3,socket=/run/vm", r#"{"cid": 3, "socket": "/run/vm"}"#),
            (
                "cid=4294967294,socket=a,id=x,bw_size=1,bw_refill_time=2",
                r#"{"cid": 4294967294, "socket": "a", "id": "x",
                    "rate_limiter_config": {"bandwidth": {"size": 1, "refill_time": 2}}}"#,
            ),
        ] {
            let vsock: VsockOption = serde_json::from_str(json).unwrap();
            assert_eq!((vsock.check(), parse(text)), (Ok(()), Ok(vsock)), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let long = "x".repeat(97);
        for (text, expected) in [
            ("cid=3", "--vsock cid=N and socket=PATH: is missing: must be given".to_owned()),
            ("socket=a", "--vsock cid=N and socket=PATH: is missing: must be given".to_owned()),
            ("cid=2,socket=a", "--vsock cid=2: must be a context id, 3 to 4294967294".to_owned()),
            ("cid=4294967295,socket=a", "--vsock cid=4294967295: must be a context id, 3 to 4294967294".to_owned()),
            ("cid=x,socket=a", "--vsock cid=x: must be a context id, 3 to 4294967294".to_owned()),
            (&format!("cid=3,socket={long}"), format!("--vsock socket={long}: must have 1 to 96 bytes")),
        ] {
            assert_eq!(parse(text), Err(expected), "{text}");
        }
        assert!(parse(&format!("cid=3,socket={}", "x".repeat(PATH_MAX))).is_ok());
        let zero: VsockOption = serde_json::from_str(r#"{"cid": 3, "socket": "a\u0000"}"#).unwrap();
        assert_eq!(zero.check().unwrap_err().alone(), "socket=a\0: has a zero byte: must have none");
        let text = include_str!("../../../docs/vsock.md");
        assert!(text.contains(&format!("at least {CID_MIN};")) && text.contains(&format!("at most {PATH_MAX} bytes")));
    }
}
