// SPDX-License-Identifier: Apache-2.0
//! The Debian packages, in a clean Debian 12: they are installed, the first VM of their README runs, and nothing of them is left
//! when they are removed. The VM's kernel and initramfs are the tests' own, since this Debian has none, and its init is asked to
//! check its memory in place of whoever would type at the prompt.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use flatboot_bench::artifact;
use libtest_mimic::{Completion, Failed, Trial};

use super::lab::{Lab, require};

/// Where the packages are; without, the test is left out.
const PACKAGES: &str = "FLATBOOT_PACKAGES";
/// What systemd says of a unit at the most, from 0 to 10.
const EXPOSURE: f64 = 2.0;

pub(crate) fn trials() -> [Trial; 2] {
    [
        trial("packages::installed_in_a_clean_debian", installed),
        trial("packages::vms_that_systemd_keeps", super::unit::keeps_vms),
    ]
}

fn trial(name: &str, test: fn(&Lab, &Path) -> Result<(), Failed>) -> Trial {
    Trial::ignorable_test(name, move || {
        let Some(packages) = env::var_os(PACKAGES) else {
            return Ok(Completion::ignored_with("make packages-test runs it: it needs packages"));
        };
        test(Lab::get()?, Path::new(&packages)).map(|()| Completion::Completed)
    })
}

/// A directory with the root disk's files.
pub(crate) fn clean_debian(lab: &Lab) -> Result<PathBuf, Failed> {
    let root = lab.path("debian");
    if root.exists() {
        return Ok(root);
    }
    let (disk, _) = artifact::debian_disk()?;
    fs::create_dir(&root)?;
    let dumped =
        Command::new("/usr/sbin/debugfs").args(["-R", &format!("rdump / {}", root.display())]).arg(&disk).output()?;
    require(dumped.status.success() && root.join("usr").exists(), || {
        format!("{}: {}", disk.display(), String::from_utf8_lossy(&dumped.stderr))
    })?;
    Ok(root)
}

/// A copy of them is entered in the host that has KVM. One file in /run is what systemd-analyze leaves.
fn installed(lab: &Lab, packages: &Path) -> Result<(), Failed> {
    let root = clean_debian(lab)?;
    let script = format!(
        r#"
set -e
place=$(mktemp -d -p /dev/shm); mkdir $place/root
cp -a '{root}/.' $place/root
for name in dev proc sys; do mount --bind /$name $place/root/$name; done
cp '{packages}'/flatboot_*.deb '{packages}'/flatboot-firmware_*.deb '{packages}'/flatboot-bench_*.deb $place/root/root/
cp '{kernel}' $place/root/vmlinuz; cp '{initramfs}' $place/root/initrd.img
code=0; chroot $place/root /bin/sh -e -c '
    export DEBIAN_FRONTEND=noninteractive
    mkdir -p /run/systemd
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /root \) -prune -o -print | sort >/root/before
    dpkg -i /root/*.deb >/root/log 2>&1 || {{ cat /root/log; exit 1; }}
    flatboot check
    test -s /usr/share/man/man1/flatboot-run.1.gz -a -s /usr/share/man/man1/flatboot-bench.1.gz
    bash -n /usr/share/bash-completion/completions/flatboot
    sed -n "/^    flatboot run --kernel/,/--cmdline/p" /usr/share/doc/flatboot/README >/root/first
    sed -i "s/break=top/& flatboot.check=meminfo,calm/" /root/first
    grep -q flatboot.check /root/first
    sh -e /root/first </dev/null
    flatboot map --memory size=1G --kernel /vmlinuz >/dev/null
    flatboot-bench --version
    test -s /usr/share/flatboot/FLATBOOT.fd
    systemd-analyze security --offline=yes /lib/systemd/system/flatboot@.service | tail -n 1
    dpkg --purge flatboot-bench flatboot flatboot-firmware >/root/log 2>&1 || {{ cat /root/log; exit 1; }}
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /root -o -path /var/lib/dpkg -o -path /var/log \
        -o -path /var/cache -o -path /run/systemd/systemd-units-load \) -prune -o -print | sort >/root/after
    comm -13 /root/before /root/after
' || code=$?
umount $place/root/dev $place/root/proc $place/root/sys; rm -rf $place
exit $code
"#,
        root = root.display(),
        packages = packages.display(),
        kernel = lab.kernel.join("bzImage").display(),
        initramfs = lab.initramfs.display(),
    );
    let outcome = lab.shell_for(&script, Duration::from_secs(600))?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    require(outcome.code == 0 && said.contains(r#""check":"done","ok":true"#), seen)?;
    let (before, after) = said.split_once("Overall exposure level").ok_or_else(seen)?;
    let exposure = after.split_whitespace().find_map(|word| word.parse::<f64>().ok()).ok_or_else(seen)?;
    require(exposure <= EXPOSURE && before.contains("flatboot-bench "), seen)?;
    // One line of it is that of systemd; what comes behind is what has been left.
    require(after.trim_end().lines().count() == 1, seen)
}
