// SPDX-License-Identifier: Apache-2.0
//! The sweep itself: setup, then boot after boot, each saved before the next begins.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use flatboot_handoff::SECTION_SIZE;
use rustix::process::Signal;
use tempfile::TempDir;

use super::matrix::{Matrix, Shape, describe};
use super::setup;
use super::stop::Stop;
use super::switches::{FULL_SET, Place, Switch, word};
use super::vmm::{Choice, Guest, Kind, Vmm, Watch};
use crate::backend::Backend;
use crate::command::Command;
use crate::host::HostOptions;
use crate::modes::{Mode, STOCK};
use crate::observe::{LIMIT, Order, Surroundings, Until};
use crate::progress::Progress;
use crate::results::{
    self, Boot, End, FORMAT, Facts, GuestFacts, HostPages, MOST_BOOTS, Output, Results, Start, Sweep, VERSION, Variant,
};
use crate::terminal::size;
use crate::work::{self, DISK_MIB, READ_TIMES, Task, Workload};
use crate::{artifact, initramfs};

/// The kernel command line that all variants share: flatboot's own defaults, said aloud so that every VMM's guest has them. The
/// guest waits at its end, so that the observer finds the VMM as it was when init came up.
const CMDLINE: &str = "console=ttyS0 quiet swiotlb=noforce io_delay=none pci=off flatboot.end=hang";
/// What makes the guest say when its memmap is filled, which it learns from debugfs.
const FILLED: &str = " debugfs=on flatboot.check=settle";
/// What makes a guest wait for a line on its console, which it answers.
const WAITING: &str = "flatboot.check=echo";
/// What a host may need besides the boot: its own start, staging of files, power-off.
const OVERHEAD: Duration = Duration::from_secs(180);
/// The most requests that are made of a VM that is saved or changed: up, down and up again.
const REQUESTS: u32 = 3;

/// What a user asks for.
#[derive(Debug, Clone)]
pub struct Request {
    /// Sizes and modes; its VMMs are those of `vmms`.
    pub matrix: Matrix,
    /// VMMs.
    pub vmms: Vec<Choice>,
    /// Rounds that count.
    pub runs: u32,
    /// A boot without init for so long has failed.
    pub timeout: Duration,
    /// Results file.
    pub out: PathBuf,
    /// Go on with the results file.
    pub resume: bool,
    /// Guest kernel, an ELF vmlinux; built if none is given.
    pub kernel: Option<PathBuf>,
    /// The kernel of mode `stock`; built if none is given and that mode is asked for.
    pub stock_kernel: Option<PathBuf>,
    /// How long each guest is watched.
    pub until: Until,
    /// What each guest does, if anything; it is watched until that is done.
    pub work: Vec<&'static Workload>,
    /// The pages that the host may use.
    pub host_pages: HostPages,
}

/// How a sweep ended.
#[derive(Debug)]
pub enum Finished {
    /// Every boot is in the file.
    Complete(Results),
    /// It was stopped; so many boots are in the file.
    Stopped(Results),
}

/// What a sweep is to be that runs elsewhere: the request is checked, and what it needs from the source tree is there.
pub fn prepare(request: &Request) -> Result<Sweep> {
    check(request)?;
    request.vmms.iter().try_for_each(|choice| setup::vmm(choice).map(drop))?;
    Images::of(request)?;
    Ok(sweep(request))
}

/// Runs the sweep that `request` describes, or the rest of it.
pub fn run(request: &Request, stop: &Stop) -> Result<Finished> {
    check(request)?;
    let mut out = Output::open(&request.out, request.resume)?;
    let vmms = request.vmms.iter().map(setup::vmm).collect::<Result<Vec<_>, _>>()?;
    let earlier = request.resume.then(|| resumed(&request.out, &sweep(request))).transpose()?;
    let bench = Bench::open(request, vmms)?;
    eprintln!("==> {}", bench.backend);
    let surroundings = bench.surroundings(stop)?;
    fits(&request.matrix, &surroundings)?;
    let facts = setup::facts(bench.backend.kvm(), &surroundings, bench.guest()?, &bench.vmms, bench.programs()?);
    let mut results = match earlier {
        Some(earlier) => {
            let mut earlier = same(&request.out, earlier, &facts)?;
            earlier.cut_to_whole_rounds();
            earlier
        }
        None => {
            Results { format: FORMAT.to_owned(), version: VERSION, sweep: sweep(request), facts, boots: Vec::new() }
        }
    };
    out.save(&results)?;
    bench.boots(&mut results, &mut out, stop)?;
    Ok(if results.is_complete() { Finished::Complete(results) } else { Finished::Stopped(results) })
}

