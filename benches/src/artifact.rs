// SPDX-License-Identifier: Apache-2.0
//! Finds what a run needs besides the user's files: the inits, flatboot, the host kernel.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{env, fs, process};

use anyhow::{Context, Result, ensure};

/// The directory of the running binary; for a test binary the one above its `deps`.
fn own_directory() -> Result<PathBuf> {
    let own = env::current_exe().context("cannot find this program's own path")?;
    let directory = own.parent().unwrap_or(Path::new("/"));
    let directory = if directory.ends_with("deps") { directory.parent().unwrap_or(directory) } else { directory };
    Ok(directory.to_path_buf())
}

/// Where what belongs to this program is, best first. What VMs run and are run by is the release build, where there is one, for a
/// debug build's tests, too: its code is emulated.
fn beside(own: &Path) -> impl Iterator<Item = PathBuf> {
    let released = own.ends_with("debug").then(|| own.with_file_name("release"));
    released.into_iter().chain([own.to_path_buf()])
}

/// The path of one of this package's own binaries, which cargo puts beside each other; an installed one has those that nobody
/// calls by name in a folder of their own.
pub fn own_binary(name: &'static str) -> Result<PathBuf> {
    let own = own_directory()?;
    let mut paths = beside(&own).chain([own.join("../lib/flatboot")]).map(|directory| directory.join(name));
    paths.find(|path| path.is_file()).with_context(|| {
        format!("{name}: not found beside {}; `cargo build -p flatboot-bench` builds it", own.display())
    })
}

/// The flatboot binary: `given`, else `FLATBOOT`, else beside this program, else the tree's release and debug builds.
#[must_use]
pub fn flatboot(given: Option<&Path>) -> Option<PathBuf> {
    let named = given.map(Path::to_path_buf).or_else(|| env::var_os("FLATBOOT").map(PathBuf::from));
    if named.is_some() {
        return named;
    }
    let own = own_directory().ok();
    let beside = own.iter().flat_map(|own| beside(own)).map(|directory| directory.join("flatboot"));
    let tree = source_tree();
    let built = ["release", "debug"].into_iter().filter_map(|profile| {
        Some(tree.as_ref()?.join("target/x86_64-unknown-linux-gnu").join(profile).join("flatboot"))
    });
    beside.chain(built).find(|path| path.is_file())
}

/// The same; an error says what to do without.
pub fn needed_flatboot(given: Option<&Path>) -> Result<PathBuf> {
    flatboot(given).context(
        "cannot tell whether this machine's KVM is usable: no flatboot binary; build it, name it with --flatboot or FLATBOOT, \
         or set FLATBOOT_KVM to real or emulated",
    )
}

/// The host kernel's image: in `given`, else in `FLATBOOT_HOST_KERNEL`, else built (or taken from its cache) by the source
/// tree's `guest-kernel/build.sh host`, whose progress goes to standard error.
pub fn host_kernel(given: Option<&Path>) -> Result<PathBuf> {
    let named = given.map(Path::to_path_buf).or_else(|| env::var_os("FLATBOOT_HOST_KERNEL").map(PathBuf::from));
    let directory = match named {
        Some(directory) => directory,
        None => kernel("host")?,
    };
    let path = directory.join("bzImage");
    fs::File::open(&path).with_context(|| format!("{}: no kernel image there", path.display()))?;
    Ok(path)
}

/// The directory of the kernel that the source tree's `guest-kernel/build.sh` calls `name`: built, or taken from its cache.
/// `FLATBOOT_GUEST_KERNEL` names another one to take in the place of `guest`.
pub fn kernel(name: &str) -> Result<PathBuf> {
    match env::var_os("FLATBOOT_GUEST_KERNEL") {
        Some(directory) if name == "guest" => Ok(directory.into()),
        _ => built(&format!("{name} kernel"), instead(name), BUILD_SCRIPT, &[name.as_ref()]),
    }
}

/// What to do where the source tree cannot build the kernel called `name`.
fn instead(name: &str) -> &'static str {
    match name {
        "guest" => "set FLATBOOT_GUEST_KERNEL to a directory that has it, or ",
        "host" => "set FLATBOOT_HOST_KERNEL to a directory that has it, or ",
        "stock" => "name it with --stock-kernel, or ",
        _ => "",
    }
}

/// Modules that the guest's initramfs is to bring along, a directory for each kernel's release: of the kernel that
/// `FLATBOOT_GUEST_KERNEL` names, if it comes with any.
#[must_use]
pub fn guest_modules() -> Option<PathBuf> {
    let modules = Path::new(&env::var_os("FLATBOOT_GUEST_KERNEL")?).join("modules");
    modules.is_dir().then_some(modules)
}

/// The Debian 12 root disk, built or taken from its cache, and the initramfs of the guest's kernel, if that comes as a package
/// with its drivers in modules.
pub fn debian_disk() -> Result<(PathBuf, Option<PathBuf>)> {
    let package = kernel_package();
    let args: Vec<&OsStr> = package.iter().map(|path| path.as_os_str()).collect();
    let disk = built("Debian disk", "", DISK_SCRIPT, &args)?;
    let initramfs = package.map(|_| disk.with_file_name("initrd.img"));
    Ok((disk, initramfs))
}

