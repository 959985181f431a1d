// SPDX-License-Identifier: Apache-2.0
//! The plan of a seed.

use super::dice::Dice;
use super::end::{End, GUEST, REQUESTS, RESTARTS, SIGNALS};
use super::plan::{Api, Balloon, Disk, Plan, Rest, Second, Serial};
use crate::modes::{MODES, Mode};

/// Classes of sizes: the share of boots in percent, least and most MiB. All other guests are larger, and take long where
/// all of their memmap is filled.
const SIZES: &[(u64, u64, u64)] = &[(35, 512, 1 << 10), (35, 1 << 10, 4 << 10), (20, 4 << 10, 16 << 10)];
/// The largest guest, in MiB, whose memmap is filled: it takes a 64th of that from the host.
const MOST_FILLED: u64 = 64 << 10;
/// The largest one, in MiB.
const MOST: u64 = 256 << 10;
/// Sizes are multiples of one of these, in MiB: of anything, of a section of the memmap, of 1 GiB.
const GRAINS: &[u64] = &[1, 1, 128, 1 << 10];

/// More of `--memory` that any guest can have.
const PAGES: &[&str] = &["shared=on", "thp=off", "thp=all"];
/// The same of `--study`.
const STUDIES: &[&str] = &["layout=pc", "arenas=off", "zeroed=off"];
/// The same for guests with memory above 4 GiB.
const HOLES: &[&str] = &["holes=1", "holes=3", "holes=7"];
/// From so many MiB on there is enough above 4 GiB for holes, whatever the layout.
const WITH_HOLES: u64 = 5 << 10;
/// Up to so many MiB the arenas are prefaulted now and then.
const PREFAULTED: u64 = 16 << 10;

const THREADS: &[&str] = &["1", "2", "50%"];

impl Plan {
    /// The plan of `seed`.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::of(seed);
        let modes: Vec<&'static Mode> = MODES.iter().filter(|mode| !mode.is_stock()).collect();
        let mode = dice.one_of(&modes);
        let memory_mib = size(&mut dice, mode);
        let api = dice.one_of(&[Api::Off, Api::Off, Api::Beside, Api::Server]);
        let end = end(&mut dice, api);
        let plan = Self {
            seed,
            memory_mib,
            cpus: dice.one_of(&[1, 2, 2, 3, 4]),
            mode,
            threads: (mode.threads && dice.chance(30)).then(|| dice.one_of(THREADS)),
            table: dice.chance(80),
            pages: pages(&mut dice),
            study: study(&mut dice, memory_mib),
            early: dice.chance(85),
            disks: disks(&mut dice),
            rng: dice.chance(70),
            // A server makes no taps, whatever starts its first VM.
            net: api == Api::Off && dice.chance(60),
            serial: serial(&mut dice, api, end),
            seccomp: dice.one_of(&["true", "true", "log", "false"]),
            api,
            rest: rest(&mut dice, api, end),
            log: if dice.chance(15) { "loglevel=5" } else { "" },
            work: work(&mut dice, mode),
            vsock: false,
            second: Second::Off,
            balloon: None,
            end,
        };
        // What came later is drawn last: of a seed, all else stays.
        Self {
            vsock: dice.chance(30),
            second: dice.one_of(&[Second::Off, Second::Off, Second::Null, Second::Pty, Second::Socket]),
            balloon: dice.chance(30).then(|| balloon(&mut dice, plan.work)),
            ..plan
        }
    }
}

fn size(dice: &mut Dice, mode: &Mode) -> u64 {
    let percent = dice.within(1..=100);
    let mut sum = 0;
    let class = SIZES.iter().find(|(share, ..)| {
        sum += share;
        percent <= sum
    });
    let most = if mode.name == "ondemand" { MOST } else { MOST_FILLED };
    let (least, most) = class.map_or((16 << 10, most), |(_, least, most)| (*least, *most));
    let mib = dice.within(least..=most);
    (mib - mib % dice.one_of(GRAINS)).max(least)
}

fn pages(dice: &mut Dice) -> Vec<&'static str> {
    if dice.chance(20) { vec![dice.one_of(PAGES)] } else { Vec::new() }
}

fn study(dice: &mut Dice, memory_mib: u64) -> Vec<&'static str> {
    let mut study = Vec::new();
    if dice.chance(20) {
        study.push(dice.one_of(STUDIES));
    }
    if memory_mib >= WITH_HOLES && dice.chance(30) {
        study.push(dice.one_of(HOLES));
    }
    let prefaulted = memory_mib <= PREFAULTED && dice.chance(10);
    if prefaulted && !study.contains(&"arenas=off") {
        study.push("prefault_arenas=on");
    }
    study
}

fn disks(dice: &mut Dice) -> Vec<Disk> {
    let count = dice.one_of(&[0, 0, 1, 1, 2, 3]);
    (0..count).map(|_| Disk { readonly: dice.chance(30), limited: dice.chance(20) }).collect()
}

fn end(dice: &mut Dice, api: Api) -> End {
    let ends = match api {
        Api::Off => [GUEST, SIGNALS, RESTARTS].concat(),
        // Half of them by requests.
        Api::Beside => [GUEST, SIGNALS, REQUESTS, REQUESTS].concat(),
        // A server that has no VM yet ends otherwise: nothing at random moments.
        Api::Server => [GUEST, &[End::Terminated, End::TerminatedTwice], REQUESTS].concat(),
    };
    match dice.one_of(&ends) {
        End::TerminatedEarly(_) => End::TerminatedEarly(dice.moment()),
        End::Killed(_) => End::Killed(dice.moment()),
        end => end,
    }
}

