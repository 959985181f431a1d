// SPDX-License-Identifier: Apache-2.0
//! What `compare` says, and its exit codes.

use flatboot_bench::results::{End, HostPages, Results, Start, Variant};

use super::{Case, Files, bench, changed, failed, finished, noisy, reached, results, run, variant};

/// qemu, serial, 16 GiB
const SLOWED: usize = 12;

fn one(times: impl IntoIterator<Item = u64>) -> Results {
    let times: Vec<_> = times.into_iter().collect();
    let runs = u32::try_from(times.len()).unwrap();
    results(vec![variant("qemu", "serial", 1)], runs, |_, round| {
        reached(times[(round.max(1) - 1) as usize] * 1_000_000, 1 << 20)
    })
}

#[test]
fn a_file_is_equal_to_itself() {
    let files = Files::new();
    for (runs, limit) in [(1, "1.05"), (3, "1.05"), (10, "1")] {
        let file = files.save("a.json", &noisy(1, runs));
        let same = run(&["compare", &file, &file, "--fail-above", limit]);
        assert_eq!((same.code, same.err.as_str()), (0, ""), "{}", same.out);
        assert_eq!(same.out.matches(" 1.000  ").count(), 20, "{}", same.out);
        assert!(same.out.contains("Host, guest, programs and command line are the same."), "{}", same.out);
        assert!(same.out.ends_with(&format!("--fail-above {limit}: held\n")), "{}", same.out);
    }
}

#[test]
fn one_variant_slowed_by_a_tenth_fails() {
    let files = Files::new();
    let a = files.save("a.json", &noisy(1, 10));
    // The same boots, and others like them.
    for seed in [1, 2] {
        let b = files.save("b.json", &changed(noisy(seed, 10), SLOWED, |ns| ns + ns / 10));
        let slowed = run(&["compare", &a, &b, "--fail-above", "1.05"]);
        assert_eq!((slowed.code, slowed.err.as_str()), (1, ""), "{}", slowed.out);
        let slowed = run(&["compare", &a, &b, "--fail-above", "1.05", "--if-shown"]);
        assert_eq!((slowed.code, slowed.err.as_str()), (1, ""), "{}", slowed.out);
        let (_, verdict) = slowed.out.split_once("--fail-above 1.05 --if-shown: FAILED\n").unwrap();
        let lines: Vec<_> = verdict.lines().collect();
        assert_eq!(lines.len(), 2, "{verdict}");
        assert!(lines[1].starts_with("  qemu serial, 16 GiB, 2 vCPUs  1."), "{verdict}");
        assert_eq!(slowed.out.matches("  slower\n").count(), 1, "{}", slowed.out);
    }
    // The same, and that is all: without a limit it is said and is no failure, and the output repeats.
    let same = files.save("b.json", &changed(noisy(1, 10), SLOWED, |ns| ns + ns / 10));
    let slowed = run(&["compare", &a, &same]);
    assert_eq!(slowed.code, 0);
    let rows = |ratio: &str| slowed.out.matches(&format!(" {ratio}  ")).count();
    assert_eq!((rows("1.100"), rows("1.000")), (1, 19), "{}", slowed.out);
    assert_eq!(slowed.out, run(&["compare", &a, &same]).out);
}

#[test]
fn what_is_not_above_the_limit_holds() {
    let files = Files::new();
    let (a, b) = (files.save("a.json", &one(1000..1010)), files.save("b.json", &one(1100..1110)));
    assert_eq!(run(&["compare", &a, &b, "--fail-above", "1.2"]).code, 0);
    let faster = run(&["compare", &b, &a, "--fail-above", "1.05"]);
    assert!(faster.code == 0 && faster.out.contains("  faster\n"), "{}", faster.out);
}

#[test]
fn a_gain_that_is_asked_for_and_missed_fails() {
    let files = Files::new();
    let (a, b) = (files.save("a.json", &one(1000..1010)), files.save("b.json", &one(900..910)));
    for (limit, code) in [("0.95", 0), ("0.85", 1)] {
        assert_eq!(run(&["compare", &a, &b, "--fail-above", limit]).code, code, "{limit}");
    }
}

