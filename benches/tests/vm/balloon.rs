// SPDX-License-Identifier: Apache-2.0
//! Memory that a guest gives back to the host: what is free, and what it is asked for.

use libtest_mimic::{Completion, Failed, Trial};

use super::api::{prints, script};
use super::lab::Lab;

pub(crate) fn trials() -> [Trial; 1] {
    [Trial::ignorable_test("balloon::memory_goes_back_to_the_host", || {
        let lab = Lab::get()?;
        if !lab.kernel_has("CONFIG_VIRTIO_BALLOON")? || !lab.kernel_has("CONFIG_PAGE_REPORTING")? {
            return Ok(Completion::ignored_with("the guest kernel has no VIRTIO_BALLOON or no PAGE_REPORTING"));
        }
        given_back(lab).map(|()| Completion::Completed)
    })]
}

/// A guest of 1 GiB that has used nine tenths of it, and now nothing: it keeps that from the host without reporting, and not with it.
/// Asked for half of its memory, it gives that up, and takes it back.
fn given_back(lab: &Lab) -> Result<(), Failed> {
    let rest = r#"
rss() { awk '/^VmRSS/ { print int($2 / 1024) }' /proc/$pid/status; }
counter() { get vm.counters | grep -o "\"_balloon\":{[^}]*}" | grep -o "\"$1\":[0-9]*" | cut -d: -f2; }
size_is() { get vm.info | grep -q "\"memory_actual_size\":$1[,}]"; }
below() { [ $(rss) -lt $1 ]; }

put vm.boot; until_it inits 1
[ $(rss) -gt 800 ] || { echo "only $(rss) MiB were ever used" >&2; exit 98; }
put vm.shutdown
put vm.resize '{"desired_balloon": 4096}' >/dev/null 2>&1 && exit 97
put vm.delete

put vm.create "$(echo "$config" | sed 's/^{/{"balloon": {"size": 0, "free_page_reporting": true},/')"
put vm.boot; until_it inits 1
until_it below 400
[ $(counter reported_bytes) -gt 500000000 ]
put vm.resize '{"desired_balloon": 536870912}'
until_it size_is 536870912
[ $(counter inflated_bytes) = 536870912 ]
put vm.resize '{"desired_balloon": 0}'
until_it size_is 1073741824
[ $(counter deflated_bytes) = 536870912 ]
[ $(counter errors) = 0 ]
put vm.pause; put vm.resize '{"desired_balloon": 1048576}'; put vm.resume
until_it size_is 1072693248
put vm.shutdown; get vm.info | grep -o '"balloon":{"size":[0-9]*'
put vmm.shutdown; wait $pid
"#;
    let script = script(lab, "flatboot.check=settle,hog=90%,calm flatboot.end=hang", rest);
    prints(lab, &script, r#""balloon":{"size":1048576"#)
}
