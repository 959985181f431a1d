// SPDX-License-Identifier: Apache-2.0
//! The pages that the host backs guest memory with.

/// Bytes of a huge page on x86-64; guest and host addresses agree modulo this, so that KVM can map huge pages.
pub const HUGE_PAGE: u64 = 2 << 20;

/// Size of the pages that the host backs guest memory with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostPages {
    /// Ordinary pages of 4 KiB, which the host may make transparent huge pages of.
    #[default]
    Base,
    /// Huge pages of 2 MiB from the host's reserved pool (hugetlbfs).
    Huge2M,
    /// Huge pages of 1 GiB from the host's reserved pool (hugetlbfs).
    Huge1G,
}

impl HostPages {
    /// Bytes of one page.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Base => 4 << 10,
            Self::Huge2M => HUGE_PAGE,
            Self::Huge1G => 1 << 30,
        }
    }

    /// Whether they come from a reserved pool of huge pages.
    #[must_use]
    pub const fn is_huge(self) -> bool {
        !matches!(self, Self::Base)
    }
}