#[test]
fn noise_fails_only_where_it_may() {
    let files = Files::new();
    let a = files.save("a.json", &one((0..10).map(|index| 1000 + 40 * index)));
    let b = files.save("b.json", &one((0..10).map(|index| 1090 + 40 * index)));
    let noise = run(&["compare", &a, &b, "--fail-above", "1.05", "--if-shown"]);
    assert!(noise.out.contains("Above, but noise alone can do that"), "{}", noise.out);
    assert!(noise.code == 0 && noise.out.contains("--fail-above 1.05 --if-shown: held\n"), "{}", noise.out);
    let above = run(&["compare", &a, &b, "--fail-above", "1.05"]);
    assert!(above.code == 1 && above.out.contains(": may be noise\n"), "{}", above.out);
    let alone = run(&["compare", &a, &b, "--if-shown"]);
    assert!(alone.code == 2 && alone.err.contains("--fail-above"), "{}", alone.err);
}

#[test]
fn what_cannot_be_judged_does_not_pass() {
    let files = Files::new();
    let a = files.save("a.json", &one(1000..1005));
    let b = files.save("b.json", &one(1100..1105));
    let above = run(&["compare", &a, &b, "--fail-above", "1.05"]);
    assert!(above.code == 1 && above.out.contains("1.100, of 5 samples: may be noise\n"), "{}", above.out);
    let few = run(&["compare", &a, &b, "--fail-above", "1.05", "--if-shown"]);
    assert_eq!(few.code, 2, "{}", few.out);
    assert!(few.out.contains("1.100, of 5 samples; at least 6 are needed\n"), "{}", few.out);
    assert!(few.out.contains("  too few samples\n") && few.out.contains("(least: 5)"), "{}", few.out);

    let mut none = one(1000..1005);
    none.boots.truncate(1);
    let none = run(&["compare", &a, &files.save("b.json", &none), "--fail-above", "1.05"]);
    assert!(none.code == 2 && none.out.contains("no samples in B"), "{}", none.out);

    let never = results(vec![variant("qemu", "serial", 1)], 10, |_, _| failed("no init"));
    let never = run(&["compare", &a, &files.save("b.json", &never), "--fail-above", "1.05"]);
    assert!(never.code == 1 && never.out.contains("no boot of B reached init"), "{}", never.out);
}

#[test]
fn limits_are_numbers_above_0() {
    let files = Files::new();
    let a = files.save("a.json", &noisy(1, 1));
    for wrong in ["0", "-1", "nan", "inf", "1e400", "5%", "", "1,05"] {
        let refused = run(&["compare", &a, &a, &format!("--fail-above={wrong}")]);
        assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{wrong}");
        assert!(refused.err.contains("must be a finite number above 0, such as 1.05"), "{}", refused.err);
    }
}

#[test]
fn other_hosts_are_refused_unless_they_are_wanted() {
    let files = Files::new();
    let a = files.save("a.json", &one(1000..1010));
    let with = |change: &dyn Fn(&mut Results)| {
        let mut other = one(1001..1011);
        change(&mut other);
        files.save("b.json", &other)
    };
    let changes: [Case<'_>; 5] = [
        (&|b| b.facts.host.kvm = "real".to_owned(), "KVM: emulated → real"),
        (&|b| b.facts.host.cpu_model = "Y".to_owned(), "CPU: Some CPU → Y"),
        (&|b| b.facts.host.machine_cpu_model = None, "CPU of the machine below: Another CPU → none"),
        (&|b| b.facts.host.cpus = 64, "CPUs: 2 → 64"),
        (&|b| b.facts.host.kernel = "6.1".to_owned(), "host kernel: 6.12.1 → 6.1"),
    ];
    for (change, what) in changes {
        let b = with(change);
        let refused = run(&["compare", &a, &b]);
        assert_eq!((refused.code, refused.out.as_str()), (2, ""));
        let line = format!(
            "flatboot-bench: {a} and {b}: the hosts differ: {what}; --across-hosts compares them nevertheless\n"
        );
        assert_eq!(refused.err, line);
        let (name, change) = what.split_once(": ").unwrap();
        let wanted = run(&["compare", &a, &b, "--across-hosts"]);
        assert!(
            wanted.code == 0 && wanted.out.contains(&format!("WARNING  the hosts differ ({name})")),
            "{}",
            wanted.out
        );
        assert!(wanted.out.contains(change), "{}", wanted.out);
    }
}