/// What only marks tell of ends by itself; and a server has no standard output to spare.
fn serial(dice: &mut Dice, api: Api, end: End) -> Serial {
    let mut places = vec![Serial::File];
    if api != Api::Server {
        places.extend([Serial::Stdout; 2]);
    }
    if end.is_the_guests() {
        places.push(Serial::Null);
    }
    dice.one_of(&places)
}

/// None for a VM that is killed anyway, or starts again in between.
fn rest(dice: &mut Dice, api: Api, end: End) -> Option<Rest> {
    let rests = api != Api::Off && end.comes_up() && !end.restarts() && dice.chance(50);
    rests.then(|| Rest { after_ms: dice.moment(), for_ms: dice.within(0..=500) })
}

/// A memmap that is filled on demand never settles.
fn work(dice: &mut Dice, mode: &Mode) -> &'static str {
    match dice.one_of(&["", "", "hog=64M", "accounts", "settle"]) {
        "settle" if mode.name == "ondemand" => "hog=64M",
        work => work,
    }
}

/// Small enough for every guest. One that is filled while the guest watches what its memory adds up to would change the sum.
fn balloon(dice: &mut Dice, work: &str) -> Balloon {
    let mib = dice.one_of(&[0, 1, 32]);
    let watches = work == "accounts" || work.starts_with("hog");
    Balloon { mib: if watches { 0 } else { mib }, reporting: dice.chance(50) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::mem::discriminant;

    use super::*;

    const SEEDS: u64 = 3000;

    fn plans() -> impl Iterator<Item = Plan> {
        (0..SEEDS).map(Plan::of)
    }

    #[test]
    fn a_seed_decides_everything() {
        for seed in (0..SEEDS).step_by(7).chain([u64::MAX]) {
            assert_eq!(Plan::of(seed), Plan::of(seed));
        }
        let different: HashSet<_> = plans().map(|plan| format!("{:?}", Plan { seed: 0, ..plan })).collect();
        assert!(different.len() as u64 > SEEDS * 99 / 100, "{}", different.len());
    }

    #[test]
    fn every_kind_comes_up() {
        let ends: HashSet<_> = plans().map(|plan| discriminant(&plan.end)).collect();
        assert_eq!(ends.len(), [GUEST, SIGNALS, RESTARTS, REQUESTS].concat().len());
        let modes: HashSet<_> = plans().map(|plan| plan.mode.name).collect();
        assert_eq!(modes, HashSet::from(["serial", "parallel", "async", "ondemand"]));
        let words: HashSet<_> = plans().flat_map(|plan| [plan.pages, plan.study].concat()).collect();
        assert_eq!(words.len(), PAGES.len() + STUDIES.len() + HOLES.len() + 1);
        let kinds = |kind: fn(&Plan) -> String| plans().map(|plan| kind(&plan)).collect::<HashSet<_>>().len();
        assert_eq!(kinds(|plan| plan.cpus.to_string()), 4);
        assert_eq!(kinds(|plan| format!("{:?} {:?}", plan.api, plan.serial)), 8);
        assert_eq!(kinds(|plan| plan.seccomp.to_owned()), 3);
        assert_eq!(kinds(|plan| plan.work.to_owned()), 4);
        assert_eq!(kinds(|plan| plan.disks.len().to_string()), 4);
        assert_eq!(kinds(|plan| format!("{:?}", plan.disks.first())), 5);
        assert_eq!(kinds(|plan| plan.threads.unwrap_or("none").to_owned()), 1 + THREADS.len());
        assert_eq!(kinds(|plan| format!("{} {} {}", plan.table, plan.early, plan.rng)), 8);
        assert_eq!(kinds(|plan| format!("{} {:?}", plan.net, plan.api)), 4);
        assert_eq!(kinds(|plan| format!("{} {}", plan.rest.is_some(), plan.log)), 4);
        assert_eq!(kinds(|plan| format!("{} {:?} {:?}", plan.vsock, plan.second, plan.api)), 2 * 4 * 3);
        assert_eq!(kinds(|plan| format!("{:?}", plan.balloon)), 1 + 3 * 2);
    }

    #[test]
    fn sizes_are_of_all_kinds_and_what_a_host_can_give() {
        let sizes: Vec<_> = plans().map(|plan| plan.memory_mib).collect();
        assert!(sizes.iter().all(|mib| (512..=MOST).contains(mib)));
        let share = |is: fn(&u64) -> bool| sizes.iter().filter(|mib| is(mib)).count() as u64 * 100 / SEEDS;
        assert!(share(|mib| mib % 128 != 0) > 30, "odd");
        assert!(share(|mib| mib % 1024 == 0) > 10, "even");
        assert!(share(|mib| *mib > 16 << 10) > 5, "large");
        let filled = plans().filter(|plan| plan.mode.name != "ondemand").map(|plan| plan.memory_mib).max();
        assert!(filled <= Some(MOST_FILLED) && sizes.iter().any(|mib| *mib > MOST_FILLED));
    }

    #[test]
    fn nothing_is_planned_that_cannot_be_seen_or_done() {
        for plan in plans() {
            let Plan { api, end, serial, .. } = plan;
            let both = ["arenas=off", "prefault_arenas=on"].iter().all(|part| plan.study.contains(part));
            assert!(!both, "{plan:?}");
            assert!(serial != Serial::Null || end.is_the_guests(), "{plan:?}");
            assert!(api != Api::Server || (serial != Serial::Stdout && end.comes_up()), "{plan:?}");
            assert!(api != Api::Off || !REQUESTS.contains(&end), "{plan:?}");
            assert!(plan.rest.is_none() || api != Api::Off, "{plan:?}");
            let watches = matches!(plan.work, "accounts" | "hog=64M");
            assert!(!watches || plan.balloon.is_none_or(|balloon| balloon.mib == 0), "{plan:?}");
        }
    }
}
