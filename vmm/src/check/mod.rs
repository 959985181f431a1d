// SPDX-License-Identifier: Apache-2.0
//! `flatboot check`: can this host run guests, what does it have, and what is missing.

mod host;
mod limits;

use std::path::Path;
use std::{fmt, io};

use kvm_ioctls::Kvm;
use serde::Serialize;

use crate::chain::chain;
use crate::cli::ExitStatus;
use crate::config::CpuCount;
use crate::memory::AddressWidth;
use crate::probe;
use crate::{stdio, vm};

pub use host::Fact;

/// What the check found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether guests can be booted here.
    pub usable: bool,
    /// What is wrong and what to do about it, in one line; none if usable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Most vCPUs that a VM can have here; none if KVM does not open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<usize>,
    /// Bits of a guest physical address; none if KVM does not open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_bits: Option<u8>,
    /// What the host has beside KVM.
    pub host: Vec<Fact>,
}

/// Opens KVM, asks what it can do, and runs the probe guest. Takes a few seconds at most.
#[must_use]
pub fn look() -> Report {
    let root = Path::new("/");
    let host = host::facts(root).into_iter().chain(limits::facts(root)).collect();
    let kvm = match vm::open_kvm() {
        Ok(kvm) => kvm,
        Err(error) => {
            return Report { usable: false, problem: Some(chain(&error)), vcpus: None, address_bits: None, host };
        }
    };
    let problem = probe::try_guest(None).err().map(|error| chain(&error));
    Report { usable: problem.is_none(), problem, vcpus: Some(vcpus(&kvm)), address_bits: address_bits(&kvm), host }
}

/// Prints what [`look`] finds and returns the process's exit status.
pub fn report(json: bool) -> io::Result<ExitStatus> {
    let report = look();
    let text = if json { serde_json::to_string(&report)? + "\n" } else { report.to_string() };
    if json && let Some(problem) = &report.problem {
        stdio::tell(problem);
    }
    stdio::print(&text)?;
    Ok(if report.usable { ExitStatus::Done } else { ExitStatus::Error })
}

/// KVM's limit, or flatboot's if that is lower.
fn vcpus(kvm: &Kvm) -> usize {
    kvm.get_max_vcpus().min(CpuCount::MAX.into())
}

fn address_bits(kvm: &Kvm) -> Option<u8> {
    vm::address_width(kvm).ok().map(AddressWidth::bits)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            None => writeln!(f, "{}: runs guests", vm::KVM_DEVICE)?,
            Some(problem) => writeln!(f, "{problem}")?,
        }
        if let (Some(vcpus), Some(bits)) = (self.vcpus, self.address_bits) {
            writeln!(f, "limits: {vcpus} vCPUs, {bits}-bit guest physical addresses")?;
        }
        writeln!(f)?;
        let width = self.host.iter().map(|fact| fact.name.len()).max().unwrap_or(0);
        self.host.iter().try_for_each(|Fact { name, found, costs }| match costs {
            None => writeln!(f, "{name:width$}  {found}"),
            Some(costs) => writeln!(f, "{name:width$}  {found}\n{:width$}  so {costs}", ""),
        })
    }
}
