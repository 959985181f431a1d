// SPDX-License-Identifier: Apache-2.0
//! Modules of a kernel that has its drivers in such: a distribution's.

use std::fs::File;
use std::path::Path;

use serde_json::json;

use crate::outcome::Outcome;
use crate::{files, report};

/// Loads what is in `/modules/RELEASE` for the kernel of that release, in the order that the file `order` there says. Of what
/// cannot be loaded there is one line, which fails no check: what needs the module will.
pub(crate) fn load() {
    let uname = rustix::system::uname();
    let directory = Path::new("/modules").join(uname.release().to_string_lossy().as_ref());
    let Ok(order) = files::text(directory.join("order")) else { return };
    for name in order.lines() {
        if let Err(error) = load_one(&directory.join(name)) {
            report::print(&json!({ "check": "module", "ok": false, "module": name, "error": error.to_string() }));
        }
    }
}

fn load_one(path: &Path) -> std::io::Result<()> {
    let module = File::open(path)?;
    match rustix::system::finit_module(&module, c"", 0) {
        // Built in, or brought by another.
        Err(rustix::io::Errno::EXIST) => Ok(()),
        result => Ok(result?),
    }
}

/// Whether each of `wanted`, names with `:` between them, is loaded.
pub(crate) fn loaded(wanted: &str) -> Outcome {
    let text = files::text("/proc/modules")?;
    let modules: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    Ok((wanted.split(':').all(|name| modules.contains(&name)), json!({ "modules": modules })))
}
