// SPDX-License-Identifier: Apache-2.0
//! The host's pages, as memory and its parts are asked to be of.

use super::field::FieldError;
use crate::memory::HostPages;

pub(super) const MUST_BE_PAGES: &str = "must be 2M or 1G";

/// Those that are meant by whether they are to be huge, and how large.
pub(super) fn host_pages(hugepages: bool, hugepage_size: Option<u64>) -> Result<HostPages, FieldError> {
    let Some(bytes) = hugepage_size else {
        return Ok(if hugepages { HostPages::Huge2M } else { HostPages::Base });
    };
    let pages = [HostPages::Huge2M, HostPages::Huge1G].into_iter().find(|pages| pages.bytes() == bytes);
    match pages {
        None => Err(FieldError::new("hugepage_size", &bytes, MUST_BE_PAGES)),
        Some(_) if !hugepages => Err(FieldError::new("hugepage_size", &bytes, "must be with hugepages=on")),
        Some(pages) => Ok(pages),
    }
}