/// What is wrong with the request alone.
fn check(request: &Request) -> Result<()> {
    ensure!((1..=1000).contains(&request.runs), "--runs {}: must be 1 to 1000", request.runs);
    ensure!(!request.timeout.is_zero(), "--timeout 0: must be at least 1 second");
    let kinds = || request.vmms.iter().map(|choice| choice.kind);
    if let Some(twice) = kinds().find(|kind| kinds().filter(|other| other == kind).count() > 1) {
        bail!("--vmm {twice}: named twice: must be one program of each kind");
    }
    if let Some(idler) = request.matrix.vmms.iter().find(|vmm| !request.work.is_empty() && !vmm.works()) {
        bail!("--vmm {idler}: --work is for flatboot and qemu");
    }
    if let Some(reader) = request.work.iter().find(|one| matches!(one.task, Task::Readers(_))) {
        let most = (DISK_MIB / READ_TIMES) << 20;
        if let Some(shape) = request.matrix.shapes.iter().find(|shape| shape.memory.bytes() > most) {
            bail!("--memory {}: --work {} is for VMs of at most {}", shape.memory, reader.name, size(most));
        }
    }
    if !(request.matrix.vms.is_empty() || request.work.is_empty()) {
        bail!("--work: a fleet has nothing to do; `run` measures workloads, one VM at a time");
    }
    if let Some(switch) = request.matrix.idle_switches().first() {
        let vmm = if switch.is_of_flatboot() { " with --vmm flatboot" } else { "" };
        bail!("--without {}: turns nothing off here: switches are of --mode {FULL_SET}{vmm}", switch.name);
    }
    if !(request.matrix.threads.is_empty() || request.matrix.modes.iter().any(|mode| mode.threads)) {
        bail!("--threads: caps nothing here: must go with --mode parallel or async");
    }
    if let (Some(kernel), false) = (&request.stock_kernel, request.matrix.modes.iter().any(|mode| mode.is_stock())) {
        bail!("--stock-kernel {}: is booted by --mode stock alone, which is not asked for", kernel.display());
    }
    check_starts(request)?;
    let boots = sweep(request).boots_wanted();
    ensure!(
        boots <= MOST_BOOTS,
        "--runs {}: {boots} boots, but a results file has room for {MOST_BOOTS}",
        request.runs
    );
    Ok(())
}

/// VMs that are restored, or whose memory changes, are flatboot's alone, and do nothing else meanwhile.
fn check_starts(request: &Request) -> Result<()> {
    let matrix = &request.matrix;
    let starts = || matrix.shapes.iter().filter_map(|shape| Some((shape, shape.start?)));
    ensure!(!matrix.shapes.is_empty(), "--memory: no size to measure");
    if starts().next().is_none() {
        return Ok(());
    }
    if let Some(other) = matrix.vmms.iter().find(|vmm| **vmm != Kind::Flatboot) {
        bail!("--vmm {other}: --start restore and --resize are for flatboot");
    }
    ensure!(request.work.is_empty(), "--work: is for VMs that are booted, without --start restore and --resize");
    ensure!(
        request.until == Until::Init,
        "--until filled: is for VMs that are booted, without --start restore and --resize"
    );
    let resizes = starts().any(|(_, start)| matches!(start, Start::Resized { .. }));
    ensure!(!resizes || matrix.vms.is_empty(), "--resize: is for one VM at a time, without --vms");
    for (shape, start) in starts() {
        if let Start::Restored { from_bytes: Some(from) } = start {
            let more = shape.memory.bytes().checked_sub(from);
            let fits = more.is_some_and(|more| more.is_multiple_of(SECTION_SIZE));
            ensure!(
                fits,
                "--start restore={}: {} must be as much, or more by a multiple of 128 MiB",
                size(from),
                shape.memory
            );
        }
    }
    let grows = starts().any(|(_, start)| !matches!(start, Start::Restored { from_bytes: None }));
    let stock = matrix.modes.iter().any(|mode| mode.is_stock());
    ensure!(!grows || !stock, "--mode stock: cannot change its memory: must be another mode");
    Ok(())
}

