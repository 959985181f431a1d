// SPDX-License-Identifier: Apache-2.0
//! `flatboot map`: the memory map and the hand-off that a VM would get.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use flatboot_handoff::{FW_CFG, FW_CFG_FILE, KERNEL_PARAMETER, TableError};

use super::args::MapArgs;
use super::stdio;
use crate::config::{
    ConfigError, CpuCount, INITRAMFS, InputFile, KERNEL, MemoryConfig, OptionError, OutputFile, Shape, StudyConfig,
};
use crate::field::Field;
use crate::kernel::{Image, KernelError};
use crate::memory::{
    AddressWidth, Foreign, ForeignError, ForeignHandOff, GpaRange, MemoryMap, MemoryPlan, PayloadKind, PlanError, Size,
};

/// Of `map` alone.
const TABLE: Field = Field::section("table");
/// The address width of a processor that does not say.
const USUAL_ADDRESS_BITS: u8 = 46;

/// Why there is no map.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The command line or a file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The size, the kernel or the initramfs is too much.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The kernel image is none.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The size has no hand-off under another VMM.
    #[error(transparent)]
    Foreign(#[from] ForeignError),
    /// What has no meaning under another VMM is asked for.
    #[error(
        "--for {0}: takes the size of --memory, and arenas and zeroed of --study: must be without their other keys, \
         --memory-zone and --numa"
    )]
    ForeignKeys(Foreign),
    /// The table is to be another one than the planned one, which is what a map shows.
    #[error("--study handoff: map shows what is planned: must be without handoff and handoff_file")]
    NotPlanned,
    /// The table cannot be made.
    #[error("--table: {0}")]
    Table(#[from] TableError),
    /// The table cannot be written.
    #[error("--table {path}: {source}")]
    TableFile {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The map cannot be printed.
    #[error("standard output: {0}")]
    Output(io::Error),
}

impl MapError {
    /// Whether the command line alone is wrong, whatever files there are.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Config(error) => error.is_usage(),
            Self::Plan(error) => error.is_usage(),
            Self::Foreign(_) | Self::ForeignKeys(_) | Self::NotPlanned => true,
            Self::Kernel(_) | Self::Table(_) | Self::TableFile { .. } | Self::Output(_) => false,
        }
    }
}

/// Prints the map to standard output.
pub fn print(args: &MapArgs) -> Result<(), MapError> {
    let inspect = |file: &InputFile| Ok(Image::inspect(file.path(), file.file())?.footprint());
    let text = match args.foreign {
        Some(vmm) => foreign(args, vmm)?,
        None => map(args, inspect)?,
    };
    stdio::print(&text).map_err(MapError::Output)
}

/// Writes the table of a VM under another VMM; returns what to tell the user.
fn foreign(args: &MapArgs, vmm: Foreign) -> Result<String, MapError> {
    let Shape { memory, study, .. } = Shape::parse(&args.shape)?;
    let StudyConfig { arenas, zeroed, .. } = study;
    let other = StudyConfig { arenas, zeroed, ..StudyConfig::default() };
    let ordinary = MemoryConfig { size: memory.size, ..MemoryConfig::default() };
    if memory != ordinary || study != other || !args.shape.numa.is_empty() {
        return Err(MapError::ForeignKeys(vmm));
    }
    let plan = ForeignHandOff::new(vmm, memory.size, arenas, zeroed)?;
    let table = plan.table()?;
    write_table(args.table.as_deref(), &table)?;
    let path = args.table.as_deref().unwrap_or_else(|| Path::new("")).display();
    let option = match vmm {
        Foreign::QemuMicrovm | Foreign::QemuQ35 => format!("-fw_cfg name={FW_CFG_FILE},file={path}"),
        Foreign::CloudHypervisor => format!("--fw-cfg-config items=[name={FW_CFG_FILE},file={path}]"),
    };
    let regions = plan.regions.iter().map(|region| line("region", region.base, region.end()));
    let arenas = plan.arenas.iter().map(|arena| line("memmap arena", arena.base, arena.end()));
    let said: String = regions.chain(arenas).collect();
    Ok(format!(
        "{said}{} bytes in {path}\n\nVMM option: {option}\nKernel parameter: {KERNEL_PARAMETER}={FW_CFG}\n",
        table.len()
    ))
}

fn line(what: &str, base: u64, end: u64) -> String {
    format!("{base:#015x}  {end:#015x}  {:>11}  {what}\n", Size(end - base).to_string())
}

