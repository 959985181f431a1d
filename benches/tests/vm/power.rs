// SPDX-License-Identifier: Apache-2.0
//! Power cuts: flatboot is killed at random moments while its guest flushes what it writes.

use std::env;
use std::time::Duration;

use libtest_mimic::Failed;

use super::lab::{LIMIT, Lab, in_memory, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[("power::cuts_lose_nothing", cuts)];

/// The same disk lives through all of them. After each its journal is replayed, the file system must then be found without an
/// error, and what the guest was told is safe must be there: in a ledger, each record of 600 lines with its number, and under a
/// name that every eighth record changes.
fn cuts(lab: &Lab) -> Result<(), Failed> {
    let times = env::var("FLATBOOT_TIMES").map_or(Ok(3), |text| text.parse::<u32>())?;
    let script = format!(
        r#"
lost() {{ echo "cut $cut, disk of $kind: $1" >&2; tail -n 5 console check >&2; exit 98; }}
truncate -s 64M disk; mke2fs -q -t ext4 disk
cut=0; safe=0
while [ $cut -lt {times} ]; do
    cut=$((cut+1)); rm -f console ledger number
    case $((cut % 3)) in 0) kind=path=disk ;; 1) kind=path=disk,direct=on ;; 2) kind=path=disk,num_queues=2 ;; esac
    '{flatboot}' run --kernel '{kernel}' --initramfs '{initramfs}' --memory size=512M --serial file=console \
        --disk $kind --cmdline 'quiet flatboot.check=ledger=/dev/vda flatboot.end=hang' & vmm=$!
    n=0
    until grep -q '"written":' console 2>/dev/null; do
        n=$((n+1)); [ $n -lt 1200 ] && kill -0 $vmm || lost 'the guest writes nothing'
        sleep 0.1
    done
    sleep "0.$(tr -dc 0-9 </dev/urandom | head -c 3)"
    kill -KILL $vmm; wait $vmm || :; vmm=
    # The last line may have been cut short.
    said=$(sed -n 's/.*"written":\([0-9]*\)}}.*/\1/p' console | tail -n 1)
    code=0; e2fsck -p disk >check 2>&1 || code=$?
    [ $code -le 1 ] || lost "its file system needs more than its journal: $code"
    e2fsck -f -n disk >check 2>&1 || lost 'its file system has errors'
    debugfs -R 'dump /ledger ledger' disk 2>/dev/null
    head -c $((said * 600 * 8)) ledger | uniq -c |
        awk -v said="$said" '$1 != 600 || $2 + 0 != NR {{ bad = 1 }} END {{ exit bad || NR != said }}' || lost "of $said records some are lost"
    if [ $said -ge 8 ]; then
        debugfs -R 'dump /number number' disk 2>/dev/null
        [ "$(sed 's/^0*//' number)" -ge $((said / 8 * 8)) ] || lost "after $said records the name is of $(cat number)"
    fi
    safe=$((safe + said))
done
echo "$cut $safe"
"#,
        flatboot = lab.flatboot.display(),
        kernel = lab.kernel.join("vmlinux").display(),
        initramfs = lab.initramfs.display(),
    );
    let script = in_memory("kill -KILL $vmm", &script);
    let outcome = lab.shell_for(&script, LIMIT + Duration::from_secs(30) * times)?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    let numbers: Vec<u32> = said.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    // Every guest has written something before it was ended.
    require(outcome.code == 0 && numbers.len() == 2 && numbers[0] == times && numbers[1] >= times, seen)?;
    println!("power::cuts_lose_nothing: {times} cuts, {} records that were said to be safe are there", numbers[1]);
    Ok(())
}