fn sweep(request: &Request) -> Sweep {
    Sweep {
        variants: request.matrix.variants(),
        runs: request.runs,
        timeout_ms: u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX),
        cmdline: match watched(request) {
            Until::Init => CMDLINE.to_owned(),
            Until::Filled => CMDLINE.to_owned() + FILLED,
            Until::Worked => format!("{CMDLINE} flatboot.check={}", checks(&request.work)),
        },
        host_pages: request.host_pages,
        work: request.work.iter().map(|one| one.name.to_owned()).collect(),
    }
}

fn watched(request: &Request) -> Until {
    if request.work.is_empty() { request.until } else { Until::Worked }
}

fn checks(work: &[&Workload]) -> String {
    work.iter().map(|one| format!("{}={}", work::CHECK, one.name)).collect::<Vec<_>>().join(",")
}

/// The file `out` to go on with, if it is of the very sweep `is`.
pub(crate) fn resumed(out: &Path, is: &Sweep) -> Result<Results> {
    let earlier = results::load(out)?;
    let was = &earlier.sweep;
    let names = |sweep: &Sweep| sweep.variants.iter().map(describe).collect::<Vec<_>>().join("; ");
    let facts = [
        ("the variants", names(was), names(is)),
        ("--runs", was.runs.to_string(), is.runs.to_string()),
        ("--timeout", seconds(was.timeout_ms), seconds(is.timeout_ms)),
        ("the kernel command line", was.cmdline.clone(), is.cmdline.clone()),
        ("--host-pages", was.host_pages.to_string(), is.host_pages.to_string()),
    ];
    agree(out, facts.into_iter().find(|(_, was, is)| was != is))?;
    Ok(earlier)
}

/// Whether nothing differs between what is in the file, which comes first, and what is now.
fn agree(path: &Path, differs: Option<(&str, String, String)>) -> Result<()> {
    match differs {
        Some((what, was, is)) => {
            bail!("{}: cannot be resumed: {what} differ: {was} in the file, {is} now", path.display())
        }
        None => Ok(()),
    }
}

fn seconds(ms: u64) -> String {
    format!("{} s", Duration::from_millis(ms).as_secs_f64())
}

/// Whether the host and the guest are alike.
fn same(path: &Path, earlier: Results, now: &Facts) -> Result<Results> {
    agree(path, earlier.facts.unlike(now))?;
    Ok(earlier)
}

/// Whether the host can address the largest guest.
fn fits(matrix: &Matrix, host: &Surroundings) -> Result<()> {
    let bits = host.physical_address_bits;
    // Up to 4 GiB of the addresses are for devices.
    let room = 1u64.checked_shl(bits).unwrap_or(u64::MAX).saturating_sub(4 << 30);
    let before = |shape: &Shape| match shape.start {
        Some(Start::Restored { from_bytes }) => from_bytes.unwrap_or(0),
        Some(Start::Resized { from_bytes }) => from_bytes,
        None => 0,
    };
    match matrix.shapes.iter().map(|shape| before(shape).max(shape.memory.bytes())).max() {
        Some(bytes) if bytes > room => {
            let memory = size(bytes);
            bail!("memory {memory}: the host's physical addresses have {bits} bits, 4 GiB of which are for devices")
        }
        _ => Ok(()),
    }
}

/// What every boot needs.
struct Bench {
    backend: Backend,
    vmms: Vec<Vmm>,
    /// What makes the tables that some VMMs are given.
    tables: Option<PathBuf>,
    /// This program, and what it was when the sweep began.
    own: (PathBuf, String),
    images: Images,
    host_kernel: Option<PathBuf>,
    until: Until,
    /// The initramfs; in an emulated host also, in memory, what is staged.
    scratch: TempDir,
}

/// What guests boot, given or built.
struct Images {
    kernel: PathBuf,
    /// The kernel without the series, if it is booted.
    stock: Option<PathBuf>,
    /// The disk for workloads, if there are any.
    userland: Option<PathBuf>,
}

impl Images {
    fn of(request: &Request) -> Result<Self> {
        let has_stock = request.matrix.modes.iter().any(|mode| mode.is_stock());
        Ok(Self {
            kernel: image(request.kernel.as_deref(), "guest")?,
            stock: has_stock.then(|| image(request.stock_kernel.as_deref(), STOCK)).transpose()?,
            userland: (!request.work.is_empty()).then(artifact::work_disk).transpose()?,
        })
    }
}

