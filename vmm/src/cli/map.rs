// SPDX-License-Identifier: Apache-2.0
//! `flatboot map`: the memory map and the hand-off that a VM would get.

use std::fs;
use std::io;
use std::path::Path;

use super::args::MapArgs;
use super::stdio;
use crate::config::{ConfigError, CpuCount, CpusConfig, InputFile, MemoryConfig};
use crate::kernel::{Image, KernelError};
use crate::memory::{AddressWidth, GpaRange, MemoryMap, MemoryPlan, PlanError};

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
            Self::Kernel(_) | Self::Output(_) => false,
        }
    }
}

/// Prints the map to standard output.
pub fn run(args: &MapArgs) -> Result<(), MapError> {
    let inspect = |file: &InputFile| Ok(Image::inspect(file.path(), file.file())?.footprint());
    stdio::print(&map(args, inspect)?).map_err(MapError::Output)
}

/// The map's text; `footprint` says what guest memory a kernel image takes.
fn map(args: &MapArgs, footprint: impl FnOnce(&InputFile) -> Result<GpaRange, MapError>) -> Result<String, MapError> {
    let cpus = CpusConfig::parse(&args.shape.cpus).map_err(ConfigError::from)?;
    let memory = MemoryConfig::parse(&args.shape.memory).map_err(ConfigError::from)?;
    let mut plan = MemoryPlan::new(&memory.plan_input(host_address_width()))?;

    let kernel = open("--kernel", args.kernel.as_deref())?;
    let initramfs = open("--initramfs", args.initramfs.as_deref())?;
    let kernel = kernel.as_ref().map(footprint).transpose()?;
    if let Some(range) = kernel {
        plan.check_kernel(range)?;
    }
    let kernel_end = kernel.map_or(0, GpaRange::end);
    let initramfs = initramfs.map(|file| plan.place_initramfs(file.length(), kernel_end)).transpose()?;
    if let Some(range) = initramfs {
        plan.mark_written(range);
    }
    let backing = memory.backing(&plan, kernel, cpus.early);
    let map = MemoryMap { plan: &plan, backing: &backing, kernel, initramfs };
    let cpus = cpus.boot;
    if args.json { json(&map, cpus).map_err(|error| MapError::Output(error.into())) } else { Ok(text(&map, cpus)) }
}

fn open(option: &'static str, path: Option<&Path>) -> Result<Option<InputFile>, ConfigError> {
    Ok(path.map(|path| InputFile::open(option, path)).transpose()?)
}

fn json(map: &MemoryMap<'_>, cpus: CpuCount) -> serde_json::Result<String> {
    let mut value = serde_json::to_value(map)?;
    value["cpus"] = cpus.get().into();
    Ok(format!("{value:#}\n"))
}

fn text(map: &MemoryMap<'_>, cpus: CpuCount) -> String {
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
        let shape = ShapeArgs { cpus: "boot=2".to_owned(), memory: memory.to_owned() };
        MapArgs { shape, kernel: None, initramfs: None, json: false }
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
            "0x0000100000000  0x0000120000000      512 MiB  KVM slot 1, RAM, region 1 (ZEROED, HUGE)\n",
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
        assert_eq!(refused("size=32M").to_string(), "--memory size=32M: must be at least 64M");

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
    fn the_processor_says_how_wide_its_addresses_are() {
        let cpuinfo = "processor\t: 0\naddress sizes\t: 39 bits physical, 48 bits virtual\n";
        assert_eq!(address_bits(cpuinfo), Some(39));
        assert_eq!(address_bits("processor : 0\n"), None);
        assert!(host_address_width().bits() >= AddressWidth::MIN);
    }
}