/// The root disk with programs that keep a VM at work, built or taken from its cache.
pub fn work_disk() -> Result<PathBuf> {
    built("Debian disk for workloads", "", DISK_SCRIPT, &["--work".as_ref()])
}

/// The Debian package of the kernel that `FLATBOOT_GUEST_KERNEL` names, if it is one.
fn kernel_package() -> Option<PathBuf> {
    let names = fs::read_dir(env::var_os("FLATBOOT_GUEST_KERNEL")?).ok()?;
    let mut paths = names.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("linux-image-") && name.ends_with(".deb")
    })
}

/// The guest's kernel as a user of Debian starts it: the image in /boot if it is a package, else the one without compression.
pub fn debian_kernel() -> Result<PathBuf> {
    Ok(kernel("guest")?.join(if kernel_package().is_some() { "bzImage" } else { "vmlinux" }))
}

/// The UEFI firmware's image: built, or taken from its cache.
pub fn firmware() -> Result<PathBuf> {
    Ok(built("UEFI firmware", "", "firmware/build.sh", &["release".as_ref()])?.join("FLATBOOT.fd"))
}

/// A disk that UEFI firmware boots: the Debian 12 root file system and, as a unified kernel image, the patched kernel.
pub fn efi_disk() -> Result<PathBuf> {
    let (root, initramfs) = debian_disk()?;
    let kernel = kernel("guest")?.join("bzImage");
    let parts = [Some(root), Some(kernel), initramfs];
    let args: Vec<&OsStr> = parts.iter().flatten().map(|path| path.as_os_str()).collect();
    Ok(built("disk for UEFI firmware", "", "benches/userland/efi-disk.sh", &args)?.join("disk.img"))
}

/// Debian's own kernel for clouds, unmodified: its compressed image.
pub fn debian_cloud_kernel() -> Result<PathBuf> {
    built("Debian cloud kernel", "", "benches/userland/debian-cloud-kernel.sh", &[])
}

/// Runs a script of the source tree, whose progress goes to standard error and whose last line of output is a path. Without a
/// tree the error says that there is no `what`, and what to do `instead`.
fn built(what: &str, instead: &str, script: &str, args: &[&OsStr]) -> Result<PathBuf> {
    let tree = source_tree().with_context(|| match around_here() {
        Some(tree) => format!(
            "no {what}: {}: its scripts are not run, as others may have written them: must be this user's alone",
            tree.display()
        ),
        None => format!("no {what}: {instead}run this inside Flatboot's source tree, which builds it"),
    })?;
    let script = tree.join(script);
    let output = process::Command::new(&script).args(args).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("{}: cannot run it", script.display()))?;
    ensure!(output.status.success(), "{}: {}", script.display(), output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(PathBuf::from(text.lines().last().unwrap_or_default()))
}

const BUILD_SCRIPT: &str = "guest-kernel/build.sh";
const DISK_SCRIPT: &str = "benches/userland/debian.sh";

/// The source tree around the working directory or around this program, found at run time: a binary that was moved
/// elsewhere knows no path of the machine that built it. Scripts of it are run, so around the working directory, which may be below
/// one that others write to, it has to be the user's own, or root's.
pub(crate) fn source_tree() -> Option<PathBuf> {
    let own = own_directory().ok().and_then(|start| tree_around(&start));
    around_here().filter(|tree| Some(tree) == own.as_ref() || is_trusted(tree)).or(own)
}

fn around_here() -> Option<PathBuf> {
    env::current_dir().ok().and_then(|start| tree_around(&start))
}

fn tree_around(start: &Path) -> Option<PathBuf> {
    start.ancestors().find(|directory| directory.join(BUILD_SCRIPT).is_file()).map(Path::to_path_buf)
}

/// Whether nobody but this user and root can have put `tree` and its scripts there. What belongs to root can be a group's, too.
fn is_trusted(tree: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    [tree.to_owned(), tree.join("guest-kernel"), tree.join(BUILD_SCRIPT)].iter().all(|path| {
        path.symlink_metadata().is_ok_and(|there| match there.uid() {
            0 => there.mode() & 0o022 == 0,
            owner => owner == user && there.mode() & 0o002 == 0,
        })
    })
}

/// Where builds and logs are kept: `FLATBOOT_CACHE`, else flatboot/ in the user's cache directory.
#[must_use]
pub fn cache_directory() -> PathBuf {
    let user = || env::var_os("XDG_CACHE_HOME").map(|cache| PathBuf::from(cache).join("flatboot"));
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/flatboot"));
    let given = env::var_os("FLATBOOT_CACHE").map(PathBuf::from);
    given.or_else(user).or_else(home).unwrap_or_else(|| env::temp_dir().join("flatboot"))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_tree_that_anybody_may_write_to_is_not_trusted() {
        let tree = tempfile::tempdir().unwrap();
        let script = tree.path().join(BUILD_SCRIPT);
        fs::create_dir(script.parent().unwrap()).unwrap();
        assert!(!is_trusted(tree.path()), "it has no script");
        fs::write(&script, "").unwrap();
        let with = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            is_trusted(tree.path())
        };
        assert!(with(&script, 0o755) && with(tree.path(), 0o755));
        assert!(!with(tree.path(), 0o777));
        assert!(with(tree.path(), 0o755) && !with(&script, 0o757));
    }
}