impl Bench {
    fn open(request: &Request, vmms: Vec<Vmm>) -> Result<Self> {
        let flatboot = vmms.iter().find(|vmm| vmm.kind == Kind::Flatboot).map(|vmm| PathBuf::from(&vmm.program));
        let flatboot = flatboot.or_else(|| artifact::flatboot(None));
        let tables = vmms.iter().any(|vmm| vmm.kind.table().is_some());
        let tables = tables.then(|| artifact::needed_flatboot(flatboot.as_deref())).transpose()?;
        let own = env::current_exe().context("flatboot-bench's own path")?;
        let own = (own.clone(), setup::hash(&own)?);
        let images = Images::of(request)?;
        let backend = Backend::open(flatboot.as_deref())?;
        let host_kernel = backend.host_kernel()?;
        let scratch = tempfile::Builder::new().prefix("flatboot-sweep-").tempdir().context("temporary directory")?;
        initramfs::write_guest(&scratch.path().join("tiny.cpio"))?;
        Ok(Self { backend, vmms, tables, own, images, host_kernel, until: watched(request), scratch })
    }

    /// Facts about what is booted.
    fn guest(&self) -> Result<GuestFacts> {
        let images = &self.images;
        let guest = setup::guest(&images.kernel, images.stock.as_deref(), &self.initramfs())?;
        Ok(GuestFacts { userland: images.userland.as_deref().and_then(setup::recipe), ..guest })
    }

    /// SHA-256 of what boots it.
    fn programs(&self) -> Result<BTreeMap<String, String>> {
        setup::programs(&self.vmms, self.tables.as_deref())
    }

    /// What is not any more what the sweep began with, if anything.
    fn changed(&self, began: &Facts) -> Result<Option<String>> {
        let (own, hash) = &self.own;
        if setup::hash(own)? != *hash {
            return Ok(Some(own.display().to_string()));
        }
        let now = Facts { guest: self.guest()?, programs: self.programs()?, ..began.clone() };
        Ok(began.unlike(&now).map(|(what, was, is)| format!("{what}: {was} when it began, {is} now")))
    }

    fn initramfs(&self) -> PathBuf {
        self.scratch.path().join("tiny.cpio")
    }

    fn surroundings(&self, stop: &Stop) -> Result<Surroundings> {
        let programs: Vec<_> = self.vmms.iter().map(|vmm| &*vmm.program).collect();
        let output = self.observer(&["--facts"], &programs, Duration::from_secs(60), stop)?;
        serde_json::from_slice(&output).context("observer")
    }

    /// Runs this program's observer in a fresh host and gives back what it prints.
    fn observer(&self, options: &[&str], words: &[&str], limit: Duration, stop: &Stop) -> Result<Vec<u8>> {
        let options_of_host = HostOptions { kernel: self.host_kernel.clone(), ..HostOptions::default() };
        let command = Command::new(&self.own.0).arg("observe").args(options).arg("--").args(words).timeout(limit);
        let mut session = self.backend.start(&options_of_host)?;
        stop.guard(session.control(), Signal::TERM.as_raw());
        let outcome = session.run(&command);
        stop.release();
        let outcome = outcome?;
        match outcome.code {
            0 => Ok(outcome.stdout),
            code => {
                let said = String::from_utf8_lossy(&outcome.stderr).lines().next_back().unwrap_or_default().to_owned();
                bail!("observer: exit code {code}: {said}")
            }
        }
    }

