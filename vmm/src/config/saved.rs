// SPDX-License-Identifier: Apache-2.0
//! Configurations of VMs that are saved, and that go on from what was saved: there some of it may be another one.

use serde_json::{Map, Value};

use super::field::FieldError;
use super::net::{self, NetOption};
use super::numa;
use super::vm::VmConfig;
use crate::field::Field;

/// Sections that a VM may have others of when it is restored: its ends on the host.
pub const RENEWABLE: [&str; 11] = [
    "disks",
    "net",
    "vsock",
    "console",
    "rng",
    "serial",
    "serial_limit",
    "timeline",
    "restart_on_reset",
    "landlock_enable",
    "shutdown_timeout",
];

/// The interfaces.
const NET: &str = "net";
const MEMORY: Field = Field::section("memory");
const CONFIG: Field = Field::section("config");
const FIRMWARE: Field = Field::of("payload", "firmware");
/// What a guest knows a network interface by.
const MAC: &str = "mac";
/// And its owner any device.
const ID: &str = "id";

impl VmConfig {
    /// Finds what keeps a VM from being saved that has run with this.
    pub fn check_savable(&self) -> Result<(), FieldError> {
        if let Some(firmware) = &self.payload.firmware {
            let must = "a VM that starts through firmware cannot be saved: must be one that starts with a kernel";
            return Err(FieldError::of(FIRMWARE, &firmware.display(), must));
        }
        let (_, zones) = numa::resolved(&self.numa, &self.cpus, &self.memory)?;
        if zones.iter().any(|zone| zone.backing.shared || zone.backing.pages.is_huge()) {
            let must = "in a memfd or a pool of huge pages cannot be saved: must be with hugepages=off and shared=off";
            return Err(FieldError::without_value(MEMORY, must));
        }
        // What is saved is JSON.
        match serde_json::to_value(self) {
            Ok(_) => Ok(()),
            Err(_) => Err(FieldError::without_value(CONFIG, "has a path that is not UTF-8: must be UTF-8 to be saved")),
        }
    }

    /// The configuration of a VM that goes on from one that was saved with this, with other `sections`, each of them whole. A device
    /// that has no name or address there keeps the one that it had.
    pub fn renewed(&self, sections: Map<String, Value>) -> Result<Self, String> {
        let Ok(Value::Object(mut config)) = serde_json::to_value(self) else {
            return Err("has a path that is not UTF-8: must be UTF-8".to_owned());
        };
        // Of that number this process may have another one, and even a tap.
        let descriptor = self.net.iter().position(NetOption::is_descriptor).filter(|_| !sections.contains_key(NET));
        if let Some(index) = descriptor {
            let fds = net::OPTION.at(index).member("fds");
            return Err(format!("{fds}: was a descriptor of another process: must be given again"));
        }
        // What was written at its first start is not overwritten.
        config.remove("timeline");
        for (name, mut section) in sections {
            if !RENEWABLE.contains(&name.as_str()) {
                let list = RENEWABLE.join(", ");
                return Err(format!("{name}: is as it was saved: must be absent; what may be another one is {list}"));
            }
            if let Some(saved) = config.get(&name) {
                keep_names(saved, &mut section, &name)?;
            }
            config.insert(name, section);
        }
        let renewed = Self::from_value(&Value::Object(config))?;
        if renewed.vsock.is_some() != self.vsock.is_some() {
            return Err("vsock: must be there if it was, and only then".to_owned());
        }
        Ok(renewed)
    }

    /// Of its sections those called `names`, for another one to be [renewed](Self::renewed) with. One that is not there is null.
    pub fn sections(&self, names: &[&str]) -> Result<Map<String, Value>, String> {
        let Ok(Value::Object(mut config)) = serde_json::to_value(self) else {
            return Err("has a path that is not UTF-8: must be UTF-8".to_owned());
        };
        Ok(names.iter().map(|name| ((*name).to_owned(), config.remove(*name).unwrap_or_default())).collect())
    }
}

