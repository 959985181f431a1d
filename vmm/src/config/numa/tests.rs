// SPDX-License-Identifier: Apache-2.0

use proptest::prelude::*;

use super::*;
use crate::cli::in_options;

const MIB: u64 = 1 << 20;

fn texts(options: &[&str]) -> Vec<String> {
    options.iter().map(|text| (*text).to_owned()).collect()
}

/// What follows from a command line, or what is wrong with it.
fn of(boot: &str, zones: &[&str], numa: &[&str]) -> Result<(Nodes, Vec<Zone>), String> {
    let cpus = CpusConfig::parse(&format!("boot={boot}")).unwrap();
    let size = if zones.is_empty() { "size=1G" } else { "size=0" };
    let resolved = || -> Result<_, OptionError> {
        let memory = MemoryConfig::parse(size, &texts(zones))?;
        let options = numa.iter().map(|text| NumaOption::parse(text)).collect::<Result<Vec<_>, _>>()?;
        Ok(resolved(&options, &cpus, &memory)?)
    };
    resolved().map_err(|error| in_options(|| error.to_string()))
}

#[test]
fn nodes_have_their_memory_one_after_the_other() {
    let zones = ["id=a,size=1G", "id=b,size=2G,host_numa_node=1", "id=c,size=128M,shared=on"];
    let numa = [
        "guest_numa_id=4,cpus=[1-2],memory_zones=[a],distances=[1@30,4@10]",
        "guest_numa_id=1,cpus=[0,3],memory_zones=[c,b],distances=[4@30]",
    ];
    let (nodes, zones) = of("4", &zones, &numa).unwrap();
    let found: Vec<_> =
        nodes.iter().map(|(_, node)| (node.domain, lists::written(&node.cpus), node.distances.clone())).collect();
    assert_eq!(found, [(1, "0,3".to_owned(), vec![10, 30]), (4, "1-2".to_owned(), vec![30, 10])]);
    let found: Vec<_> = zones.iter().map(|zone| (zone.size / MIB, zone.node, zone.backing.host_node)).collect();
    assert_eq!(found, [(128, 0, None), (2048, 0, Some(1)), (1024, 1, None)]);
    assert!(zones[0].backing.shared && !zones[1].backing.shared);
}

#[test]
fn memory_without_zones_is_one() {
    let (nodes, zones) = of("2", &[], &["guest_numa_id=7,cpus=0-1,memory_zones=mem0"]).unwrap();
    assert_eq!((nodes.count(), nodes.domain(0), zones.len(), zones[0].size), (1, 7, 1, 1 << 30));
    let (nodes, zones) = of("2", &["id=a,size=128M", "id=b,size=65M"], &[]).unwrap();
    assert_eq!((nodes.count(), zones.len()), (1, 2));
    assert!(zones.iter().all(|zone| zone.node == 0));
}

#[test]
fn distances_that_nobody_says_are_usual() {
    let zones = ["id=a,size=128M", "id=b,size=128M", "id=c,size=128M"];
    let numa = [
        "guest_numa_id=0,cpus=[0],memory_zones=[a]",
        "guest_numa_id=1,memory_zones=[b],distances=[0@11]",
        "guest_numa_id=2,memory_zones=[c]",
    ];
    let (nodes, _) = of("1", &zones, &numa).unwrap();
    let distances: Vec<_> = nodes.iter().map(|(_, node)| node.distances.clone()).collect();
    assert_eq!(distances, [[10, 11, 20], [11, 10, 20], [20, 20, 10]]);
}

#[test]
fn what_does_not_fit_together_is_named() {
    let zones = ["id=a,size=128M", "id=b,size=128M"];
    let (first, second) = ("guest_numa_id=0,cpus=[0],memory_zones=[a]", "guest_numa_id=1,cpus=[1],memory_zones=[b]");
    assert!(of("2", &zones, &[first, second]).is_ok());
    let cases: [(&[&str], &str); 16] = [
        (
            &[first, "guest_numa_id=0,cpus=[1],memory_zones=[b]"],
            "guest_numa_id=0: is that of another node: must be the id of no other",
        ),
        (&[first, "guest_numa_id=1,cpus=[2],memory_zones=[b]"], "cpus=2: has vCPU 2: must be vCPUs below 2"),
        (
            &[first, "guest_numa_id=1,cpus=[0-1],memory_zones=[b]"],
            "cpus=0-1: has vCPU 0, which another node has: must be vCPUs of no other node",
        ),
        (&[first, "guest_numa_id=1,memory_zones=[b]"], "cpus=: leaves vCPUs 1 on no node: each vCPU must be on a node"),
        (&[first, "guest_numa_id=1,cpus=[1]"], "memory_zones=: must be at least one zone"),
        (
            &[first, "guest_numa_id=1,cpus=[1],memory_zones=[x]"],
            "memory_zones=x: there is no zone x: must be ids of zones",
        ),
        (
            &[first, "guest_numa_id=1,cpus=[1],memory_zones=[b,a]"],
            "memory_zones=b,a: has zone a a second time: must be zones of no other node",
        ),
        (
            &["guest_numa_id=0,cpus=[0-1],memory_zones=[a]"],
            "memory_zones=a: leaves zone b on no node: each zone must be on a node",
        ),
        (
            &[first, "guest_numa_id=1,cpus=[1],memory_zones=[b],distances=[7@20]"],
            "distances=[7@20]: there is no node 7: must be of nodes that are there",
        ),
        (
            &[
                "guest_numa_id=0,cpus=[0],memory_zones=[a],distances=[1@20]",
                "guest_numa_id=1,cpus=[1],memory_zones=[b],distances=[0@21]",
            ],
            "distances=[1@20]: must be 21, as from node 1 to node 0",
        ),
        (&["guest_numa_id=0,distances=[1@10]"], "distances=[1@10]: must be 11 to 254 from a node to another"),
        (&["guest_numa_id=0,distances=[0@11]"], "distances=[0@11]: must be 10 from a node to itself"),
        (&["guest_numa_id=0,distances=[1@255]"], "distances=[1@255]: must be 11 to 254 from a node to another"),
        (&["guest_numa_id=0,distances=[1@11,1@12]"], "distances=[1@11,1@12]: must name each node once"),
        (&["guest_numa_id=0,distances=1"], "distances=1: must be [ID@DISTANCE,...]"),
        (&["guest_numa_id=256"], "guest_numa_id=256: must be the number of a node, at most 255"),
    ];
    for (numa, expected) in cases {
        assert_eq!(of("2", &zones, numa).unwrap_err(), format!("--numa {expected}"));
    }
    let split = of("2,topology=2:1:1:1", &zones, &[first, second]).unwrap_err();
    assert_eq!(split, "--numa cpus=0: has vCPU 0 and not 1, a thread of the same core: must be whole cores");
    assert_eq!(of("2", &zones, &["cpus=[0]"]).unwrap_err(), "--numa guest_numa_id=ID: is missing: must be given");
    let sections = "has 129M and is not the last in memory: its size must be a multiple of 128M";
    let ragged = of("2", &["id=a,size=129M", "id=b,size=128M"], &[first, second]).unwrap_err();
    assert_eq!(ragged, format!("--memory-zone id=a: {sections}"));
    assert!(of("2", &["id=b,size=129M", "id=a,size=128M"], &[first, second]).is_ok(), "the last in memory");
}

