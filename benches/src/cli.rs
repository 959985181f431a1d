// SPDX-License-Identifier: Apache-2.0
//! The command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use flatboot_bench::compare::Limit;
use flatboot_bench::host::MemorySize;
use flatboot_bench::modes::Mode;
use flatboot_bench::observe::Until;
use flatboot_bench::results::HostPages;
use flatboot_bench::sweep::{Choice, Cpus, FULL_SET, Matrix, Memory, Request, Shape, Threads, Without};
use flatboot_bench::work::Works;
use flatboot_bench::{Command, HostOptions, soak, spec};

/// Runs VM tests and boot-time measurements on real KVM or on the emulated KVM host.
///
/// Exit codes of `exec` and `host run`: the program's own (128 + n after death by signal n); 124 if the time ran out, 125 if
/// the host failed, 126 if the program cannot be executed, 127 if it does not exist, 2 if this command line is wrong.
#[derive(Debug, Parser)]
#[command(name = "flatboot-bench", version, max_term_width = 120)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Boot Debian 12 under flatboot to its login prompt, then power it off
    Boot(BootArgs),
    /// Sweep memory sizes, vCPUs, memmap modes and VMMs, and keep every raw sample
    ///
    /// Each round boots every variant once; the first round is a warm-up and does not count. Each boot has a host of its own where
    /// the host is emulated. The file is replaced after each boot, whole; a boot that fails or hangs is recorded and the sweep
    /// goes on. Ctrl-C stops it, --resume goes on. Exit code 0 if every boot is there, 3 if it was stopped, 2 if something that was
    /// asked for cannot be.
    Run(Box<SweepArgs>),
    /// Watch one boot from outside its VMM (what `run` executes beside the VMM)
    #[command(hide = true)]
    Observe(ObserveArgs),
    /// Run a program on this machine if its KVM runs guests, else in the emulated KVM host
    ///
    /// `flatboot check` decides; `FLATBOOT_KVM=real`, emulated or auto (the default) overrides it. One line on standard error
    /// says which it is.
    #[command(alias = "door")]
    Exec(ExecArgs),
    /// The emulated KVM host: QEMU emulates a machine whose Linux has KVM
    Host {
        #[command(subcommand)]
        verb: HostVerb,
    },
    /// Show a results file as a table
    Show {
        /// Results file of `run`
        file: PathBuf,
    },
    /// Compare two results files, variant by variant; `--fail-above` makes it a check for CI
    ///
    /// Each ratio of medians, B over A, has a bootstrap confidence interval of 95 %. Exit codes: 0; 1 if a variant is shown to be
    /// above RATIO; 2 if a file is no good, if the hosts differ, or if RATIO cannot be judged.
    Compare(CompareArgs),
    /// Put the promises of docs/SPECIFICATION.md to the test, a line for each
    ///
    /// Exit code: 0 if all that can be tested on this machine hold, 1 if one is missed, 125 if one could not be tested
    /// because something failed, 2 if this command line is wrong, 128 + n after signal n.
    Spec(SpecArgs),
    /// Boot random VMs that end in random ways, until time is up, and tell each that does not go as planned
    ///
    /// A seed decides one boot: --seed S --boots 1 repeats the one that a line names. Exit code: 0 if all went as planned, 1 if one
    /// did not, 3 if it was stopped, 125 if it could not begin or go on.
    Soak(SoakArgs),
    /// See one boot to its end (what `soak` executes beside the VMM)
    #[command(hide = true)]
    Attend(AttendArgs),
    /// Draw results files as one HTML page that needs nothing else
    Report(ReportArgs),
    /// Write manual pages and completions for shells (for packages)
    #[command(hide = true)]
    Manuals {
        /// Directory to write them to
        out: PathBuf,
    },
    /// Write the tiny guest's initramfs, whose init does what `flatboot.check=` on the kernel command line asks
    Initramfs {
        /// File to write
        out: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostVerb {
    /// Run a program in a fresh emulated KVM host
    Run(RunArgs),
    /// Open a shell in a fresh emulated KVM host
    Shell(PlaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BootArgs {
    /// Guest memory, in flatboot's syntax
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub(crate) memory: String,
    /// Virtual CPUs
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) cpus: u16,
    /// Boot through UEFI firmware, from a disk with an EFI system partition
    #[arg(long)]
    pub(crate) firmware: bool,
    /// Stay at the login prompt, with this terminal
    #[arg(long)]
    pub(crate) keep: bool,
    /// Give the guest a network (passt), and stay; this port of 127.0.0.1 leads to its ssh
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) ssh_port: Option<u16>,
    /// flatboot binary [default: FLATBOOT, else the one beside this program, else the tree's build]
    #[arg(long, value_name = "FILE")]
    pub(crate) flatboot: Option<PathBuf>,
}

/// What is compared unless something else is asked for: with boot waiting for the memmap, and without.
const DEFAULT_MODES: [&str; 3] = ["parallel", "async", "ondemand"];

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// Guest memory sizes
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "1G,4G,16G")]
    memory: Vec<Memory>,
    /// Numbers of vCPUs
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2")]
    cpus: Vec<Cpus>,
    /// VM sizes as they are sold: vCPUs x memory, such as 2x8G,4x16G,16x64G
    #[arg(long, value_name = "NxSIZE,…", value_delimiter = ',', conflicts_with_all = ["memory", "cpus"])]
    shape: Vec<Shape>,
    /// memmap modes, values of the guest kernel's `memmap_init=`: serial, parallel, async, ondemand; or stock, the kernel
    /// without the series [default: parallel,async,ondemand, with --without async]
    #[arg(long, value_name = "MODE,…", value_delimiter = ',')]
    mode: Vec<&'static Mode>,
    /// What each part of mode async is worth: it is booted once more for each part named, with that part alone switched off:
    /// low-zones, async, arenas, early-threads, known-zero, memory-plan, or all
    #[arg(long, value_name = "PART,…", value_delimiter = ',')]
    without: Vec<Without>,
    /// What each guest does after its boot, one after another, in a Debian userland: net, vhost, disk, all, or workloads by their
    /// names such as tx-4 and read-32; the modes are then async alone unless --mode says otherwise
    #[arg(long, value_name = "WORKLOAD,…", value_delimiter = ',', conflicts_with = "until")]
    work: Vec<Works>,
    /// Watch each guest until init has begun, or until the memmap is filled, which `async` does after init
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "init|filled")]
    until: Until,
    /// Pages that the host may back guest memory with: those that it gives to a VMM that asks for huge ones, or only 4K
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "any|4K")]
    host_pages: HostPages,
    /// Caps on the threads that fill the memmap, for modes with threads: 1,25%,50%,100%
    #[arg(long, value_name = "N|P%,…", value_delimiter = ',')]
    threads: Vec<Threads>,
    /// VMMs: flatboot, qemu (its microvm machine), flatboot-uefi and qemu-uefi (the same through UEFI firmware), firecracker=PATH,
    /// cloud-hypervisor=PATH
    #[arg(long, value_name = "NAME[=PATH],…", value_delimiter = ',', default_value = "flatboot")]
    vmm: Vec<Choice>,
    /// Samples of each variant, besides the first, which is dropped
    #[arg(long, value_name = "N", default_value_t = 10)]
    runs: u32,
    /// A boot without init for so long has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u32,
    /// Results file; compressed if its name ends in .zst
    #[arg(long, value_name = "FILE", default_value = "results.json")]
    out: PathBuf,
    /// Go on with the results file of the same sweep
    #[arg(long)]
    resume: bool,
    /// Guest kernel, an ELF vmlinux [default: guest-kernel/build.sh guest]
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Kernel of mode stock, an ELF vmlinux [default: guest-kernel/build.sh stock]
    #[arg(long, value_name = "FILE")]
    stock_kernel: Option<PathBuf>,
}