/// What is read is not to be written over.
fn check_table(args: &MapArgs) -> Result<(), MapError> {
    let real = |path: &Path| fs::canonicalize(path).ok();
    let Some((path, table)) = args.table.as_deref().and_then(|path| Some((path, real(path)?))) else { return Ok(()) };
    let inputs = [&args.kernel, &args.initramfs];
    if inputs.into_iter().flatten().any(|input| real(input).as_ref() == Some(&table)) {
        let must = "must be another file than the kernel and the initramfs";
        return Err(ConfigError::from(OptionError::word(TABLE, &path.display().to_string(), must)).into());
    }
    Ok(())
}

fn write_table(path: Option<&Path>, table: &[u8]) -> Result<(), MapError> {
    let Some(path) = path else { return Ok(()) };
    let mut file = OutputFile::open(TABLE, path).and_then(OutputFile::commit).map_err(ConfigError::from)?;
    file.write_all(table).map_err(|source| MapError::TableFile { path: path.display().to_string(), source })
}

/// The map's text; `footprint` says what guest memory a kernel image takes.
fn map(args: &MapArgs, footprint: impl FnOnce(&InputFile) -> Result<GpaRange, MapError>) -> Result<String, MapError> {
    let shape = Shape::parse(&args.shape)?;
    if !shape.study.handoff || shape.study.handoff_file.is_some() {
        return Err(MapError::NotPlanned);
    }
    let kernel = open(KERNEL, args.kernel.as_deref())?;
    let initramfs = open(INITRAMFS, args.initramfs.as_deref())?;
    let image = kernel.as_ref().map(footprint).transpose()?;
    let payload = PayloadKind::Kernel { image, initramfs: initramfs.map(|file| file.length()) };
    let plan = MemoryPlan::new(&shape.plan_input(), payload, host_address_width())?;
    check_table(args)?;
    write_table(args.table.as_deref(), &plan.hand_off()?)?;
    let map = MemoryMap(&plan);
    let cpus = shape.cpus.boot;
    if args.json { json(map, cpus).map_err(|error| MapError::Output(error.into())) } else { Ok(text(map, cpus)) }
}

fn open(field: Field, path: Option<&Path>) -> Result<Option<InputFile>, ConfigError> {
    Ok(path.map(|path| InputFile::open(field, path)).transpose()?)
}

fn json(map: MemoryMap<'_>, cpus: CpuCount) -> serde_json::Result<String> {
    let mut value = serde_json::to_value(map)?;
    value["cpus"] = cpus.get().into();
    Ok(format!("{value:#}\n"))
}

fn text(map: MemoryMap<'_>, cpus: CpuCount) -> String {
    format!("{cpus} vCPU{}, {map}", if cpus.get() == 1 { "" } else { "s" })
}

/// The width of this host's physical addresses as Linux says it: what the processor has, less what memory encryption takes.
fn host_address_width() -> AddressWidth {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    AddressWidth::reported(address_bits(&cpuinfo).unwrap_or(USUAL_ADDRESS_BITS))
}