/// As many devices as were `saved`; each of them has the names of the one that it takes the place of, unless it brings its own.
fn keep_names(saved: &Value, section: &mut Value, name: &str) -> Result<(), String> {
    match (saved, section) {
        (Value::Array(saved), Value::Array(section)) => {
            if saved.len() != section.len() {
                return Err(format!("{name}: {} given: must be {}, as many as were saved", section.len(), saved.len()));
            }
            saved.iter().zip(section).try_for_each(|(saved, device)| keep_names(saved, device, name))
        }
        (Value::Object(saved), Value::Object(device)) => {
            for key in [ID, MAC] {
                if let Some(was) = saved.get(key).filter(|_| device.get(key).is_none_or(Value::is_null)) {
                    device.insert(key.to_owned(), was.clone());
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;
    use crate::config::{RawConfig, ShapeArgs};

    fn saved() -> VmConfig {
        saved_with(&["tap=vm0,mac=52:54:00:12:34:56"])
    }

    fn saved_with(nets: &[&str]) -> VmConfig {
        let raw = RawConfig {
            kernel: Some("k".into()),
            disks: vec!["path=a,readonly=on,id=root".to_owned(), "path=b".to_owned()],
            nets: nets.iter().map(|net| (*net).to_owned()).collect(),
            ..RawConfig::default()
        };
        let mut vm = VmConfig::try_from(raw).unwrap();
        vm.name_devices();
        vm
    }

    fn renewed(sections: Value) -> Result<VmConfig, String> {
        let Value::Object(sections) = sections else { panic!("no object") };
        saved().renewed(sections)
    }

    #[test]
    fn without_anything_it_is_the_same() {
        assert_eq!(renewed(json!({})), Ok(saved()));
    }

    #[test]
    fn devices_keep_what_they_are_known_by() {
        let vm = renewed(json!({
            "disks": [{"path": "c", "readonly": true}, {"path": "d", "id": "data"}],
            "net": [{"tap": "vm1"}],
            "serial": {"mode": "File", "file": "other"},
        }));
        let json: Value = serde_json::from_str(&vm.unwrap().to_json().unwrap()).unwrap();
        let text = |pointer: &str| json.pointer(pointer).unwrap().as_str().unwrap().to_owned();
        let was: Value = serde_json::from_str(&saved().to_json().unwrap()).unwrap();
        assert_eq!((text("/disks/0/path"), text("/disks/0/id")), ("c".to_owned(), "root".to_owned()));
        assert_eq!((text("/disks/1/path"), text("/disks/1/id")), ("d".to_owned(), "data".to_owned()));
        assert_eq!((text("/net/0/tap"), text("/net/0/mac")), ("vm1".to_owned(), "52:54:00:12:34:56".to_owned()));
        assert_eq!(text("/serial/file"), "other");
        assert_eq!(json["memory"], was["memory"]);
    }

    #[test]
    fn a_descriptor_is_that_of_another_process() {
        let vm = saved_with(&["tap=vm0", "fd=9,mac=52:54:00:12:34:56"]);
        let expected = "net[1].fds: was a descriptor of another process: must be given again";
        assert_eq!(vm.renewed(Map::new()).unwrap_err(), expected);
        let Value::Object(disks) = json!({"disks": [{"path": "c"}, {"path": "d"}]}) else { panic!("no object") };
        assert_eq!(vm.renewed(disks).unwrap_err(), expected);
        let Value::Object(net) = json!({"net": [{"tap": "vm0"}, {"fds": [7]}]}) else { panic!("no object") };
        let json: Value = serde_json::from_str(&vm.renewed(net).unwrap().to_json().unwrap()).unwrap();
        assert_eq!((&json["net"][1]["fds"], &json["net"][1]["mac"]), (&json!([7]), &json!("52:54:00:12:34:56")));
    }

    #[test]
    fn what_the_guest_depends_on_stays() {
        for (sections, expected) in [
            (json!({"memory": {"size": 1}}), "memory: is as it was saved: must be absent; "),
            (json!({"disks": []}), "disks: 0 given: must be 2, as many as were saved"),
            (json!({"vsock": {"cid": 3, "socket": "v"}}), "vsock: must be there if it was, and only then"),
            (json!({"net": [{"tap": "a b"}]}), "net[0].tap=a b: must be the name of an interface"),
        ] {
            let error = renewed(sections).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_saved_is_said() {
        let with = |memory: &str, firmware: Option<&str>| {
            let shape = ShapeArgs { memory: Some(memory.to_owned()), ..ShapeArgs::default() };
            let raw = RawConfig {
                kernel: Some("k".into()),
                firmware: firmware.map(Into::into),
                shape,
                ..RawConfig::default()
            };
            VmConfig::try_from(raw).unwrap().check_savable().map_err(|error| error.to_string())
        };
        assert_eq!(with("size=1G", None), Ok(()));
        let must =
            "memory: in a memfd or a pool of huge pages cannot be saved: must be with hugepages=off and shared=off";
        assert_eq!(with("size=1G,shared=on", None), Err(must.to_owned()));
        assert_eq!(with("size=1G,hugepages=on", None), Err(must.to_owned()));
        let must = "a VM that starts through firmware cannot be saved: must be one that starts with a kernel";
        assert_eq!(with("size=1G", Some("f")), Err(format!("payload.firmware=f: {must}")));
        let kernel = Some(PathBuf::from(OsString::from_vec(b"k\xff".to_vec())));
        let vm = VmConfig::try_from(RawConfig { kernel, ..RawConfig::default() }).unwrap();
        let must = "config: has a path that is not UTF-8: must be UTF-8 to be saved";
        assert_eq!(vm.check_savable().unwrap_err().to_string(), must);
    }
}
