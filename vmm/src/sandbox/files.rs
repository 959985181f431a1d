// SPDX-License-Identifier: Apache-2.0
//! Landlock: what is left of the file system once every file that the options name is open.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};

use super::JailError;

/// Where Linux says what this host has: memory, limits, what was ignored when this process was started.
const READ: [&str; 2] = ["/proc", "/sys"];
const KVM: &str = "/dev/kvm";

/// Rules that allow nothing but what is added to them. Files are kept away by any kernel that has Landlock; TCP ports (since Linux
/// 6.7), and signals and abstract sockets of others (since 6.12), by one that can.
fn rules(scopes: BitFlags<Scope>) -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V5))?
        .handle_access(AccessNet::from_all(ABI::V4))?
        .scope(scopes)?
        .create()
}

/// Whether this kernel has Landlock, and has it on.
pub(super) fn can_be_kept_away() -> bool {
    rules(Scope::from_all(ABI::V6)).is_ok()
}

/// What is still to be opened before the guest runs, by this thread and those that it starts.
pub(super) fn restrict(created: &[PathBuf]) -> Result<(), JailError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let beneath = |path: &Path, access| PathFd::new(path).ok().map(|fd| Ok(PathBeneath::new(fd, access)));
    let directories = created.iter().map(|file| match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    });
    // What is not there cannot be opened anyway, and is missed by whoever wants it.
    let rules_of = READ.iter().filter_map(|path| beneath(Path::new(path), read));
    let kvm = beneath(Path::new(KVM), device);
    let remove = directories.filter_map(|path| beneath(path, AccessFs::RemoveFile.into()));
    let all: Vec<Result<_, RulesetError>> = rules_of.chain(kvm).chain(remove).collect();
    rules(Scope::from_all(ABI::V6))?.add_rules(all)?.restrict_self()?;
    Ok(())
}

/// Rules that allow nothing.
#[derive(Debug)]
pub(super) struct Nothing(RulesetCreated);

impl Nothing {
    /// For threads that are not in a domain already, if they are `alone`. In one that threads of this process share, signals to
    /// others are kept from them already; each in one of its own, they could not interrupt one another on a Linux with erratum 2.
    pub(super) fn new(alone: bool) -> Result<Self, JailError> {
        let scopes = if alone { Scope::from_all(ABI::V6) } else { Scope::AbstractUnixSocket.into() };
        Ok(Self(rules(scopes)?))
    }

    /// From now on this thread, and what it starts, opens nothing.
    pub(super) fn enter(&self) -> Result<(), JailError> {
        self.0.try_clone().map_err(JailError::Rules)?.restrict_self()?;
        Ok(())
    }
}
