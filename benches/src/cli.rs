// SPDX-License-Identifier: Apache-2.0
//! The command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use flatboot_bench::compare::Limit;
use flatboot_bench::host::memory_mib;
use flatboot_bench::modes::Mode;
use flatboot_bench::observe::Until;
use flatboot_bench::results::HostPages;
use flatboot_bench::sweep::{
    Choice, Cpus, FULL_SET, Matrix, Memory, Request, Resize, Shape, Starts, Threads, Vms, Without,
};
use flatboot_bench::work::Works;
use flatboot_bench::{Command, HostOptions, soak, spec};

/// Runs VM tests and boot-time measurements on real KVM or on the emulated KVM host.
///
/// Exit codes of `exec` and `host run`: the program's own (128 + n after death by signal n); 124 if the time ran out, 125 if
/// the host failed, 126 if the program cannot be executed, 127 if it does not exist, 2 if this command line is wrong.
#[derive(Debug, Parser)]
#[command(name = "flatboot-bench", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Boot Debian 12 under flatboot to its login prompt, then power it off
    Boot(BootArgs),
    /// Measure boots over memory sizes, vCPUs, memmap modes and VMMs, and keep every raw sample
    ///
    /// Each round boots every variant once; the first round is a warm-up and does not count. If the host is emulated, each boot
    /// gets its own. The results file is rewritten after each boot; a boot that fails or hangs is recorded and the sweep
    /// continues. Ctrl-C stops it, --resume continues it. Exit code 0 if every boot was recorded, 3 if it was stopped, 2 if the
    /// request cannot be fulfilled.
    Run(Box<SweepArgs>),
    /// Start many VMs at the same time, and measure how soon each of them has booted
    ///
    /// All VMs run until the last has reached init or has failed. In each round, such a fleet is started once for each variant.
    /// Other options, the results file and the exit codes are those of `run`.
    Fleet(Box<FleetArgs>),
    /// Watch one boot from outside its VMM (what `run` executes beside the VMM)
    #[command(hide = true)]
    Observe(ObserveArgs),
    /// Change the memory of VMs that run, and time it (what `spec` executes beside them)
    #[command(hide = true)]
    Resize {
        /// The order, as JSON
        order: String,
    },
    /// Run a program on this machine if its KVM runs guests, else in the emulated KVM host
    ///
    /// `flatboot check` decides, unless `FLATBOOT_KVM` is real or emulated (default: auto). One line on standard error says which
    /// is used.
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
    /// Compare two results files, variant by variant; with `--fail-above` as a check for CI
    ///
    /// Each ratio of medians, B over A, has a bootstrap confidence interval of 95 %. Exit codes: 0; 1 if a variant is
    /// above RATIO (with `--if-shown`: is shown to be), or most of its boots in B failed; 2 if a file is invalid, the hosts differ, or a
    /// variant has too few samples to judge.
    Compare(CompareArgs),
    /// Test the promises of docs/SPECIFICATION.md, one line for each
    ///
    /// Exit code: 0 if all that can be tested on this machine hold, 1 if one does not hold, 125 if one could not be tested
    /// because of a failure, 2 if this command line is wrong, 128 + n after signal n.
    Spec(spec::Options),
    /// Boot random VMs that end in random ways, for a given time, and report each unexpected result
    ///
    /// A seed determines one boot: --seed S --boots 1 repeats the boot with that seed. Exit code: 0 if all results were as
    /// expected, 1 if not, 3 if it was stopped, 125 if it could not start or continue.
    Soak(soak::Request),
    /// See one boot to its end (what `soak` executes beside the VMM)
    #[command(hide = true)]
    Attend(AttendArgs),
    /// Draw charts of results files, as one self-contained HTML page
    Report(ReportArgs),
    /// Write a results file without names of machines, paths and addresses, so that it can be sent to others
    ///
    /// Nodes become node1, node2 and so on; what failed boots have said keeps no paths and addresses. Processors, memory, kernel and
    /// versions stay. Exit code 2 if a file is invalid.
    Scrub(ScrubArgs),
    /// Write manual pages and completions for shells (for packages)
    #[command(hide = true)]
    Manuals {
        /// Directory to write them to
        out: PathBuf,
    },
    /// Write the initramfs of the tiny test guest, whose init runs the checks in `flatboot.check=` of the kernel command line
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
    /// Stay at the login prompt, on this terminal
    #[arg(long)]
    pub(crate) keep: bool,
    /// Give the guest a network (passt), and stay; this port of 127.0.0.1 is forwarded to its ssh
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
    /// Guest memory sizes [default: 1G,4G,16G; 1G for a fleet]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',')]
    memory: Vec<Memory>,
    /// Numbers of vCPUs
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2")]
    cpus: Vec<Cpus>,
    /// VM sizes, vCPUs x memory, such as 2x8G,4x16G,16x64G
    #[arg(long, value_name = "NxSIZE,…", value_delimiter = ',', conflicts_with_all = ["memory", "cpus"])]
    shape: Vec<Shape>,
    /// How VMs start: boot, from a snapshot (restore), or from a snapshot of a smaller VM (restore=SIZE); flatboot only
    #[arg(long, value_name = "START,…", value_delimiter = ',', default_value = "boot")]
    start: Vec<Starts>,
    /// Change the memory of running VMs from one size to another, and measure how long it takes; flatboot only. Without
    /// --memory and --shape nothing else is measured
    #[arg(long, value_name = "FROM:TO,…", value_delimiter = ',')]
    resize: Vec<Resize>,
    /// memmap modes, values of the guest kernel's `memmap_init=`: serial, parallel, async, ondemand; or stock, the kernel
    /// without the series [default: parallel,async,ondemand; async with --without, --work and for a fleet]
    #[arg(long, value_name = "MODE,…", value_delimiter = ',')]
    mode: Vec<&'static Mode>,
    /// Measure what each part of mode async is worth, by boots with only that part switched off: low-zones, async, arenas,
    /// early-threads, known-zero, memory-plan, or all
    #[arg(long, value_name = "PART,…", value_delimiter = ',')]
    without: Vec<Without>,
    /// Workloads that each guest runs after its boot, one after another, in a Debian userland: net, vhost, disk,
    /// kernel, all, or names such as tx-4 and read-32; the default of --mode is then async
    #[arg(long, value_name = "WORKLOAD,…", value_delimiter = ',', conflicts_with = "until")]
    work: Vec<Works>,
    /// Watch each guest until init has begun, or until the memmap is filled, which `async` does after init
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "init|filled")]
    until: Until,
    /// Page sizes that the host uses for guest memory: any, so also huge pages, or only 4K
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "any|4K")]
    host_pages: HostPages,
    /// Maximum threads that fill the memmap, for modes with threads: 1,25%,50%,100%
    #[arg(long, value_name = "N|P%,…", value_delimiter = ',')]
    threads: Vec<Threads>,
    /// VMMs: flatboot, qemu (its microvm machine), flatboot-uefi and qemu-uefi (the same through UEFI firmware), qemu-table and
    /// qemu-q35-table (QEMU's microvm and q35 with a table of the hand-off), firecracker=PATH, cloud-hypervisor=PATH
    #[arg(long, value_name = "NAME[=PATH],…", value_delimiter = ',', default_value = "flatboot")]
    vmm: Vec<Choice>,
    /// Samples of each variant, in addition to the first, which is dropped
    #[arg(long, value_name = "N", default_value_t = 10, overrides_with = "runs")]
    runs: u32,
    /// A boot that has not reached init after this time has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u32,
    /// Results file; compressed if its name ends in .zst
    #[arg(long, value_name = "FILE", default_value = "results.json", overrides_with = "out")]
    out: PathBuf,
    /// Continue the results file of the same sweep
    #[arg(long)]
    resume: bool,
    /// Where VMs run: here, or on the nodes of a Slurm cluster, which all see the directory of the results file
    ///
    /// On slurm, each task of a job array runs some of the rounds on a node of its own, after a warm-up round. Their boots are
    /// merged into the results file as they end; it says which node each was on. The rounds of a node that fails are run again on
    /// another. Slurm's own variables, such as `SBATCH_PARTITION`, choose the nodes.
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_possible_values = true,
        value_name = "here|slurm",
        overrides_with = "on"
    )]
    pub(crate) on: On,
    /// Tasks that the rounds are divided among on slurm [default: one for each node that is up]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tasks: Option<u32>,
    /// Guest kernel, an ELF vmlinux [default: guest-kernel/build.sh guest]
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Kernel of mode stock, an ELF vmlinux [default: guest-kernel/build.sh stock]
    #[arg(long, value_name = "FILE")]
    stock_kernel: Option<PathBuf>,
}

