// SPDX-License-Identifier: Apache-2.0
//! `flatboot-bench show`, `compare` and `scrub`, as a user runs them, on results files made here.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]

mod bad_input;
mod compare;
mod scrub;
mod show;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fastrand::Rng;
use flatboot_bench::results::{
    Boot, End, FORMAT, Facts, GuestFacts, HostFacts, Results, Sample, Sweep, VERSION, Variant, save,
};
use tempfile::TempDir;

const GIB: u64 = 1 << 30;

/// What a run of the program left.
struct Run {
    code: i32,
    out: String,
    err: String,
}

fn bench() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatboot-bench"));
    for variable in ["COLUMNS", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(variable);
    }
    command
}

fn finished(output: &Output) -> Run {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    Run { code: output.status.code().expect("an exit code"), out: text(&output.stdout), err: text(&output.stderr) }
}

fn run(words: &[&str]) -> Run {
    finished(&bench().args(words).output().unwrap())
}

/// A change of a results file, and what the program says of it.
type Case<'a> = (&'a dyn Fn(&mut Results), &'a str);

/// Files that vanish with the test.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn save(&self, name: &str, results: &Results) -> String {
        let path = self.path(name);
        save(results, &path).unwrap();
        word(&path)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        word(&path)
    }
}

fn word(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn variant(vmm: &str, mode: &str, gib: u64) -> Variant {
    Variant { vmm: vmm.to_owned(), mode: mode.to_owned(), memory_bytes: gib * GIB, cpus: 2, ..Variant::default() }
}

/// flatboot and QEMU, serial and parallel, 1 to 256 GiB.
fn twenty() -> Vec<Variant> {
    let kinds = [("flatboot", "serial"), ("flatboot", "parallel"), ("qemu", "serial"), ("qemu", "parallel")];
    kinds.iter().flat_map(|(vmm, mode)| [1, 4, 16, 64, 256].map(|gib| variant(vmm, mode, gib))).collect()
}

fn reached(init_ns: u64, host_memory_bytes: u64) -> End {
    End::Init(Sample {
        init_ns,
        by_mark: true,
        console_ns: init_ns + 2_000_000,
        first_instruction_ns: Some(init_ns / 10),
        host_memory_bytes,
        ..Sample::default()
    })
}

fn failed(why: &str) -> End {
    End::Failed { why: why.to_owned(), console: vec!["the console's last line".to_owned()] }
}

/// A whole sweep in which `end` says what comes of each boot, by variant and round.
fn results(variants: Vec<Variant>, runs: u32, mut end: impl FnMut(&Variant, u32) -> End) -> Results {
    let sweep =
        Sweep { variants, runs, timeout_ms: 60_000, cmdline: "console=ttyS0 quiet".to_owned(), ..Sweep::default() };
    let boots = sweep
        .boots()
        .map(|(variant, round)| Boot { variant, round, node: None, end: end(&sweep.variants[variant], round) })
        .collect();
    Results { format: FORMAT.to_owned(), version: VERSION, sweep, facts: facts(), boots }
}

/// 20 variants, `runs` rounds, with up to 2 % of noise.
fn noisy(seed: u64, runs: u32) -> Results {
    let mut rng = Rng::with_seed(seed);
    results(twenty(), runs, |variant, _| {
        let gib = variant.memory_bytes / GIB;
        let usual = 600_000_000 + gib * 20_000_000;
        reached(usual + rng.u64(..usual / 50), 50_000_000 + gib * 18_000_000)
    })
}

/// The same with every time of one variant changed by `change`.
fn changed(mut results: Results, which: usize, change: impl Fn(u64) -> u64) -> Results {
    for boot in results.boots.iter_mut().filter(|boot| boot.variant == which) {
        if let End::Init(sample) = &mut boot.end {
            sample.init_ns = change(sample.init_ns);
        }
    }
    results
}

fn facts() -> Facts {
    Facts {
        host: HostFacts {
            kvm: "emulated".to_owned(),
            cpu_model: "Some CPU".to_owned(),
            machine_cpu_model: Some("Another CPU".to_owned()),
            cpus: 2,
            memory_bytes: 14 * GIB,
            kernel: "6.12.1".to_owned(),
            thp: "madvise".to_owned(),
        },
        guest: GuestFacts {
            kernel: "vmlinux".to_owned(),
            build_id: Some("0123456789abcdef0123".to_owned()),
            config_sha256: Some("ab".repeat(32)),
            initramfs_sha256: "cd".repeat(32),
            ..GuestFacts::default()
        },
        versions: [("flatboot".to_owned(), "flatboot 0.1.0".to_owned())].into(),
        revision: Some("1234567".to_owned()),
        // 2026-11-20 14:12 UTC
        began_unix_s: 1_795_183_920,
        ..Facts::default()
    }
}