    /// Boots what is missing, by whole rounds. Where some are there, a warm-up round that is not kept comes before the others: what
    /// it warms up may be cold again.
    fn boots(&self, results: &mut Results, out: &mut Output<'_>, stop: &Stop) -> Result<()> {
        let (sweep, done) = (results.sweep.clone(), results.rounds());
        if results.is_complete() {
            return Ok(());
        }
        let all = sweep.boots_wanted();
        let node = env::var("SLURMD_NODENAME").ok();
        let turns: Vec<_> = sweep.turns().filter(|(_, round)| *round == 0 || *round >= done).collect();
        let progress = Progress::begin("sweep".to_owned());
        progress.expect(turns.iter().map(|(variant, _)| sweep.variants[*variant].boots()).sum());
        for (turn, (variant, round)) in turns.iter().copied().enumerate() {
            if stop.is_asked() {
                break;
            }
            let rounds = if round == 0 { "warm-up".to_owned() } else { format!("round {round} of {}", sweep.runs) };
            let what = format!("{rounds}  {}", describe(&sweep.variants[variant]));
            progress.show(&what);
            let ends = self.boot(&sweep, variant, stop)?;
            if stop.is_asked() {
                // Whatever came of it was the stop's doing.
                break;
            }
            let (result, reached) = told(&ends);
            progress.done(ends.len());
            if round >= done {
                let boot = |end| Boot { variant, round, node: node.clone(), end };
                results.boots.extend(ends.into_iter().map(boot));
                out.save(results)?;
            }
            progress.say(&format!("{:>4}/{all}  {what}  {result}", results.boots.len()), reached);
            let is_last = turns.get(turn + 1).is_none_or(|(_, next)| *next != round);
            // What cannot be read any more has changed, too.
            let changed = || self.changed(&results.facts).unwrap_or_else(|error| Some(format!("{error:#}")));
            if let Some(what) = is_last.then(changed).flatten() {
                // Which boots of the round it was that had the other one, nobody knows. Those of before are there already.
                results.boots.retain(|boot| boot.round < round.max(done));
                out.save(results)?;
                bail!("a sweep is of the same programs from its beginning to its end, and this changed: {what}");
            }
        }
        Ok(())
    }

    /// The boots of a turn.
    fn boot(&self, sweep: &Sweep, variant: usize, stop: &Stop) -> Result<Vec<End>> {
        let order = self.order(&sweep.variants[variant], sweep)?;
        let json = serde_json::to_string(&order)?;
        let watched = match self.until {
            Until::Init => 1,
            Until::Filled | Until::Worked => 2,
        };
        let (saved, requests) = match sweep.variants[variant].start {
            None => (0, 0),
            Some(Start::Restored { .. }) => (1, REQUESTS),
            Some(Start::Resized { .. }) => (0, REQUESTS),
        };
        let limit = Duration::from_millis(sweep.timeout_ms) * (watched + saved) + LIMIT * requests + OVERHEAD;
        // A host that fails costs one boot and not the sweep.
        let failed = |why: String| {
            let end = End::Failed { why: format!("the host failed: {why}"), console: Vec::new() };
            vec![end; sweep.variants[variant].boots()]
        };
        let ends = match self.observer(&[], &[&json], limit, stop) {
            Ok(output) => serde_json::from_slice(&output).unwrap_or_else(|error| failed(error.to_string())),
            Err(error) => failed(format!("{error:#}")),
        };
        Ok(ends.into_iter().map(|end| with_all_work(end, &sweep.work)).collect())
    }

    fn order(&self, variant: &Variant, sweep: &Sweep) -> Result<Order> {
        let unknown = || format!("no such variant: {}", describe(variant));
        let vmm = self.vmms.iter().find(|vmm| vmm.kind.name() == variant.vmm).with_context(unknown)?;
        let mode = Mode::named(&variant.mode).with_context(unknown)?;
        let named = |name: &String| Switch::named(name).with_context(unknown);
        let without = variant.without.as_ref().map(named).transpose()?;
        let Images { kernel, stock, userland } = &self.images;
        let kernel = if mode.is_stock() { stock.as_ref().with_context(unknown)? } else { kernel };
        let off = word(without, Place::Cmdline).unwrap_or_default().to_owned();
        let waits = matches!(variant.start, Some(Start::Restored { .. }));
        let wait = if waits { WAITING.to_owned() } else { String::new() };
        let words = [mode.cmdline(variant.threads.as_deref()), off, wait];
        let words = words.iter().filter(|word| !word.is_empty());
        let table = self.table(vmm.kind, variant.memory_bytes)?;
        let guest = Guest {
            kernel,
            initramfs: &self.initramfs(),
            cmdline: words.fold(sweep.cmdline.clone(), |line, word| format!("{line} {word}")),
            memory_bytes: variant.memory_bytes,
            cpus: variant.cpus,
            start: variant.start,
            table: table.as_deref(),
            userland: userland.as_deref(),
            without,
        };
        let watch =
            Watch { limit_ms: sweep.timeout_ms, until: self.until, host_pages: sweep.host_pages, vms: variant.vms };
        Ok(vmm.order(&guest, self.scratch.path(), &watch))
    }
}

