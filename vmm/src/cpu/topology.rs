// SPDX-License-Identifier: Apache-2.0
//! How vCPUs are grouped, and the APIC ids that follow from it.
//!
//! An id is made of four numbers side by side: thread, core, die, package, from the lowest bit up. Each has as many bits as its
//! largest needs, so ids have gaps where a count is no power of two.

/// How many threads a core has, cores a die, dies a package, and how many packages there are. None is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTopology {
    threads_per_core: u16,
    cores_per_die: u16,
    dies_per_package: u16,
    packages: u16,
}

impl CpuTopology {
    /// Takes the four counts, unless one is zero.
    #[must_use]
    pub const fn new(threads_per_core: u16, cores_per_die: u16, dies_per_package: u16, packages: u16) -> Option<Self> {
        if threads_per_core == 0 || cores_per_die == 0 || dies_per_package == 0 || packages == 0 {
            return None;
        }
        Some(Self { threads_per_core, cores_per_die, dies_per_package, packages })
    }

    /// One package with one die of so many cores, at least one, each with one thread.
    #[must_use]
    pub const fn flat(cores: u16) -> Self {
        let cores_per_die = if cores == 0 { 1 } else { cores };
        Self { threads_per_core: 1, cores_per_die, dies_per_package: 1, packages: 1 }
    }

    /// Whether it is that of one package with one die of single-threaded cores.
    #[must_use]
    pub const fn is_flat(self) -> bool {
        self.threads_per_core == 1 && self.dies_per_package == 1 && self.packages == 1
    }

    /// The four counts, from threads to packages.
    #[must_use]
    pub const fn counts(self) -> [u16; 4] {
        [self.threads_per_core, self.cores_per_die, self.dies_per_package, self.packages]
    }

    /// How many threads there are, which are vCPUs.
    #[must_use]
    pub fn total(self) -> u64 {
        self.counts().into_iter().map(u64::from).product()
    }

    /// Threads of a core.
    #[must_use]
    pub fn threads_per_core(self) -> u32 {
        self.threads_per_core.into()
    }

    /// Dies of a package.
    #[must_use]
    pub fn dies_per_package(self) -> u32 {
        self.dies_per_package.into()
    }

    /// Threads of a die. As all such numbers, it does not overflow while [`total`](Self::total) is a possible number of vCPUs.
    #[must_use]
    pub fn threads_per_die(self) -> u32 {
        self.threads_per_core().saturating_mul(self.cores_per_die.into())
    }

    /// Threads of a package.
    #[must_use]
    pub fn threads_per_package(self) -> u32 {
        self.threads_per_die().saturating_mul(self.dies_per_package())
    }

    /// How far to shift an APIC id to the right for the number of the core.
    #[must_use]
    pub fn core_shift(self) -> u32 {
        bits(self.threads_per_core)
    }

    /// How far to shift it for the number of the die.
    #[must_use]
    pub fn die_shift(self) -> u32 {
        self.core_shift() + bits(self.cores_per_die)
    }

    /// How far to shift it for the number of the package.
    #[must_use]
    pub fn package_shift(self) -> u32 {
        self.die_shift() + bits(self.dies_per_package)
    }

    /// Which core vCPU `index` is of, of all there are.
    #[must_use]
    pub fn core_of(self, index: u16) -> u32 {
        u32::from(index) / self.threads_per_core()
    }

    /// Which die it is of.
    #[must_use]
    pub fn die_of(self, index: u16) -> u32 {
        u32::from(index) / self.threads_per_die()
    }

    /// The APIC id of vCPU `index`: threads of a core are next to each other, and so on.
    #[must_use]
    pub fn apic_id(self, index: u16) -> u32 {
        let index = u32::from(index);
        let thread = index % self.threads_per_core();
        let core = index / self.threads_per_core() % u32::from(self.cores_per_die);
        let die = index / self.threads_per_die() % self.dies_per_package();
        let package = index / self.threads_per_package();
        thread | core << self.core_shift() | die << self.die_shift() | package << self.package_shift()
    }

    /// Whether ids are so large that only x2APICs have them: 255 is everybody's for older ones.
    #[must_use]
    pub fn needs_wide_ids(self) -> bool {
        self.largest_apic_id() >= 255
    }

    /// The APIC id of the last vCPU, which is the largest.
    #[must_use]
    pub fn largest_apic_id(self) -> u32 {
        let [threads, cores, dies, packages] = self.counts().map(|count| u64::from(count) - 1);
        let id = threads | cores << self.core_shift() | dies << self.die_shift() | packages << self.package_shift();
        u32::try_from(id).unwrap_or(u32::MAX)
    }
}

/// Bits that number `count` things.
fn bits(count: u16) -> u32 {
    u32::from(count).next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every topology of at most so many vCPUs in each group.
    fn topologies() -> impl Strategy<Value = CpuTopology> {
        (1..=4u16, 1..=9u16, 1..=3u16, 1..=5u16).prop_map(|(a, b, c, d)| CpuTopology::new(a, b, c, d).unwrap())
    }

    proptest! {
        #[test]
        fn ids_rise_and_name_the_groups(topology in topologies()) {
            let [threads, cores, dies, packages] = topology.counts();
            let mut expected = Vec::new();
            for package in 0..u32::from(packages) {
                for die in 0..u32::from(dies) {
                    for core in 0..u32::from(cores) {
                        expected.extend((0..u32::from(threads)).map(|thread| [package, die, core, thread]));
                    }
                }
            }
            prop_assert_eq!(expected.len() as u64, topology.total());
            let mut before = None;
            for (index, groups) in (0..).zip(expected) {
                let id = topology.apic_id(index);
                let field = |from: u32, to: u32| id >> from & ((1 << (to - from)) - 1);
                let (core, die, package) = (topology.core_shift(), topology.die_shift(), topology.package_shift());
                prop_assert_eq!([id >> package, field(die, package), field(core, die), field(0, core)], groups);
                prop_assert!(before < Some(id));
                before = Some(id);
            }
            prop_assert_eq!(before, Some(topology.largest_apic_id()));
        }
    }

    #[test]
    fn without_groups_ids_are_indexes() {
        for count in [1, 3, 255, 288, 4096] {
            let topology = CpuTopology::flat(count);
            assert!(topology.is_flat());
            assert!((0..count).all(|index| topology.apic_id(index) == u32::from(index)));
        }
        assert_eq!(CpuTopology::new(2, 0, 1, 1), None);
        assert_eq!(CpuTopology::new(u16::MAX, u16::MAX, u16::MAX, u16::MAX).unwrap().total(), 65535u64.pow(4));
    }
}
