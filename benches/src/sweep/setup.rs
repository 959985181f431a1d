// SPDX-License-Identifier: Apache-2.0
//! What a sweep needs before its first boot: programs, images, facts.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};
use object::Object;
use sha2::{Digest, Sha256};

use super::vmm::{Choice, Vmm};
use crate::artifact;
use crate::backend::Kvm;
use crate::observe::{Surroundings, surroundings};
use crate::results::{Facts, GuestFacts, HostFacts};

/// Finds the binary of `choice`: the named one, flatboot where it is built, QEMU in PATH.
pub(super) fn vmm(choice: &Choice) -> Result<Vmm> {
    let path = match (&choice.path, choice.kind) {
        (Some(path), _) => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
        (None, kind) if kind.is_flatboot() => artifact::needed_flatboot(None)?,
        (None, kind) if kind.is_qemu() => {
            let missing = "--vmm qemu: no qemu-system-x86_64 in PATH; install it or name it: qemu=PATH";
            in_path("qemu-system-x86_64").context(missing)?
        }
        (None, kind) => bail!("--vmm {kind}: name its binary"),
    };
    let option = || format!("--vmm {}={}", choice.kind, path.display());
    let meta = fs::metadata(&path).with_context(option)?;
    ensure!(meta.is_file(), "{}: not a file", option());
    ensure!(meta.permissions().mode() & 0o111 != 0, "{}: not executable", option());
    let program = path.to_str().with_context(|| format!("{}: not UTF-8", option()))?.to_owned();
    let firmware = choice.kind.is_uefi().then(artifact::firmware).transpose()?;
    Ok(Vmm { kind: choice.kind, program, firmware })
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// Facts about the images; `stock` is the kernel without the series, if that is booted too.
pub(super) fn guest(kernel: &Path, stock: Option<&Path>, initramfs: &Path) -> Result<GuestFacts> {
    let config = kernel.with_file_name("config");
    Ok(GuestFacts {
        kernel: kernel.file_name().unwrap_or(OsStr::new("")).to_string_lossy().into_owned(),
        build_id: build_id(kernel)?,
        config_sha256: fs::read(config).ok().map(|bytes| sha256(&bytes)),
        stock_build_id: stock.map(build_id).transpose()?.flatten(),
        initramfs_sha256: sha256(&read(initramfs)?),
        userland: None,
    })
}

/// What a disk of the cache was made by: its directory's name.
pub(super) fn recipe(disk: &Path) -> Option<String> {
    Some(disk.parent()?.file_name()?.to_string_lossy().into_owned())
}

/// The image's GNU build id, if it has one.
fn build_id(kernel: &Path) -> Result<Option<String>> {
    let image = read(kernel)?;
    let elf = object::File::parse(&*image);
    Ok(elf.ok().and_then(|elf| Some(hex(elf.build_id().ok()??))))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("{}: cannot be read", path.display()))
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// All facts of a sweep that begins now.
pub(super) fn facts(
    kvm: Kvm,
    host: &Surroundings,
    guest: GuestFacts,
    vmms: &[Vmm],
    programs: BTreeMap<String, String>,
) -> Facts {
    let mut versions: BTreeMap<_, _> = vmms
        .iter()
        .filter_map(|vmm| Some((vmm.kind.name().to_owned(), host.versions.get(&vmm.program)?.clone())))
        .collect();
    versions.insert("flatboot-bench".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    Facts {
        host: HostFacts {
            kvm: match kvm {
                Kvm::Real => "real".to_owned(),
                Kvm::Emulated => "emulated".to_owned(),
            },
            cpu_model: host.cpu_model.clone(),
            machine_cpu_model: (kvm == Kvm::Emulated).then(|| surroundings(&[]).cpu_model),
            cpus: host.cpus,
            memory_bytes: host.memory_bytes,
            kernel: host.kernel.clone(),
            thp: host.thp.clone(),
        },
        guest,
        versions,
        programs,
        revision: revision(),
        began_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs()),
    }
}

/// SHA-256 of all that is not the guest's: `tables` makes tables for VMMs.
pub(super) fn programs(vmms: &[Vmm], tables: Option<&Path>) -> Result<BTreeMap<String, String>> {
    let own = vmms.iter().map(|vmm| (vmm.kind.name(), Path::new(&vmm.program)));
    let firmware = vmms.iter().filter_map(|vmm| Some(("firmware", vmm.firmware.as_deref()?)));
    let tables = tables.map(|path| ("tables", path));
    own.chain(firmware).chain(tables).map(|(name, path)| Ok((name.to_owned(), hash(path)?))).collect()
}

/// SHA-256 of a file.
pub(super) fn hash(path: &Path) -> Result<String> {
    Ok(sha256(&read(path)?))
}

/// What git calls the source tree around this program or the working directory.
fn revision() -> Option<String> {
    let tree = artifact::source_tree()?;
    let output = Command::new("git").arg("-C").arg(tree).args(["describe", "--always", "--dirty"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::vmm::Kind;

    #[test]
    fn hashes_are_those_that_everyone_computes() {
        // FIPS 180-2, appendix B.1.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), abc);
    }

    #[test]
    fn a_vmm_that_is_not_a_program_is_refused() {
        let plain = tempfile::NamedTempFile::new().unwrap();
        let choose = |path: &Path| vmm(&Choice { kind: Kind::Qemu, path: Some(path.to_path_buf()) });
        for (path, why) in
            [(plain.path(), "not executable"), (Path::new("/"), "not a file"), (Path::new("/nowhere"), "No such file")]
        {
            let error = format!("{:#}", choose(path).unwrap_err());
            assert!(error.contains(why) && error.contains(&path.display().to_string()), "{error}");
        }
        assert_eq!(choose(Path::new("/bin/sh")).unwrap().program, "/bin/sh");
    }
}