impl SweepArgs {
    pub(crate) fn request(&self) -> Request {
        let shapes = if self.shape.is_empty() { Matrix::shapes(&self.memory, &self.cpus) } else { self.shape.clone() };
        let compared = self.without.is_empty() && self.work.is_empty();
        let by_default: &[&str] = if compared { &DEFAULT_MODES } else { &[FULL_SET] };
        let modes = if self.mode.is_empty() {
            by_default.iter().filter_map(|name| Mode::named(name)).collect()
        } else {
            self.mode.clone()
        };
        let vmms = self.vmm.iter().map(|choice| choice.kind).collect();
        Request {
            matrix: Matrix {
                shapes,
                vmms,
                modes,
                threads: self.threads.clone(),
                without: Without::switches(&self.without),
            },
            vmms: self.vmm.clone(),
            runs: self.runs,
            timeout: Duration::from_secs(self.timeout.into()),
            out: self.out.clone(),
            resume: self.resume,
            kernel: self.kernel.clone(),
            stock_kernel: self.stock_kernel.clone(),
            until: self.until,
            work: Works::workloads(&self.work),
            host_pages: self.host_pages,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ObserveArgs {
    /// Print facts about this host instead; WORDs are programs to ask for their versions
    #[arg(long)]
    pub(crate) facts: bool,
    /// The order, as JSON
    #[arg(last = true, value_name = "WORD")]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    /// Begin boots for so long [default: 600, without a limit if there is --boots]
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Boot so many at the most
    #[arg(long, value_name = "N")]
    boots: Option<u64>,
    /// Seed of the first boot; each boot after it has the next one [default: another one each time]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Hosts side by side
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    hosts: u8,
    /// A boot that has not ended by then has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    timeout: u32,
    /// Directory that keeps what guests said whose boot has failed
    #[arg(long, value_name = "DIR", default_value = "target/soak")]
    keep: PathBuf,
}

impl SoakArgs {
    pub(crate) fn request(&self) -> soak::Request {
        let seconds = self.seconds.or(self.boots.is_none().then_some(600));
        soak::Request {
            time: seconds.map(Duration::from_secs),
            boots: self.boots,
            // Short enough to be typed.
            seed: self.seed.unwrap_or_else(|| u64::from(fastrand::u32(..))),
            hosts: self.hosts,
            limit: Duration::from_secs(self.timeout.into()),
            keep: self.keep.clone(),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AttendArgs {
    /// The order, as JSON
    pub(crate) order: String,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Results file of `run` from before
    pub(crate) a: PathBuf,
    /// Results file of `run` from after
    pub(crate) b: PathBuf,
    /// Exit with 1 if a variant's ratio, B's median over A's, is above RATIO such as 1.05, or it boots in A and never in B
    ///
    /// Exit code 2 if a variant has no samples to be judged by.
    #[arg(long, value_name = "RATIO")]
    pub(crate) fail_above: Option<Limit>,
    /// With --fail-above: only if that is no noise
    ///
    /// Besides its ratio being above RATIO, a variant's confidence interval must then lie above 1 (above RATIO where that is below
    /// 1). For this the interval is widened by the number of variants, so that where nothing has changed a whole comparison,
    /// however large, fails by chance in about 1 of 20 cases at most. What is above RATIO and may be noise is listed, with exit
    /// code 0: more runs tell. Exit code 2 also if a variant has fewer than 6 samples and a ratio above RATIO.
    #[arg(long, requires = "fail_above")]
    pub(crate) if_shown: bool,
    /// Compare although the hosts differ in what makes times incomparable: kind of KVM, CPUs, kernel
    #[arg(long)]
    pub(crate) across_hosts: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SpecArgs {
    /// Promises, or their sections: speed, size, limits, behaviour [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Samples of each variant of a speed promise, besides the first, which is dropped
    #[arg(long, value_name = "N", default_value_t = 10)]
    runs: usize,
    /// Print the promises and the command that fails when one is broken, and run nothing
    #[arg(long)]
    pub(crate) list: bool,
    /// Tell more than one line of promises that hold
    #[arg(long)]
    details: bool,
    /// Directory that keeps raw samples and what tests said
    #[arg(long, value_name = "DIR", default_value = "target/spec")]
    keep: PathBuf,
}

impl SpecArgs {
    pub(crate) fn options(&self) -> spec::Options {
        spec::Options { names: self.names.clone(), runs: self.runs, keep: self.keep.clone(), details: self.details }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Results files; those of one host share the charts
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// File to write; one that is there is replaced only if it is a report
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// flatboot binary whose check decides [default: FLATBOOT, else the one beside this program, else the tree's build]
    #[arg(long, value_name = "FILE")]
    pub(crate) flatboot: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// End the program, and the host, after this time; 0 for never
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) timeout: u64,
    /// Give the program this terminal
    #[arg(long)]
    pub(crate) tty: bool,
    /// The program, a path on this machine, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Memory of the emulated host; only what is used is taken
    #[arg(long, value_name = "SIZE", default_value_t)]
    memory: MemorySize,
    /// Processors of the emulated host that the program runs on
    #[arg(long, value_name = "N", default_value_t = 2)]
    cpus: u8,
    /// Disk image that the program finds at the same path as a block device; its writes are dropped
    #[arg(long = "drive", value_name = "FILE")]
    drives: Vec<PathBuf>,
    /// Directory that the program may write to; in the emulated host all others are read-only, and /tmp is scratch
    #[arg(long = "writable", value_name = "DIR")]
    writable: Vec<PathBuf>,
    /// Directory with the emulated host's kernel [default: `FLATBOOT_HOST_KERNEL`, else guest-kernel/build.sh builds it]
    #[arg(long, value_name = "DIR")]
    host_kernel: Option<PathBuf>,
    /// Set a variable of the program's environment, which else is PATH, HOME and LANG; K alone takes this one's value
    #[arg(long = "env", value_name = "K[=V]")]
    env: Vec<OsString>,
    /// Working directory of the program [default: this one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
}

impl PlaceArgs {
    pub(crate) fn options(&self) -> HostOptions {
        HostOptions {
            memory: self.memory,
            cpus: self.cpus,
            drives: self.drives.clone(),
            writable: self.writable.clone(),
            kernel: self.host_kernel.clone(),
            ..HostOptions::default()
        }
    }

    /// `program` with the environment and the working directory that were asked for.
    pub(crate) fn command(&self, program: &[OsString], timeout: Option<Duration>) -> Command {
        let mut parts = program.iter().cloned();
        let mut command = Command::new(parts.next().unwrap_or_default()).args(parts);
        command.env = self.env.iter().filter_map(|variable| pair(variable)).collect();
        command.cwd.clone_from(&self.cwd);
        command.timeout = timeout;
        command
    }
}

impl RunArgs {
    pub(crate) fn limit(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.timeout)).filter(|limit| !limit.is_zero())
    }
}

/// "K=V" as it is; "K" with our own value, nothing if we have none.
fn pair(variable: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = variable.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => Some((OsStr::from_bytes(&bytes[..at]).into(), OsStr::from_bytes(&bytes[at + 1..]).into())),
        None => Some((variable.into(), std::env::var_os(variable)?)),
    }
}
