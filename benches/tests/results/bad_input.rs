// SPDX-License-Identifier: Apache-2.0
//! Files that are no good: one line that says why, exit code 2, nothing on standard output.

use flatboot_bench::results::{End, Results, load};

use super::{Case, Files, noisy, reached, results, run, variant, word};

fn refused(file: &str, why: &str) {
    let good = Files::new();
    let good = (good.save("good.json", &tiny()), good);
    for words in [vec!["show", file], vec!["compare", file, &good.0], vec!["compare", &good.0, file]] {
        let run = run(&words);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{words:?}: {}", run.err);
        assert_eq!(run.err, format!("flatboot-bench: {file}: {why}\n"), "{words:?}");
    }
}

fn tiny() -> Results {
    results(vec![variant("qemu", "serial", 1), variant("qemu", "parallel", 1)], 2, |_, _| reached(1 << 30, 1))
}

#[test]
fn not_a_file() {
    let files = Files::new();
    let none = word(&files.path("none.json"));
    refused(&none, "cannot be read: No such file or directory (os error 2)");
    refused(&word(files.0.path()), "cannot be read: Is a directory (os error 21)");
    refused("/dev/zero", "larger than 512 MiB, which no results file is");
    refused("/dev/null", "empty");
}

#[test]
fn not_a_results_file() {
    let files = Files::new();
    let not = "not a results file of flatboot-bench";
    for (content, why) in [
        ("", "empty".to_owned()),
        (" \n", "empty".to_owned()),
        ("hello", format!("{not}: it is not a JSON object")),
        ("[1]", format!("{not}: it is not a JSON object")),
        ("\u{7f}ELF", format!("{not}: it is not a JSON object")),
        ("{a}", format!("{not}: key must be a string at line 1 column 2")),
        ("{}", format!("{not}: it does not name its format")),
        (r#"{"format": "perf"}"#, format!("{not}: its format is \"perf\", not \"flatboot-bench results\"")),
        (
            &format!(r#"{{"format": [{}0]}}"#, "1,".repeat(100)),
            format!("{not}: its format is [{}1…, not \"flatboot-bench results\"", "1,".repeat(29)),
        ),
        (r#"{"format": [{}]}"#, format!("{not}: its format is [{{}}], not \"flatboot-bench results\"")),
        (
            r#"{"format": "\u001b[2J\u009b"}"#,
            format!("{not}: its format is \"\\u001b[2J\u{fffd}\", not \"flatboot-bench results\""),
        ),
    ] {
        refused(&files.write("file.json", content), &why);
    }
}

#[test]
fn another_version() {
    let files = Files::new();
    let newer = "but this flatboot-bench reads up to 6: a newer one wrote it";
    let whole = "not a results file of flatboot-bench: its version is";
    for (version, why) in [
        (r#","version":7"#, format!("version 7, {newer}")),
        (r#","version":99999999999"#, format!("version 99999999999, {newer}")),
        (r#","version":0"#, format!("{whole} 0, not a whole number from 1")),
        (r#","version":-1"#, format!("{whole} -1, not a whole number from 1")),
        (r#","version":"1""#, format!("{whole} \"1\", not a whole number from 1")),
        ("", "not a results file of flatboot-bench: it does not say its version".to_owned()),
    ] {
        let file = files.write("file.json", format!(r#"{{"format":"flatboot-bench results"{version},"new":1}}"#));
        refused(&file, &why);
    }
    let file = files.write("file.json", r#"{"format":"flatboot-bench results","version":1}"#);
    refused(&file, "not a results file of flatboot-bench: missing field `sweep` at line 1 column 47");
}

#[test]
fn cut_short_anywhere() {
    let files = Files::new();
    let path = files.path("file.json");
    files.save("file.json", &tiny());
    let whole = std::fs::read(&path).unwrap();
    let end = whole.trim_ascii_end().len();
    for length in (1..end).step_by(7).chain([end - 1]) {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains(": cut short: it ends at line "), "{length}: {error}");
    }
    std::fs::write(&path, &whole[..end]).unwrap();
    assert_eq!(load(&path).unwrap(), tiny());

    let short = whole[..end / 2].to_vec();
    let lines = short.split(|byte| *byte == b'\n').count();
    let file = files.write("file.json", short);
    refused(&file, &format!("cut short: it ends at line {lines}, in the middle of a value"));
}

#[test]
fn sweeps_that_cannot_be() {
    let files = Files::new();
    let cases: [Case<'_>; 5] = [
        // Nobody may go through four billion empty rounds in search of the next boot.
        (
            &|bad| {
                bad.sweep.variants.clear();
                bad.sweep.runs = u32::MAX;
            },
            "its sweep has no variants",
        ),
        (&|bad| bad.sweep.runs = 0, "its sweep has 0 runs, expected at least 1"),
        (&|bad| bad.sweep.variants[1].memory_bytes = 0, "variant 1 has no memory"),
        (&|bad| bad.sweep.variants[0].cpus = 0, "variant 0 has no vCPUs"),
        (&|bad| bad.sweep.variants[1] = bad.sweep.variants[0].clone(), "variant 1 is there twice"),
    ];
    for (change, why) in cases {
        let mut bad = tiny();
        change(&mut bad);
        refused(&files.save("file.json", &bad), why);
    }
}

#[test]
fn boots_that_contradict_the_sweep() {
    let files = Files::new();
    let cases: [Case<'_>; 6] = [
        (
            &|bad| bad.boots[1].variant = usize::MAX,
            "boot 1: variant 18446744073709551615 in round 0, where the sweep's next is variant 1 in round 0",
        ),
        (&|bad| bad.boots[2].round = 0, "boot 2: variant 0 in round 0, where the sweep's next is variant 0 in round 1"),
        (&|bad| bad.boots.swap(0, 1), "boot 0: variant 1 in round 0, where the sweep's next is variant 0 in round 0"),
        (
            &|bad| drop(bad.boots.remove(0)),
            "boot 0: variant 1 in round 0, where the sweep's next is variant 0 in round 0",
        ),
        (&|bad| bad.boots.push(bad.boots[5].clone()), "boot 6: the sweep has only 6 boots"),
        (&|bad| bad.boots[3].end = reached(0, 1), "boot 3: it reached init after 0 ns"),
    ];
    for (change, why) in cases {
        let mut bad = tiny();
        change(&mut bad);
        refused(&files.save("file.json", &bad), why);
    }
}

#[test]
fn numbers_at_their_ends_are_shown() {
    let files = Files::new();
    let mut huge = noisy(1, 2);
    huge.facts.began_unix_s = u64::MAX;
    (huge.facts.host.cpus, huge.facts.host.memory_bytes) = (u32::MAX, u64::MAX);
    for variant in &mut huge.sweep.variants {
        variant.memory_bytes -= 1;
    }
    for boot in &mut huge.boots {
        boot.end = reached(if boot.variant == 0 { 1 } else { u64::MAX - 2_000_000 }, u64::MAX);
        if let End::Init(sample) = &mut boot.end {
            sample.console_ns = u64::MAX;
        }
    }
    let file = files.save("huge.json", &huge);
    for words in [vec!["show", &file], vec!["compare", &file, &file, "--fail-above", "1.05"]] {
        let shown = run(&words);
        assert_eq!((shown.code, shown.err.as_str()), (0, ""), "{}", shown.out);
    }
}