/// From the line `address sizes : 46 bits physical, 48 bits virtual`.
fn address_bits(cpuinfo: &str) -> Option<u8> {
    let line = cpuinfo.lines().find(|line| line.starts_with("address sizes"))?;
    let (_, sizes) = line.split_once(':')?;
    sizes.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ShapeArgs;

    const MIB: u64 = 1 << 20;

    fn args(memory: &str) -> MapArgs {
        let shape = ShapeArgs { cpus: "boot=2".to_owned(), memory: Some(memory.to_owned()), ..ShapeArgs::default() };
        MapArgs { shape, kernel: None, initramfs: None, json: false, foreign: None, table: None }
    }

    fn studied(memory: &str, study: &str) -> MapArgs {
        let plain = args(memory);
        MapArgs { shape: ShapeArgs { study: vec![study.to_owned()], ..plain.shape }, ..plain }
    }

    fn map_with(args: &MapArgs, kernel: GpaRange) -> Result<String, MapError> {
        map(args, |_| Ok(kernel))
    }

    #[test]
    fn a_map_shows_what_is_placed() {
        let kernel = tempfile::NamedTempFile::new().unwrap();
        fs::write(kernel.path(), [0; 5000]).unwrap();
        let args = MapArgs {
            kernel: Some(kernel.path().into()),
            initramfs: Some(kernel.path().into()),
            ..args("size=1G,hugepages=on")
        };
        let shown = map_with(&args, GpaRange::new(16 * MIB, 48 * MIB)).unwrap();
        assert!(shown.starts_with("2 vCPUs, 1 GiB of RAM in 2 KVM slots, 2 MiB pages, "), "{shown}");
        for line in [
            "0x0000001000000  0x0000003000000       32 MiB      kernel\n",
            "0x000001fffe000  0x000001ffff388       5000 B      initramfs\n",
            "0x0000100000000  0x0000120000000      512 MiB  KVM slot 1, RAM, region 1 (ZEROED)\n",
            "0x000011ec00000  0x000011fc00000       16 MiB    memmap arena 0\n",
        ] {
            assert!(shown.contains(line), "{line}{shown}");
        }

        let json: serde_json::Value =
            serde_json::from_str(&map_with(&MapArgs { json: true, ..args }, GpaRange::new(MIB, 2 * MIB)).unwrap())
                .unwrap();
        assert_eq!(json["cpus"], 2);
        assert_eq!(json["initramfs"]["start"], 0x1fff_e000);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |memory: &str| map_with(&args(memory), GpaRange::new(0, 0)).unwrap_err();
        assert!(refused("size=16777215T").to_string().starts_with("memory.size=16777215T: must be between 64M and "));
        assert!(refused("size=16777215T").is_usage());
        assert_eq!(refused("size=32M").to_string(), "memory.size=32M: must be at least 64M");

        let kernel = tempfile::NamedTempFile::new().unwrap();
        fs::write(kernel.path(), "k").unwrap();
        let with_kernel = MapArgs { kernel: Some(kernel.path().into()), ..args("size=64M") };
        let error = map_with(&with_kernel, GpaRange::new(16 * MIB, 64 * MIB)).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("kernel: takes guest memory 0x1000000..0x4000000: must be inside 0x100000..0x3a00000, "),
            "{error}"
        );
        assert!(!error.is_usage());
    }

    #[test]
    fn a_table_is_what_a_kernel_would_find() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let table = Some(file.path().to_owned());
        let own = MapArgs { table: table.clone(), ..args("size=1G") };
        map_with(&own, GpaRange::new(0, 0)).unwrap();
        let bytes = fs::read(file.path()).unwrap();
        assert_eq!(flatboot_handoff::Table::parse(&bytes).unwrap().regions().len(), 2);

        let other = MapArgs { table, ..studied("size=64G", "zeroed=off") };
        let said = foreign(&other, Foreign::QemuMicrovm).unwrap();
        let option = format!("-fw_cfg name=opt/org.flatboot/memmap-handoff,file={}\n", file.path().display());
        for line in [option.as_str(), "Kernel parameter: memmap_handoff=fw_cfg\n", "region\n", "memmap arena\n"] {
            assert!(said.contains(line), "{line}{said}");
        }
        // What was longer before is cut.
        let bytes = fs::read(file.path()).unwrap();
        let parsed = flatboot_handoff::Table::parse(&bytes).unwrap();
        assert_eq!((parsed.as_bytes().len(), parsed.regions().len(), parsed.arenas().len()), (bytes.len(), 1, 1));
    }

    #[test]
    fn what_has_no_meaning_under_another_vmm_is_refused() {
        let refused = |memory: &str| foreign(&args(memory), Foreign::QemuQ35).unwrap_err();
        let keys = ["hugepages=on", "shared=on", "thp=off", "prefault=on"];
        let keys = keys.map(|key| args(&format!("size=64G,{key}"))).into_iter();
        let studies = ["layout=pc", "holes=1", "early=off", "handoff=off"].map(|study| studied("size=64G", study));
        for args in keys.chain(studies) {
            let error = foreign(&args, Foreign::QemuQ35).unwrap_err();
            let said = "--for qemu-q35: takes the size of --memory, and arenas and zeroed of --study: must be ";
            assert!(error.to_string().starts_with(said), "{error}");
            assert!(error.is_usage());
        }
        let no_table = map_with(&studied("size=1G", "handoff=off"), GpaRange::new(0, 0)).unwrap_err();
        assert!(matches!(no_table, MapError::NotPlanned) && no_table.is_usage());
        assert!(refused("size=2G").is_usage());
        let mut with_nodes = args("size=64G");
        with_nodes.shape.numa = vec!["guest_numa_id=0,cpus=[0-1],memory_zones=[mem0]".to_owned()];
        assert!(matches!(foreign(&with_nodes, Foreign::QemuQ35), Err(MapError::ForeignKeys(_))));
    }

    #[test]
    fn the_processor_says_how_wide_its_addresses_are() {
        let cpuinfo = "processor\t: 0\naddress sizes\t: 39 bits physical, 48 bits virtual\n";
        assert_eq!(address_bits(cpuinfo), Some(39));
        assert_eq!(address_bits("processor : 0\n"), None);
        assert!(host_address_width().bits() >= AddressWidth::MIN);
    }
}
