// SPDX-License-Identifier: Apache-2.0
//! What `show` says.

use std::fs::OpenOptions;
use std::process::Stdio;

use flatboot_bench::results::{End, Results, Variant};

use super::{Files, bench, failed, finished, noisy, reached, results, run, variant};

const MS: u64 = 1_000_000;

/// Two sizes in two modes; the times of the larger one are 1.00 to 1.09 s.
fn small() -> Results {
    let variants =
        vec![variant("flatboot", "parallel", 4), variant("flatboot", "parallel", 1), variant("qemu", "serial", 1)];
    results(variants, 10, |variant, round| {
        let (round, gib) = (u64::from(round), variant.memory_bytes >> 30);
        match (variant.vmm.as_str(), gib) {
            // The warm-up round must not count.
            (_, 4) => reached(if round == 0 { 1 } else { (990 + 10 * round) * MS }, 171 << 20),
            ("flatboot", _) => reached(500 * MS, 52 << 20),
            _ => reached(2000 * MS, 3 << 30),
        }
    })
}

#[test]
fn a_file_as_a_table() {
    let files = Files::new();
    let file = files.save("small.json", &small());
    let shown = run(&["show", &file]);
    let expected = "\
: 3 variants × 10 runs
  began         2026-11-20 14:12 UTC, revision 1234567
  host          emulated KVM, 2 × Some CPU, 14.0 GiB, Linux 6.12.1, THP madvise
  machine       Another CPU, below the emulated host
  guest         vmlinux, build id 0123456789ab, config abababababab, initramfs cdcdcdcdcdcd
  command line  console=ttyS0 quiet
  versions      flatboot 0.1.0

  vCPUs  memory   n  failed   median      p95  spread  growth  host memory
  ────────────────────────────────────────────────────────────────────────
  flatboot parallel
      2   1 GiB  10       ·  0.500 s  0.500 s   0.0 %   1.00×     52.0 MiB
          4 GiB  10       ·  1.045 s  1.090 s   4.8 %   2.09×      171 MiB

  qemu serial
      2   1 GiB  10       ·  2.000 s  2.000 s   0.0 %   1.00×     3.00 GiB

  Time to init. p95: 95 % of the boots took no longer. spread: width of the middle half of the
  boots, in % of the median. growth: median over that of the smallest memory with the same vCPUs.
  host memory: of the VMM at init, median.
";
    assert_eq!((shown.code, shown.err.as_str()), (0, ""));
    assert_eq!(shown.out, format!("{file}{expected}"));
}

#[test]
fn what_each_part_is_worth() {
    let files = Files::new();
    let without =
        |name: Option<&str>, gib| Variant { without: name.map(str::to_owned), ..variant("flatboot", "async", gib) };
    let variants =
        [1, 64].into_iter().flat_map(|gib| [None, Some("arenas"), Some("zero")].map(|name| without(name, gib)));
    let ablation = results(variants.collect(), 10, |variant, round| {
        let (ms, mib) = match (variant.without.as_deref(), variant.memory_bytes >> 30) {
            (Some("arenas"), 64) => (1500, 90),
            (Some("arenas"), _) => (1010, 52),
            _ => (1000, 52),
        };
        // Ten times around that, by 2 % at most.
        reached(ms * (990 + 2 * u64::from(round)) * MS / 1000, mib << 20)
    });
    let shown = run(&["show", &files.save("ablation.json", &ablation)]);
    let expected = "\
  switched off  memory   n  full set  without  ratio  95 % interval          host memory
  ──────────────────────────────────────────────────────────────────────────────────────
  flatboot async, 2 vCPUs: what each part is worth
  arenas         1 GiB  10   1.001 s  1.011 s  1.010  1.002 – 1.018  52.0 MiB → 52.0 MiB
                64 GiB  10   1.001 s  1.502 s  1.500  1.488 – 1.512  52.0 MiB → 90.0 MiB
  zero           1 GiB  10   1.001 s  1.001 s  1.000  0.992 – 1.008  52.0 MiB → 52.0 MiB
                64 GiB  10   1.001 s  1.001 s  1.000  0.992 – 1.008  52.0 MiB → 52.0 MiB
";
    assert!(shown.code == 0 && shown.out.contains(expected), "{}", shown.out);
    assert!(shown.out.contains("  flatboot async without arenas\n"), "{}", shown.out);
    // Nothing was switched off: no such table.
    assert!(!run(&["show", &files.save("small.json", &small())]).out.contains("each part"));
}