#[test]
fn what_is_compared_is_said() {
    let files = Files::new();
    let mut b = noisy(2, 10);
    b.facts.guest.build_id = Some("fedcba98765432100000".to_owned());
    b.facts.revision = Some("7654321-dirty".to_owned());
    b.facts.host.thp = "always".to_owned();
    b.facts.versions.insert("qemu".to_owned(), "QEMU 7.2".to_owned());
    b.sweep.cmdline = "quiet".to_owned();
    b.sweep.host_pages = HostPages::Small;
    let files_ab = (files.save("a.json", &noisy(1, 10)), files.save("b.json", &b));
    let shown = run(&["compare", &files_ab.0, &files_ab.1]);
    assert_eq!(shown.code, 0);
    for line in [
        "  revision        1234567 → 7654321-dirty\n",
        "  guest build id  0123456789ab → fedcba987654\n",
        "  command line    console=ttyS0 quiet → quiet\n",
        "  host pages      any → 4K\n",
        "  THP             madvise → always\n",
        "  qemu            none → QEMU 7.2\n",
    ] {
        assert!(shown.out.contains(line), "{line}{}", shown.out);
    }
    assert!(!shown.out.contains("initramfs"), "{}", shown.out);
}

#[test]
fn variants_of_one_file_are_listed() {
    let files = Files::new();
    let two = |other: &str| {
        results(vec![variant("qemu", "serial", 1), variant(other, "serial", 4)], 10, |_, _| reached(1 << 30, 1))
    };
    let shown = run(&["compare", &files.save("a.json", &two("old")), &files.save("b.json", &two("new"))]);
    assert!(shown.out.contains("  only in A  old serial, 4 GiB, 2 vCPUs\n"), "{}", shown.out);
    assert!(shown.out.contains("  only in B  new serial, 4 GiB, 2 vCPUs\n"), "{}", shown.out);

    let other = results(vec![variant("x", "serial", 1)], 10, |_, _| reached(1 << 30, 1));
    let (a, x) = (files.save("a.json", &two("old")), files.save("x.json", &other));
    let nothing = run(&["compare", &a, &x]);
    assert_eq!((nothing.code, nothing.out.as_str()), (2, ""));
    assert_eq!(nothing.err, format!("flatboot-bench: {a} and {x}: no variant is in both\n"));
}

#[test]
fn a_restore_is_compared_with_a_restore() {
    let files = Files::new();
    let restored = || Variant { start: Some(Start::Restored { from_bytes: None }), ..variant("qemu", "serial", 4) };
    let resized = Variant { start: Some(Start::Resized { from_bytes: 1 << 30 }), ..variant("qemu", "serial", 4) };
    let a = results(vec![variant("qemu", "serial", 4), restored()], 10, |variant, _| {
        reached(if variant.start.is_some() { 100 } else { 1000 }, 1)
    });
    let b = results(vec![resized, restored()], 10, |variant, _| {
        reached(if variant.start == restored().start { 100 } else { 10 }, 1)
    });
    let shown = run(&["compare", &files.save("a.json", &a), &files.save("b.json", &b), "--fail-above", "1.01"]);
    assert_eq!(shown.code, 0, "{}", shown.out);
    assert!(
        shown.out.contains("      2   4 GiB  10    0.0 ms    0.0 ms  1.000  1.000 – 1.000  no difference shown\n"),
        "{}",
        shown.out
    );
    assert!(shown.out.contains("qemu serial, restored"), "{}", shown.out);
    assert!(shown.out.contains("  only in A  qemu serial, 4 GiB, 2 vCPUs\n"), "{}", shown.out);
    assert!(shown.out.contains("  only in B  qemu serial, resized from 1 GiB, 4 GiB, 2 vCPUs\n"), "{}", shown.out);
}

#[test]
fn different_ends_are_not_passed_over() {
    let files = Files::new();
    let mut b = one(1000..1010);
    for boot in &mut b.boots {
        if let End::Init(sample) = &mut boot.end {
            sample.by_mark = false;
        }
    }
    let shown = run(&["compare", &files.save("a.json", &one(1000..1010)), &files.save("b.json", &b)]);
    assert!(shown.out.contains("WARNING  1 variant: one file ends at the kernel's mark"), "{}", shown.out);
}

#[test]
fn narrow_screens_get_fewer_columns() {
    let files = Files::new();
    let a = files.save("a", &noisy(1, 10));
    let b = files.save("b", &noisy(2, 10));
    for width in [120, 80, 70, 60, 50, 44] {
        let shown =
            finished(&bench().args(["compare", &a, &b]).env("COLUMNS", width.to_string()).output().unwrap()).out;
        let longest = shown.lines().skip(1).max_by_key(|line| line.chars().count()).unwrap();
        assert!(longest.chars().count() <= width, "{width}: {longest}");
        assert!(shown.contains("B / A") && shown.contains("verdict"), "{shown}");
    }
}