impl Bench {
    /// The table that `flatboot map` makes for a VM of that kind, if it gets one. Made once for each size.
    fn table(&self, kind: Kind, memory_bytes: u64) -> Result<Option<PathBuf>> {
        let Some((name, _)) = kind.table().filter(|(_, low)| memory_bytes > *low) else { return Ok(None) };
        let path = self.scratch.path().join(format!("{name}-{}", memory_bytes >> 20));
        if path.exists() {
            return Ok(Some(path));
        }
        let flatboot = self.tables.as_deref().context("no flatboot makes tables")?;
        let mut command = std::process::Command::new(flatboot);
        command.args(["map", "--for", name, "--memory", &format!("size={}M", memory_bytes >> 20), "--table"]);
        let output = command
            .arg(&path)
            .stdin(std::process::Stdio::null())
            .output()
            .with_context(|| flatboot.display().to_string())?;
        ensure!(output.status.success(), "flatboot map: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(Some(path))
    }
}

/// A boot that tells no rate of a workload has failed: what the kernel says may come in the middle of a line.
fn with_all_work(end: End, work: &[String]) -> End {
    let End::Init(sample) = &end else { return end };
    match sample.lacks(work) {
        Some(lost) => End::Failed { why: format!("what it said of {lost} cannot be read"), console: Vec::new() },
        None => end,
    }
}

/// What came of a turn's boots, in a few words, and whether all reached init.
fn told(ends: &[End]) -> (String, bool) {
    let failed = || ends.iter().filter_map(|end| if let End::Failed { why, .. } = end { Some(why) } else { None });
    let times = ends.iter().filter_map(|end| if let End::Init(sample) = end { Some(sample.init_ns) } else { None });
    let last = times.max().map(|ns| format!("{} ms", ns / 1_000_000));
    match (failed().next(), ends.len()) {
        (None, _) => (last.unwrap_or_default(), true),
        (Some(why), 1) => (format!("FAILED: {why}"), false),
        (Some(why), all) => (format!("FAILED: {} of {all}: {why}", failed().count()), false),
    }
}

/// The kernel `given`, else that which the source tree builds under `name`.
fn image(given: Option<&Path>, name: &str) -> Result<PathBuf> {
    match given {
        Some(path) => std::path::absolute(path).with_context(|| format!("{}: cannot be read", path.display())),
        None => Ok(artifact::kernel(name)?.join("vmlinux")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;
    use crate::results::Sample;

    #[test]
    fn a_boot_whose_work_cannot_be_read_has_failed() {
        let told = Sample { work: [("tx-1".to_owned(), 7)].into(), ..Sample::default() };
        let all = ["tx-1", "rx-4"].map(str::to_owned);
        assert_eq!(with_all_work(End::Init(told.clone()), &all[..1]), End::Init(told.clone()));
        let why = "what it said of rx-4 cannot be read".to_owned();
        assert_eq!(with_all_work(End::Init(told), &all), End::Failed { why, console: Vec::new() });
    }

    #[test]
    fn a_sweep_goes_on_on_a_like_host() {
        let earlier = fixture::sweep(vec![fixture::variant("flatboot", "async", fixture::GIB)], 1, |_, _| 1);
        let with = |change: fn(&mut Facts)| {
            let mut now = earlier.facts.clone();
            change(&mut now);
            same(Path::new("r.json"), earlier.clone(), &now).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(with(|now| now.host.memory_bytes -= 4096), Ok(()));
        let error = with(|now| now.host.kernel = "7.0".to_owned()).unwrap_err();
        assert!(error.starts_with("r.json: cannot be resumed: the host differ: "), "{error}");
    }

    #[test]
    fn a_sweep_goes_on_with_the_programs_that_it_began_with() {
        let earlier = fixture::sweep(vec![fixture::variant("flatboot", "async", fixture::GIB)], 1, |_, _| 1);
        let facts = |hash: &str, revision: &str| Facts {
            programs: [("flatboot".to_owned(), hash.repeat(64))].into(),
            revision: Some(revision.to_owned()),
            ..earlier.facts.clone()
        };
        let then = facts("a", "1");
        let differs = |now: &Facts| then.unlike(now).map(|(what, was, is)| format!("{what}: {was}, {is}"));
        assert_eq!(differs(&facts("b", "1")).unwrap(), "the programs: flatboot aaaaaaaaaaaa, flatboot bbbbbbbbbbbb");
        assert_eq!(differs(&facts("a", "1-dirty")).unwrap(), "the revisions: 1, 1-dirty");
        assert_eq!([&facts("a", "1"), &earlier.facts].map(differs), [None, None], "an older file has neither");
    }
}