#[test]
fn what_weakens_the_numbers_is_said() {
    let files = Files::new();
    let whole = run(&["show", &files.save("whole.json", &noisy(1, 10))]);
    assert!(!whole.out.contains("WARNING") && !whole.out.contains("failure"), "{}", whole.out);

    let mut cut = noisy(1, 10);
    cut.boots.truncate(90);
    for boot in cut.boots.iter_mut().filter(|boot| boot.variant == 4 && boot.round > 0) {
        boot.end = failed(&format!("no init: round {}", boot.round));
    }
    let shown = run(&["show", &files.save("cut.json", &cut)]);
    assert_eq!(shown.code, 0);
    for line in [
        "WARNING  incomplete: 90 of 220 boots; `flatboot-bench run --resume` goes on with it\n",
        "WARNING  4 boots failed, of 1 variant\n",
        "WARNING  fewer than 10 samples of all variants (least: 0): p95 and spread say little\n",
        "         256 GiB  0       4        –        –       –       –            –\n",
        "  flatboot serial, 256 GiB, 2 vCPUs  no init: round 4\n",
    ] {
        assert!(shown.out.contains(line), "{line}{}", shown.out);
    }
}

#[test]
fn different_ends_are_not_passed_over() {
    let files = Files::new();
    let mut mixed = small();
    for boot in mixed.boots.iter_mut().filter(|boot| boot.variant == 2) {
        if let End::Init(sample) = &mut boot.end {
            sample.by_mark = false;
        }
    }
    let shown = run(&["show", &files.save("mixed.json", &mixed)]);
    assert!(shown.out.contains("WARNING  qemu: until init's first line on the console"), "{}", shown.out);
}

#[test]
fn narrow_screens_get_fewer_columns() {
    let files = Files::new();
    let file = files.save("twenty.json", &noisy(1, 10));
    for width in [120, 80, 70, 60, 50, 46] {
        let output = bench().args(["show", &file]).env("COLUMNS", width.to_string()).output().unwrap();
        let shown = finished(&output).out;
        // The file's own path may be longer.
        let longest = shown.lines().skip(1).max_by_key(|line| line.chars().count()).unwrap();
        assert!(longest.chars().count() <= width, "{width}: {longest}");
        assert!(shown.contains("median") && shown.contains("256 GiB"), "{shown}");
        assert_eq!(width < 74, shown.contains("Left out for want of room: host memory"), "{width}: {shown}");
    }
}

#[test]
fn colours_only_where_they_are_wanted() {
    let files = Files::new();
    let file = files.save("small.json", &small());
    assert!(!run(&["show", &file]).out.contains('\x1b'));
    let forced = finished(&bench().args(["show", &file]).env("CLICOLOR_FORCE", "1").output().unwrap());
    assert!(forced.out.contains("\x1b[1mflatboot parallel\x1b[0m"), "{}", forced.out);
}

#[test]
fn nothing_in_a_file_reaches_the_terminal_as_a_command() {
    let files = Files::new();
    let mut hostile = results(vec![variant("q\x1b[2Jemu", "ser\nial", 1)], 1, |_, _| failed("a\x1b]0;b\x07\nc"));
    hostile.facts.host.cpu_model = "CPU\r\u{9b}31m".to_owned();
    hostile.facts.revision = Some("\u{202e}é\x1b[1m".to_owned());
    hostile.sweep.cmdline = "\x1b[1;1H".to_owned();
    hostile.facts.versions.insert("\x1b[5m".to_owned(), "\x08".to_owned());
    let file = files.save("hostile.json", &hostile);
    for words in [vec!["show", &file], vec!["compare", &file, &file]] {
        let run = run(&words);
        let command = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(run.code == 0 && !run.out.contains(command), "{:?}", run.out);
        assert!(run.out.contains("q\u{fffd}[2Jemu ser ial"), "{}", run.out);
    }
}

#[test]
fn a_reader_who_leaves_is_no_error() {
    let files = Files::new();
    let file = files.save("small.json", &small());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = bench().args(["show", &file]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((finished(&output).code, finished(&output).err.as_str()), (0, ""));

    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = finished(&bench().args(["show", &file]).stdout(full).stderr(Stdio::piped()).output().unwrap());
    assert_eq!((output.code, output.err.lines().count()), (2, 1), "{}", output.err);
}

#[test]
fn a_sweep_of_any_length_is_counted() {
    let files = Files::new();
    let mut endless = small();
    endless.sweep.runs = u32::MAX;
    endless.boots.truncate(1);
    let shown = run(&["show", &files.save("endless.json", &endless)]);
    assert!(shown.out.contains("incomplete: 1 of 12884901888 boots"), "{}", shown.out);
}
