// SPDX-License-Identifier: Apache-2.0
//! What `scrub` leaves out.

use flatboot_bench::results::{End, Results, load};

use super::{Files, failed, reached, results, run, variant};

/// A sweep over three nodes, one of which has lost a boot.
fn of_a_cluster() -> Results {
    let mut results = results(vec![variant("flatboot", "async", 1)], 5, |_, round| match round {
        3 => failed("the host failed: slurmd on rack7-b.corp.example (10.7.0.12): /srv/ada/job.sh: no such file"),
        _ => reached(500_000_000, 52 << 20),
    });
    for (boot, node) in results.boots.iter_mut().zip(["rack9-a", "rack7-b", "rack9-a", "rack7-b", "rack1", "rack9-a"]) {
        boot.node = Some(node.to_owned());
    }
    results
}

#[test]
fn names_paths_and_addresses_are_replaced() {
    let files = Files::new();
    let (file, out) = (files.save("r.json", &of_a_cluster()), files.path("sent.json.zst"));
    let told = run(&["scrub", &file, "-o", out.to_str().unwrap()]);
    assert_eq!((told.code, told.err.as_str()), (0, ""));
    assert!(told.out.ends_with("sent.json.zst: replaced 7 names, 1 path and 1 address; read it before you send it\n"));

    let mut expected = of_a_cluster();
    let nodes = ["node1", "node2", "node1", "node2", "node3", "node1"];
    for (boot, node) in expected.boots.iter_mut().zip(nodes) {
        boot.node = Some(node.to_owned());
    }
    let End::Failed { why, .. } = &mut expected.boots[3].end else { panic!("it has failed") };
    *why = "the host failed: slurmd on node2 (<address>): <path>: no such file".to_owned();
    let sent = load(&out).unwrap();
    assert_eq!(sent, expected);
    // All else is there: whoever gets it can show it, and compare with it.
    assert_eq!(run(&["show", out.to_str().unwrap()]).code, 0);
    assert_eq!(run(&["compare", &file, out.to_str().unwrap()]).code, 0);
    // And once more, in the place of another.
    let again = files.save("again.json", &expected);
    assert_eq!(run(&["scrub", out.to_str().unwrap(), "-o", &again]).code, 0);
    assert_eq!(load(again.as_ref()).unwrap(), expected);
}

#[test]
fn nothing_else_is_replaced() {
    let files = Files::new();
    let (file, other) = (files.save("r.json", &of_a_cluster()), files.write("notes.txt", "mine"));
    for (out, said) in [(&file, "would take its own place"), (&other, "only another results file is replaced")] {
        let told = run(&["scrub", &file, "-o", out]);
        assert_eq!((told.code, told.out.as_str()), (2, ""));
        assert!(told.err.contains(said), "{}", told.err);
    }
    assert_eq!(std::fs::read(&other).unwrap(), b"mine");
    assert_eq!(load(file.as_ref()).unwrap(), of_a_cluster());
}
