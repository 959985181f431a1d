// SPDX-License-Identifier: Apache-2.0
//! Sweeps of a fake VMM on this machine: everything but the guests is real.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use flatboot_bench::results::{self, End, Results};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A directory with a fake VMM and a kernel that nobody reads.
struct Lab {
    directory: TempDir,
}

/// What every fake does first: it takes the part of QEMU, whose mark port is a FIFO that its last -chardev names, and
/// answers to --version.
const PROLOGUE: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "fake 1.0"; exit 0; }
for word; do case $word in file,id=marks,path=*) marks=${word#file,id=marks,path=};; memmap*|*memmap_init=*) cmdline=$word;; esac; done
"#;
/// A boot that reaches init.
const INIT: &str = r#"printf '\100\101' > "$marks"; echo 'FLATBOOT {"check":"start"}'; exec sleep 1000"#;

impl Lab {
    fn new(script: &str) -> Self {
        let lab = Self { directory: tempfile::tempdir().unwrap() };
        fs::write(lab.path("vmlinux"), "not read by a fake").unwrap();
        lab.fake("vmm", script);
        lab
    }

    fn fake(&self, name: &str, script: &str) {
        fs::write(self.path(name), format!("{PROLOGUE}{script}\n")).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        self.command_of("run", args)
    }

    fn command_of(&self, verb: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flatboot-bench"));
        command.env("FLATBOOT_KVM", "real").current_dir(self.directory.path()).stdin(Stdio::null());
        command.arg(verb);
        for [option, value] in [["--kernel", "vmlinux"], ["--out", "r.json"]] {
            if !args.contains(&option) {
                command.args([option, value]);
            }
        }
        command.args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn results(&self) -> Results {
        results::load(&self.path("r.json")).unwrap()
    }

    /// All that lies in the directory.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fails with one line that has all `words`, exit code 2, and leaves the directory as it was.
fn refuses(lab: &Lab, args: &[&str], words: &[&str]) {
    let before = lab.names();
    let output = lab.run(args);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    let errors: Vec<_> =
        text.lines().filter(|line| line.contains("error") || line.starts_with("flatboot-bench: ")).collect();
    assert_eq!(errors.len(), 1, "{args:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{args:?}: {word} is not in {text}");
    }
    assert_eq!(lab.names(), before, "{args:?}");
}

#[test]
fn rounds_are_interleaved_and_every_boot_is_kept() {
    let lab = Lab::new(INIT);
    let output = lab.run(&["--vmm", "qemu=vmm", "--memory", "1G,2G", "--mode", "serial,parallel", "--runs", "2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let results = lab.results();
    assert!(results.is_complete() && results.sweep.variants.len() == 4);
    let order: Vec<_> = results.boots.iter().map(|boot| (boot.round, boot.variant)).collect();
    let expected: Vec<_> = (0..3).flat_map(|round| (0..4).map(move |variant| (round, variant))).collect();
    assert_eq!(order, expected);
    for boot in &results.boots {
        let End::Init(sample) = &boot.end else { panic!("{boot:?}") };
        assert!(sample.by_mark && sample.init_ns > 0 && sample.host_memory_bytes > 0, "{sample:?}");
        assert_eq!(
            sample.marks.iter().map(|mark| mark.name.as_str()).collect::<Vec<_>>(),
            ["kernel-entry", "init-exec"]
        );
    }
    assert_eq!(results.facts.versions["qemu"], "fake 1.0");
    assert_eq!(lab.names(), ["r.json", "vmlinux", "vmm"]);
}

#[test]
fn the_mode_and_its_threads_reach_the_kernel() {
    let lab = Lab::new(&format!("echo \"$cmdline\" >> cmdlines; {INIT}"));
    let args = ["--vmm", "qemu=vmm", "--memory", "1G", "--mode", "serial,parallel", "--threads", "50%", "--runs", "1"];
    assert!(lab.run(&args).status.success());
    let cmdlines = fs::read_to_string(lab.path("cmdlines")).unwrap();
    let ends: Vec<_> = cmdlines.lines().map(|line| line.split_once(" flatboot.end=hang ").unwrap().1).collect();
    assert_eq!(ends[..2], ["memmap_init=serial", "memmap_init=parallel memmap_init_threads=50%"]);
}

#[test]
fn a_part_that_is_switched_off_reaches_the_kernel_and_the_file() {
    let lab = Lab::new(&format!("echo \"$cmdline\" >> cmdlines; {INIT}"));
    let args = ["--vmm", "qemu=vmm", "--memory", "1G", "--without", "async,low-zones", "--runs", "1"];
    let output = lab.run(&args);
    assert!(output.status.success(), "{}", stderr(&output));
    let cmdlines = fs::read_to_string(lab.path("cmdlines")).unwrap();
    let ends: Vec<_> = cmdlines.lines().map(|line| line.split_once(" flatboot.end=hang ").unwrap().1).collect();
    assert_eq!(
        ends[..3],
        ["memmap_init=async", "memmap_init=async memmap_init=parallel", "memmap_init=async memmap_init_early=4G"]
    );
    let variants = lab.results().sweep.variants;
    let without: Vec<_> = variants.iter().map(|variant| variant.without.as_deref()).collect();
    assert_eq!(without, [None, Some("async"), Some("low-zones")]);
    assert!(variants.iter().all(|variant| variant.mode == "async"));
}

#[test]
fn the_stock_kernel_is_a_mode() {
    // QEMU's adapter names the staged kernel after -kernel.
    let kernel =
        "while [ $# -gt 0 ]; do [ \"$1\" = -kernel ] && kernel=$2; [ \"$1\" = -append ] && cmdline=$2; shift; done";
    let lab = Lab::new(&format!("{kernel}; echo \"$(cat \"$kernel\"): $cmdline\" >> boots; {INIT}"));
    fs::write(lab.path("old"), "stock").unwrap();
    let args = ["--vmm", "qemu=vmm", "--memory", "1G", "--mode", "stock,async", "--threads", "2", "--runs", "1"];
    let output = lab.run(&[&args[..], &["--stock-kernel", "old"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let boots = fs::read_to_string(lab.path("boots")).unwrap();
    let boots: Vec<_> = boots.lines().map(|line| line.split_once(": ").unwrap()).collect();
    assert_eq!((boots[0].0, boots[1].0), ("stock", "not read by a fake"));
    // The mode has no word of its own, and no threads to cap.
    assert!(boots[0].1.ends_with(" flatboot.end=hang"), "{}", boots[0].1);
    assert!(boots[1].1.ends_with(" memmap_init=async memmap_init_threads=2"), "{}", boots[1].1);
    let modes: Vec<_> =
        lab.results().sweep.variants.into_iter().map(|variant| (variant.mode, variant.threads)).collect();
    assert_eq!(modes, [("stock".to_owned(), None), ("async".to_owned(), Some("2".to_owned()))]);
    refuses(
        &lab,
        &["--vmm", "qemu=vmm", "--mode", "stock", "--stock-kernel", "nowhere", "--out", "n.json"],
        &["nowhere"],
    );
}

#[test]
fn guests_are_watched_as_long_as_they_are_asked_to() {
    let lab = Lab::new(
        r#"echo "$cmdline" > cmdline; printf '\101' > "$marks"; echo 'FLATBOOT {"check":"start"}'; sleep 0.1
        printf '\110' > "$marks"; echo 'FLATBOOT {"check":"settle","ok":true}'; exec sleep 1000"#,
    );
    let args = ["--vmm", "qemu=vmm", "--memory", "1G", "--mode", "async", "--runs", "1"];
    let output = lab.run(&[&args[..], &["--until", "filled"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(fs::read_to_string(lab.path("cmdline")).unwrap().contains(" flatboot.check=settle "));
    for boot in &lab.results().boots {
        let End::Init(sample) = &boot.end else { panic!("{boot:?}") };
        let marks: Vec<_> = sample.marks.iter().map(|mark| mark.name.as_str()).collect();
        assert_eq!(marks, ["init-exec", "deferred-end"]);
        assert!(sample.marks[1].ns >= sample.init_ns, "{sample:?}");
    }
    // What was watched for longer is not the same sweep.
    refuses(&lab, &[&args[..], &["--resume"]].concat(), &["r.json", "command line"]);
}

#[test]
fn failed_and_hung_boots_are_results() {
    let lab = Lab::new(INIT);
    lab.fake("dies", "echo 'Kernel panic - not syncing'; echo no such device >&2; exit 7");
    lab.fake("hangs", "echo booting; exec sleep 1000");
    let vmms = "qemu=vmm,firecracker=dies,cloud-hypervisor=hangs";
    let output = lab.run(&["--vmm", vmms, "--memory", "1G", "--mode", "serial", "--runs", "1", "--timeout", "1"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let results = lab.results();
    let why = |index: usize| match &results.boots[index].end {
        End::Failed { why, console } => (why.clone(), console.join("|")),
        End::Init(sample) => panic!("{sample:?}"),
    };
    assert!(matches!(results.boots[3].end, End::Init(_)));
    assert!(why(4).0.contains("exit status: 7") && why(4).0.contains("no such device"), "{:?}", why(4));
    assert_eq!(why(4).1, "Kernel panic - not syncing");
    assert!(why(5).0.starts_with("no init within 1 s"), "{:?}", why(5));
    assert!(stderr(&output).contains("FAILED"), "{}", stderr(&output));
}

/// Waits until `ready`; a test that hangs is ended by its runner.
fn wait_for(ready: impl Fn() -> bool) {
    let since = Instant::now();
    while !ready() {
        assert!(since.elapsed() < Duration::from_secs(120), "it never came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_stopped_sweep_is_resumed_where_it_was() {
    // The fourth boot hangs until it is told not to.
    let script = format!("echo x >> count; [ $(wc -l < count) = 4 ] && {{ echo $$ > pid; exec sleep 1000; }}; {INIT}");
    let lab = Lab::new(&script);
    let args = ["--vmm", "qemu=vmm", "--memory", "1G,2G", "--mode", "serial", "--runs", "1"];
    let mut sweep = lab.command(&args).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(|| fs::read_to_string(lab.path("pid")).is_ok_and(|pid| pid.ends_with('\n')));
    refuses(&lab, &[&args[..], &["--resume"]].concat(), &["--out r.json", "another sweep writes it"]);
    kill_process(Pid::from_raw(i32::try_from(sweep.id()).unwrap()).unwrap(), Signal::INT).unwrap();
    assert_eq!(sweep.wait().unwrap().code(), Some(3));
    let pid = fs::read_to_string(lab.path("pid")).unwrap();
    wait_for(|| !Path::new("/proc").join(pid.trim()).exists());
    let stopped = lab.results();
    assert_eq!(stopped.boots.len(), 3, "the boot in flight is lost, and no other");

    refuses(&lab, &args, &["r.json", "exists", "--resume"]);
    let other = ["--vmm", "qemu=vmm", "--memory", "1G,2G", "--mode", "serial", "--runs", "2", "--resume"];
    refuses(&lab, &other, &["--runs", "1 in the file, 2 now"]);
    let output = lab.run(&[&args[..], &["--resume"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let resumed = lab.results();
    assert!(resumed.is_complete() && resumed.boots[..2] == stopped.boots[..2]);
    assert_ne!(resumed.boots[2], stopped.boots[2], "boots of one round run right after one another");
    let boots = || fs::read_to_string(lab.path("count")).unwrap().lines().count();
    assert_eq!(boots(), 4 + 2 + 2, "a warm-up round of the resumed sweep's own comes first");
    // Of a complete sweep nothing is left to do.
    assert!(lab.run(&[&args[..], &["--resume"]].concat()).status.success());
    assert_eq!((lab.results(), boots()), (resumed, 8));

    lab.fake("vmm", "# of the same version");
    refuses(&lab, &[&args[..], &["--resume"]].concat(), &["r.json", "the programs differ: qemu "]);
    lab.fake("vmm", &script);
    fs::write(lab.path("vmlinux"), "another kernel").unwrap();
    fs::write(lab.path("config"), "CONFIG_X=y").unwrap();
    refuses(&lab, &[&args[..], &["--resume"]].concat(), &["r.json", "the guest"]);
}

#[test]
fn a_sweep_is_of_the_same_programs_to_its_end() {
    let script = format!("echo >> boots; [ $(wc -l < boots) != 3 ] || echo '# another' >> vmm; {INIT}");
    let lab = Lab::new(&script);
    let output = lab.run(&["--vmm", "qemu=vmm", "--memory", "1G", "--mode", "serial", "--runs", "4"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("and this changed: the programs: qemu "), "{text}");
    let rounds: Vec<_> = lab.results().boots.iter().map(|boot| boot.round).collect();
    assert_eq!(rounds, [0, 1], "which boots of the last round were of the other one?");
    // Once more, where a warm-up that is not kept comes first: what was there stays.
    lab.fake("vmm", &script);
    let output = lab.run(&["--vmm", "qemu=vmm", "--memory", "1G", "--mode", "serial", "--runs", "4", "--resume"]);
    assert!(output.status.success(), "{}", stderr(&output));
    fs::write(lab.path("boots"), "\n\n").unwrap();
    let mut results = lab.results();
    results.boots.truncate(3);
    fs::write(lab.path("r.json"), serde_json::to_vec(&results).unwrap()).unwrap();
    let output = lab.run(&["--vmm", "qemu=vmm", "--memory", "1G", "--mode", "serial", "--runs", "4", "--resume"]);
    assert!(stderr(&output).contains("and this changed: "), "{}", stderr(&output));
    assert_eq!(lab.results().boots.len(), 3);
}

#[test]
fn a_killed_sweep_loses_only_the_boot_in_flight() {
    let lab = Lab::new(&format!(
        "echo x >> count; [ $(wc -l < count) = 4 ] && {{ echo $$ > pid; exec sleep 1000; }}; {INIT}"
    ));
    let args = ["--vmm", "qemu=vmm", "--memory", "1G", "--mode", "serial", "--runs", "4"];
    let mut sweep = lab.command(&args).stderr(Stdio::null()).spawn().unwrap();
    wait_for(|| fs::read_to_string(lab.path("pid")).is_ok_and(|pid| pid.ends_with('\n')));
    sweep.kill().unwrap();
    sweep.wait().unwrap();
    let pid = fs::read_to_string(lab.path("pid")).unwrap();
    wait_for(|| !Path::new("/proc").join(pid.trim()).exists());
    assert_eq!(lab.results().boots.len(), 3);
    assert!(lab.run(&[&args[..], &["--resume"]].concat()).status.success());
    assert!(lab.results().is_complete());
}

#[test]
fn vms_of_a_fleet_run_together() {
    // In the first fleet one VM reaches init when all five have been started, and looks which of them run; another dies.
    let lab = Lab::new(&format!(
        r#"mkdir -p vms; : > vms/$$
        if mkdir slow 2>/dev/null; then
            while [ "$(ls vms | wc -l)" -lt 5 ]; do sleep 0.05; done
            while ! [ -e died ]; do sleep 0.05; done; sleep 0.3
            for vm in $(ls vms); do kill -0 "$vm" && echo "$vm" >> alive; done
        elif mkdir dies 2>/dev/null; then echo 'no such device' >&2; : > died; exit 7; fi
        {INIT}"#
    ));
    let args = ["--vmm", "qemu=vmm", "--vms", "5", "--runs", "1"];
    let output = lab.command_of("fleet", &args).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("FAILED: 1 of 5: the VMM ended (exit status: 7)"), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(lab.path("alive")).unwrap().lines().count(), 4);
    let results = lab.results();
    assert!(results.is_complete() && results.boots.len() == 10, "{results:?}");
    let [variant] = &results.sweep.variants[..] else { panic!("{:?}", results.sweep.variants) };
    assert_eq!((variant.vms, &*variant.mode, variant.memory_bytes), (Some(5), "async", 1 << 30));
    let of_round = |round| results.boots.iter().filter(move |boot| boot.round == round);
    assert_eq!(of_round(0).filter(|boot| matches!(boot.end, End::Failed { .. })).count(), 1);
    for boot in of_round(1) {
        let End::Init(sample) = &boot.end else { panic!("{boot:?}") };
        assert!(sample.by_mark && sample.marks.len() == 2 && sample.began_ns.is_some(), "{sample:?}");
    }
    let mut shown = Command::new(env!("CARGO_BIN_EXE_flatboot-bench"));
    let shown = shown.args(["show", "r.json"]).current_dir(lab.directory.path()).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("5 × qemu async: the fleet") && shown.contains("boots a second"), "{shown}");
}

#[test]
fn wrong_requests_write_nothing() {
    let lab = Lab::new(INIT);
    fs::write(lab.path("plain"), "").unwrap();
    let qemu = ["--vmm", "qemu=vmm"];
    let with = |more: &[&'static str]| [&qemu[..], more].concat();
    refuses(&lab, &with(&["--runs", "0"]), &["--runs 0", "1 to 1000"]);
    refuses(&lab, &with(&["--timeout", "0"]), &["--timeout 0"]);
    refuses(&lab, &with(&["--resume"]), &["r.json", "not there"]);
    refuses(&lab, &with(&["--mode", "quick"]), &["quick", "serial, stock, parallel, async, ondemand"]);
    refuses(&lab, &with(&["--memory", "1GB"]), &["1GB", "512M"]);
    refuses(&lab, &with(&["--memory", ""]), &["--memory"]);
    refuses(&lab, &with(&["--cpus", "1025"]), &["1025", "1 to 1024"]);
    refuses(&lab, &with(&["--threads", "101%"]), &["101%"]);
    refuses(&lab, &with(&["--without", "haste"]), &["haste", "low-zones, async, arenas"]);
    refuses(&lab, &with(&["--without", "arenas"]), &["--without arenas", "--mode async with --vmm flatboot"]);
    refuses(&lab, &with(&["--without", "low-zones", "--mode", "parallel"]), &["--without low-zones", "--mode async"]);
    refuses(&lab, &with(&["--until", "later"]), &["later", "init, filled"]);
    refuses(&lab, &with(&["--host-pages", "2M"]), &["2M", "any, 4K"]);
    refuses(&lab, &with(&["--on", "cloud"]), &["cloud", "here, slurm"]);
    refuses(&lab, &with(&["--tasks", "0"]), &["--tasks"]);
    refuses(&lab, &with(&["--tasks", "2"]), &["--tasks 2", "--on slurm"]);
    refuses(&lab, &with(&["--vmm", "qemu=plain"]), &["--vmm qemu", "named twice"]);
    refuses(&lab, &with(&["--threads", "2", "--mode", "serial"]), &["--threads", "--mode parallel or async"]);
    refuses(&lab, &with(&["--stock-kernel", "plain", "--mode", "serial"]), &["--stock-kernel plain", "--mode stock"]);
    refuses(&lab, &with(&["--shape", "2x1G", "--memory", "1G"]), &["--shape"]);
    refuses(&lab, &with(&["--memory", "1048576T"]), &["1048576 TiB", "physical addresses"]);
    refuses(&lab, &with(&["--kernel", "nowhere"]), &["nowhere"]);
    refuses(&lab, &with(&["--start", "thaw"]), &["thaw", "boot, restore, or restore=SIZE"]);
    refuses(&lab, &with(&["--start", "restore"]), &["--vmm qemu", "--start restore", "flatboot"]);
    refuses(&lab, &with(&["--resize", "1G"]), &["1G", "1G:256G"]);
    let flatboot = |more: &[&'static str]| [&["--vmm", "flatboot=vmm"], more].concat();
    refuses(&lab, &flatboot(&["--resize", "1G:2G", "--until", "filled"]), &["--until filled"]);
    refuses(&lab, &flatboot(&["--resize", "1G:2G", "--mode", "stock"]), &["--mode stock"]);
    let smaller = ["--start", "restore=2G", "--memory", "1G"];
    refuses(&lab, &flatboot(&smaller), &["--start restore=2 GiB", "1 GiB", "128 MiB"]);
    let output = lab.command_of("run", &with(&["--on", "slurm", "--tasks", "1"])).env("SBATCH_CLUSTERS", "b").output();
    let text = stderr(&output.unwrap());
    assert!(text.contains("--on slurm: SBATCH_CLUSTERS=b: a sweep runs on the cluster"), "{text}");
    assert!(!lab.path("r.json").exists() && !lab.path("r.json.parts").exists(), "{:?}", lab.names());
    refuses(&lab, &["--vmm", "crosvm"], &["crosvm", "flatboot, flatboot-uefi, qemu"]);
    refuses(&lab, &["--vmm", "firecracker"], &["firecracker=PATH"]);
    refuses(&lab, &["--vmm", "qemu=nowhere"], &["nowhere", "No such file"]);
    refuses(&lab, &["--vmm", "qemu=plain"], &["plain", "not executable"]);
    refuses(&lab, &["--vmm", "qemu=."], &["not a file"]);
    refuses(&lab, &with(&["--out", "/nonexistent/r.json"]), &["/nonexistent/r.json"]);
    refuses(&lab, &with(&["--out", "."]), &["directory"]);
    let many = (1..=200).map(|cpus| cpus.to_string()).collect::<Vec<_>>().join(",");
    let many = ["--memory", "1G", "--cpus", &many, "--mode", "serial", "--runs", "1000", "--kernel", "nowhere"];
    refuses(&lab, &[&qemu[..], &many].concat(), &["--runs 1000", "200200 boots", "131072"]);
    // A file that is not of a sweep stays as it is.
    refuses(&lab, &with(&["--out", "plain"]), &["plain", "exists"]);
    refuses(&lab, &with(&["--out", "plain", "--resume"]), &["plain"]);
    assert_eq!(fs::read(lab.path("plain")).unwrap(), b"");
}

/// The program as a package installs it, with nothing of the source tree around it.
#[test]
fn outside_the_source_tree_what_is_missing_is_named() {
    let lab = Lab::new(INIT);
    let program = lab.path("flatboot-bench");
    fs::copy(env!("CARGO_BIN_EXE_flatboot-bench"), &program).unwrap();
    let says = |kvm: &str, args: &[&str], words: &str| {
        let mut command = Command::new(&program);
        command.args(args).current_dir(lab.directory.path()).env("FLATBOOT", lab.path("vmm")).env("FLATBOOT_KVM", kvm);
        let output = command.env_remove("FLATBOOT_GUEST_KERNEL").env_remove("FLATBOOT_HOST_KERNEL").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(words) && said.contains("run this inside Flatboot's source tree"), "{args:?}: {said}");
    };
    says("real", &["run", "--vmm", "qemu=vmm"], "no guest kernel: set FLATBOOT_GUEST_KERNEL");
    says(
        "real",
        &["run", "--vmm", "qemu=vmm", "--kernel", "vmlinux", "--mode", "stock"],
        "no stock kernel: name it with --stock-kernel",
    );
    says("emulated", &["run", "--vmm", "qemu=vmm", "--kernel", "vmlinux"], "no host kernel: set FLATBOOT_HOST_KERNEL");
    says("real", &["boot"], "no Debian disk: ");
    says("real", &["boot", "--firmware"], "no UEFI firmware: ");
}