#[test]
fn json_says_the_same() {
    let json = r#"[{"guest_numa_id": 1, "cpus": [0, 2], "memory_zones": ["a"], "distances": [{"destination": 0, "distance": 15}]}]"#;
    let options: Vec<NumaOption> = serde_json::from_str(json).unwrap();
    let typed = NumaOption::parse("guest_numa_id=1,cpus=[0,2],memory_zones=[a],distances=[0@15]").unwrap();
    assert_eq!(options, [typed]);
    let again: Vec<NumaOption> = serde_json::from_str(&serde_json::to_string(&options).unwrap()).unwrap();
    assert_eq!(again, options);
    let wrong =
        serde_json::from_str::<NumaOption>(r#"{"guest_numa_id": 0, "distances": [{"destination": 3, "distance": 9}]}"#);
    assert_eq!(wrong.unwrap_err().to_string(), ".distances=[3@9]: must be 11 to 254 from a node to another");
    let cpus = CpusConfig::parse("boot=1").unwrap();
    let wrong = resolved(&options, &cpus, &MemoryConfig::default()).unwrap_err().to_string();
    assert_eq!(wrong, "numa[0].cpus=0,2: has vCPU 2: must be vCPUs below 1");
    let zones = texts(&["id=a,size=65M", "id=b,size=65M"]);
    let memory = MemoryConfig::parse("size=0", &zones).unwrap();
    let wrong = resolved(&[], &cpus, &memory).unwrap_err().to_string();
    assert_eq!(
        wrong,
        "memory.zones[0].id=a: has 65M and is not the last in memory: its size must be a multiple of 128M"
    );
}

proptest! {
    /// However vCPUs and zones are dealt out to nodes, each is where it was dealt to, and sizes are kept.
    #[test]
    fn nothing_is_lost(
        cpus in prop::collection::vec(0..4usize, 1..20),
        zones in prop::collection::vec((0..4usize, 1..40u64), 4..20),
    ) {
        // Each node has a zone.
        let node_of = |index: usize| if index < 4 { index } else { zones[index].0 };
        let list = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let dealt = |node: usize| {
            let own: Vec<_> = (0..cpus.len()).filter(|cpu| cpus[*cpu] == node).collect();
            let names: Vec<_> = (0..zones.len()).filter(|zone| node_of(*zone) == node).map(|zone| format!("z{zone}")).collect();
            let cpus = if own.is_empty() { String::new() } else { format!(",cpus=[{}]", list(&own)) };
            format!("guest_numa_id={node}{cpus},memory_zones=[{}]", names.join(","))
        };
        let numa: Vec<_> = (0..4).map(dealt).collect();
        let texts: Vec<_> = zones.iter().enumerate().map(|(zone, (_, sections))| format!("id=z{zone},size={}M", sections * 128)).collect();
        let (nodes, placed) = of(&cpus.len().to_string(), &refs(&texts), &refs(&numa)).unwrap();
        let mut empty = false;
        for (number, node) in nodes.iter() {
            let domain = usize::try_from(node.domain).unwrap();
            prop_assert!(node.cpus.iter().all(|cpu| cpus[usize::from(*cpu)] == domain));
            prop_assert!(!empty || node.cpus.is_empty(), "a node without vCPUs comes before one with");
            empty = node.cpus.is_empty();
            let expected: u64 = (0..zones.len()).filter(|zone| node_of(*zone) == domain).map(|zone| zones[zone].1 * 128 * MIB).sum();
            let found: u64 = placed.iter().filter(|zone| zone.node == number).map(|zone| zone.size).sum();
            prop_assert_eq!(found, expected);
        }
        prop_assert_eq!(nodes.iter().map(|(_, node)| node.cpus.len()).sum::<usize>(), cpus.len());
        prop_assert!(placed.is_sorted_by_key(|zone| zone.node));
    }
}

fn refs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}