/// Where a sweep runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum On {
    #[default]
    Here,
    Slurm,
}

#[derive(Debug, Args)]
#[command(mut_arg("work", |work| work.hide(true)))]
pub(crate) struct FleetArgs {
    /// Numbers of VMs
    #[arg(long, value_name = "N,…", value_delimiter = ',', required = true)]
    pub(crate) vms: Vec<Vms>,
    #[command(flatten)]
    pub(crate) sweep: SweepArgs,
}

impl SweepArgs {
    /// The sweep, of `fleets` if there are any.
    pub(crate) fn request(&self, fleets: &[Vms]) -> Request {
        let sizes: &[&str] = if fleets.is_empty() { &["1G", "4G", "16G"] } else { &["1G"] };
        let by_default: Vec<Memory> = sizes.iter().filter_map(|size| size.parse().ok()).collect();
        let only_boots = self.start.iter().all(Starts::is_boot);
        let is_default = self.memory.is_empty() && (self.resize.is_empty() || !only_boots);
        let memory = if is_default { &by_default } else { &self.memory };
        let shapes = if self.shape.is_empty() { Matrix::shapes(memory, &self.cpus) } else { self.shape.clone() };
        let shapes = Matrix::started(&shapes, &self.start, &self.resize, &self.cpus);
        let compared = self.without.is_empty() && self.work.is_empty() && fleets.is_empty();
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
                vms: fleets.to_vec(),
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
pub(crate) struct AttendArgs {
    /// The order, as JSON
    pub(crate) order: String,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Results file of `run`, the earlier one
    pub(crate) a: PathBuf,
    /// Results file of `run`, the later one
    pub(crate) b: PathBuf,
    /// Exit with 1 if a variant's ratio, B's median over A's, is above RATIO such as 1.05, or if most of its boots in B failed
    ///
    /// Most is half or more, if it is a larger share than of those in A. Exit code 2 if a variant has no
    /// samples.
    #[arg(long, value_name = "RATIO")]
    pub(crate) fail_above: Option<Limit>,
    /// With --fail-above: fail only if the difference is significant
    ///
    /// A variant then fails only if its ratio is above RATIO and its confidence interval lies above 1 (above RATIO if that is
    /// below 1). The interval is widened by the number of variants, so that a comparison in which nothing has changed fails by
    /// chance in at most about 1 of 20 cases, however large it is. Variants above RATIO that may be noise are listed, with exit
    /// code 0: repeat with more runs. Exit code 2 also if a variant has fewer than 6 samples and a ratio above RATIO.
    #[arg(long, requires = "fail_above")]
    pub(crate) if_shown: bool,
    /// Compare even if the hosts differ in the kind of KVM, CPUs or kernel
    #[arg(long)]
    pub(crate) across_hosts: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Results files; those of the same host are drawn into the same charts
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// File to write; an existing file is replaced only if it is a report
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ScrubArgs {
    /// Results file of `run` or `fleet`
    pub(crate) file: PathBuf,
    /// File to write, compressed if its name ends in .zst; an existing file is replaced only if it is another results file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// flatboot binary for `flatboot check` [default: FLATBOOT, else the one beside this program, else the tree's build]
    #[arg(long, value_name = "FILE")]
    pub(crate) flatboot: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// End the program, and the host, after this time; 0 for never, as it is by default with --tty
    #[arg(long, value_name = "SECONDS", default_value_t = 600, default_value_if("tty", "true", "0"))]
    pub(crate) timeout: u64,
    /// Connect the program to this terminal
    #[arg(long)]
    pub(crate) tty: bool,
    /// The program, a path on this machine, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Memory of the emulated host, allocated as it is used
    #[arg(long, value_name = "SIZE", default_value = "14G", value_parser = memory_mib)]
    memory: u64,
    /// Processors of the emulated host that the program runs on
    #[arg(long, value_name = "N", default_value_t = 2)]
    cpus: u8,
    /// Disk image that the program sees as a block device at the same path; writes are discarded
    #[arg(long = "drive", value_name = "FILE")]
    drives: Vec<PathBuf>,
    /// Directory that the program may write to; in the emulated host all others are read-only, and /tmp is temporary
    #[arg(long = "writable", value_name = "DIR")]
    writable: Vec<PathBuf>,
    /// Directory with the emulated host's kernel [default: `FLATBOOT_HOST_KERNEL`, else guest-kernel/build.sh builds it]
    #[arg(long, value_name = "DIR")]
    host_kernel: Option<PathBuf>,
    /// Add a variable to the program's environment (PATH, HOME and LANG); K alone copies the current value
    #[arg(long = "env", value_name = "K[=V]")]
    env: Vec<OsString>,
    /// Working directory of the program [default: this one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
}

impl PlaceArgs {
    pub(crate) fn options(&self) -> HostOptions {
        HostOptions {
            memory_mib: self.memory,
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
