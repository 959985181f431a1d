// SPDX-License-Identifier: Apache-2.0
//! What a browser makes of the page: it loads, draws everything, sorts, and shows foreign text as text.

use std::path::PathBuf;

use flatboot_bench::report;
use flatboot_bench::results::{End, Results, Sample, groups, save};
use libtest_mimic::Failed;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::browser::{Browser, url};
use super::fake;
use super::verb::require;
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[
    ("pages::loads_alone_and_without_an_error", loads_alone_and_without_an_error),
    ("pages::draws_every_sample", draws_every_sample),
    ("pages::has_words_for_every_picture", has_words_for_every_picture),
    ("pages::sorts_by_mouse", sorts_by_mouse),
    ("pages::sorts_by_keyboard", sorts_by_keyboard),
    ("pages::shows_hostile_text_as_text", shows_hostile_text_as_text),
    ("pages::keeps_hosts_apart", keeps_hosts_apart),
    ("pages::says_what_is_not_there", says_what_is_not_there),
];

/// A report in a directory that vanishes.
pub(crate) struct Page {
    pub(crate) file: PathBuf,
    _directory: TempDir,
}

/// The report of files called `0.json` and on.
pub(crate) fn draw(results: &[&Results]) -> Result<Page, Failed> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("report.html");
    let mut files = Vec::new();
    for (index, results) in results.iter().enumerate() {
        files.push(directory.path().join(format!("{index}.json")));
        save(results, &files[index])?;
    }
    report::write(&files, &file)?;
    Ok(Page { file, _directory: directory })
}

/// Requires that the page reported no error and asked for nothing but itself.
fn is_quiet(browser: &mut Browser, page: &Page) -> Result<(), Failed> {
    for method in ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"] {
        let events = browser.events(method)?;
        require(events.is_empty(), || format!("{method}: {events:?}"))?;
    }
    let requests = browser.events("Network.requestWillBeSent")?;
    let addresses: Vec<_> = requests.iter().map(|request| request["request"]["url"].clone()).collect();
    require(addresses == [json!(url(&page.file))], || format!("requests: {addresses:?}"))
}

fn loads_alone_and_without_an_error(browser: &mut Browser) -> Result<(), Failed> {
    let page = draw(&[&fake::sweep(&[1, 2], 3)])?;
    browser.open(&page.file)?;
    is_quiet(browser, &page)?;
    let heading = browser.eval("document.querySelector('h1').textContent.replaceAll('\\u00a0', ' ')")?;
    let heading = heading.as_str().unwrap_or_default();
    let words = "flatboot, parallel: 256 GiB takes ";
    require(heading.starts_with(words) && heading.ends_with(" as 1 GiB on 2 vCPUs"), || heading.to_owned())?;
    // The policy is in force: this page's own script may not bring in another.
    let ran = browser.eval(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';
           document.body.append(s); return window.ran === undefined; })()",
    )?;
    require(ran == json!(true), || "the page runs scripts that are not its own".into())
}

/// Numbers of what is drawn in each chart of a kind: lines, dots, markers; each visible, none in its placeholder's colour.
fn drawn(browser: &mut Browser, chart: &str) -> Result<Vec<Value>, Failed> {
    let all = browser.eval(&format!(
        "[...document.querySelectorAll('figure[data-chart=\"{chart}\"] svg')].map((svg) => {{
            const count = (selector, paint) => {{
                const elements = [...svg.querySelectorAll(selector)];
                const bad = elements.filter((e) => {{
                    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
                    return box.width + box.height <= 0 || e.getAttribute(paint) === style[paint] || style.opacity <= 0
                        || /^rgb\\([1-9], /.test(style[paint]);
                }});
                return bad.length ? 'bad: ' + bad[0].outerHTML : elements.length;
            }};
            const box = svg.getBoundingClientRect();
            return {{
                lines: count('polyline[stroke^=\"#01\"]', 'stroke'),
                dots: count('circle[fill^=\"#03\"]', 'fill'),
                markers: count('[fill^=\"#04\"]', 'fill'),
                bands: count('polygon[fill^=\"#02\"]', 'fill'),
                bars: new Set([...svg.querySelectorAll('rect[fill^=\"#05\"]')].map((e) => e.getAttribute('y'))).size,
                has_size: box.width > 300 && box.height > 100,
            }};
        }})"
    ))?;
    all.as_array().cloned().ok_or_else(|| "no charts".into())
}

fn draws_every_sample(browser: &mut Browser) -> Result<(), Failed> {
    let mut results = fake::sweep(&[1, 2], 4);
    fake::break_some(&mut results);
    let page = draw(&[&results])?;
    browser.open(&page.file)?;

    let groups = groups(&results);
    let samples = |keep: &dyn Fn(u16, u64) -> bool| -> usize {
        let kept = groups.iter().filter(|group| keep(group.variant.cpus, group.variant.memory_bytes));
        kept.map(|group| group.samples.len()).sum()
    };
    let chart = |lines: usize, markers: usize, dots: usize| json!({ "lines": lines, "dots": dots, "markers": markers, "bands": lines, "bars": 0, "has_size": true });
    // Four lines of five sizes for each vCPU count.
    let over_memory: Vec<_> = [1, 2].map(|cpus| chart(4, 20, samples(&|count, _| count == cpus))).to_vec();
    let scaling: Vec<_> =
        [1, 4, 16, 64, 256].map(|gib| chart(4, 8, samples(&|_, memory| memory == gib << 30))).to_vec();
    for (kind, expected) in [("init", &over_memory), ("memory", &over_memory), ("scaling", &scaling)] {
        let is = drawn(browser, kind)?;
        require(is == *expected, || format!("{kind}: {is:#?}\nexpected {expected:#?}"))?;
    }
    let marked = groups.iter().filter(|group| group.samples.iter().any(|sample| !sample.marks.is_empty())).count();
    let bars = drawn(browser, "phases")?;
    require(bars.len() == 1 && bars[0]["bars"] == json!(marked), || format!("{marked} bars expected: {bars:?}"))?;
    is_quiet(browser, &page)?;

    let failed = results.boots.iter().filter(|boot| matches!(boot.end, End::Failed { .. })).count();
    let listed = browser.eval("document.querySelectorAll('.failures > li').length")?;
    require(failed > 0 && listed == json!(failed), || format!("{failed} failed boots, listed {listed}"))
}

fn has_words_for_every_picture(browser: &mut Browser) -> Result<(), Failed> {
    let page = draw(&[&fake::sweep(&[1, 2], 2)])?;
    browser.open(&page.file)?;
    let tree = browser.call("Accessibility.getFullAXTree", &json!({}))?;
    let nodes = tree["nodes"].as_array().ok_or("no tree")?;
    let is = |node: &&Value, role: &str| node["role"]["value"] == json!(role) && node["ignored"] == json!(false);
    let pictures: Vec<_> = nodes.iter().filter(|node| is(node, "image")).collect();
    // 2 + 2 charts over memory, 5 of scaling, the bars.
    require(pictures.len() == 10, || format!("{} pictures", pictures.len()))?;
    for picture in pictures {
        let name = picture["name"]["value"].as_str().unwrap_or_default();
        let words = name.contains("flatboot, serial") && name.contains(" s");
        require(words, || format!("a picture is described as {name:?}"))?;
    }
    let unnamed = browser.eval(
        "[...document.querySelectorAll('figure')].filter((f) => !f.querySelector('details table tbody td')).length",
    )?;
    require(unnamed == json!(0), || format!("{unnamed} charts without their data as a table"))?;
    let ids = browser.eval(
        "(() => { const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
           return ids.length - new Set(ids).size; })()",
    )?;
    require(ids == json!(0), || format!("{ids} ids twice"))
}

/// Numbers of a column as it stands, and what its header says.
fn column(browser: &mut Browser, header: &str) -> Result<(Vec<f64>, String), Failed> {
    let values = browser.eval(&format!(
        "(() => {{ const th = {header}, body = th.closest('table').tBodies[0];
           return [[...body.rows].map((row) => Number(row.cells[th.cellIndex].dataset.v)), th.ariaSort]; }})()"
    ))?;
    Ok((serde_json::from_value(values[0].clone())?, values[1].as_str().unwrap_or_default().to_owned()))
}

/// The header that begins with `name`.
fn header(name: &str) -> String {
    format!("[...document.querySelectorAll('table.raw th')].find((th) => th.textContent.startsWith('{name}'))")
}

/// Presses what has the header's expression.
type Press = fn(&mut Browser, &str) -> Result<(), Failed>;

/// A number of a sample.
type Read = fn(&Sample) -> u64;

/// Requires that `press` sorts the raw samples by a column of numbers, and once more backwards.
fn sorts(browser: &mut Browser, press: Press) -> Result<(), Failed> {
    let results = fake::sweep(&[1, 2], 2);
    let page = draw(&[&results])?;
    browser.open(&page.file)?;
    // Host memory is in MiB and GiB: as text, 1 GiB would come before 60 MiB.
    let columns: [(&str, Read); 2] =
        [("Init, ms", |sample| sample.init_ns), ("Host memory", |sample| sample.host_memory_bytes)];
    for (name, read) in columns {
        let header = header(name);
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a boot and bytes are below 2^52")]
        let mut expected: Vec<_> =
            results.boots.iter().filter_map(|boot| boot.sample().map(|sample| read(sample) as f64)).collect();
        require(column(browser, &header)?.1 == "none", || format!("{name} says that it is sorted"))?;
        expected.sort_by(f64::total_cmp);
        for direction in ["ascending", "descending", "ascending"] {
            press(browser, &header)?;
            let (values, sort) = column(browser, &header)?;
            let sorted = sort == direction && values == expected;
            require(sorted, || format!("{name}: {direction} expected: {sort}, {values:?}"))?;
            expected.reverse();
        }
        let others = browser.eval("document.querySelectorAll('.raw th[aria-sort]:not([aria-sort=none])').length")?;
        require(others == json!(1), || format!("{others} columns say that they are sorted"))?;
    }
    is_quiet(browser, &page)
}

fn sorts_by_mouse(browser: &mut Browser) -> Result<(), Failed> {
    sorts(browser, |browser, header| browser.click(&format!("{header}.querySelector('button')")))
}

fn sorts_by_keyboard(browser: &mut Browser) -> Result<(), Failed> {
    sorts(browser, |browser, header| {
        // From the header before it with the tabulator, as far as a user would.
        browser.eval(&format!("{header}.previousElementSibling.querySelector('button').focus()"))?;
        browser.press(("Tab", "", 9))?;
        let there = browser.eval(&format!("document.activeElement.closest('th') === {header}"))?;
        require(there == json!(true), || "the tabulator does not lead to the header".into())?;
        browser.press(("Enter", "\r", 13))
    })
}

fn shows_hostile_text_as_text(browser: &mut Browser) -> Result<(), Failed> {
    const HOSTILE: &str =
        "</script></style></title><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'&amp;";
    let mut results = fake::sweep(&[2], 1);
    fake::break_some(&mut results);
    results.facts.versions.insert(HOSTILE.into(), HOSTILE.into());
    results.facts.host.cpu_model = HOSTILE.into();
    results.sweep.cmdline = HOSTILE.into();
    results.facts.revision = Some(HOSTILE.into());
    for variant in &mut results.sweep.variants {
        variant.vmm = format!("{}{HOSTILE}", variant.vmm);
        variant.threads = Some(HOSTILE.into());
    }
    for boot in &mut results.boots {
        match &mut boot.end {
            End::Init(sample) => sample.marks.iter_mut().for_each(|mark| mark.name += HOSTILE),
            End::Failed { why, console } => (*why, *console) = (HOSTILE.into(), vec![HOSTILE.into()]),
        }
    }
    let page = draw(&[&results])?;
    browser.open(&page.file)?;
    is_quiet(browser, &page)?;
    let hacked =
        browser.eval("window.hacked === 1 || document.querySelectorAll('img, script:not(:last-child)').length")?;
    require(hacked == json!(0), || "the page takes text for markup".into())?;
    let shown = browser.eval(&format!(
        "['h1', '.legend', '.method', '.facts', '.raw', '.summary', '.failures strong', '.failures pre', 'svg desc', '.phases',
          'figure[data-chart=phases] text[font-weight]', 'title']
         .filter((where) => !document.querySelector(where).textContent.includes({}))",
        json!(HOSTILE)
    ))?;
    require(shown == json!([]), || format!("the text is not as it was in {shown}"))?;
    overflow_free(browser)
}

fn overflow_free(browser: &mut Browser) -> Result<(), Failed> {
    browser.resize(390, 844, true)?;
    let width = browser.eval("document.documentElement.scrollWidth")?;
    require(width == json!(390), || format!("a page of 390 pixels is {width} wide"))
}

fn keeps_hosts_apart(browser: &mut Browser) -> Result<(), Failed> {
    let results = fake::sweep(&[2], 2);
    let mut other = results.clone();
    let count =
        "[document.querySelectorAll('figure[data-chart=init]').length, document.querySelectorAll('.warning').length,
                  document.querySelectorAll('figure[data-chart=init] polyline[stroke^=\"#01\"]').length]";
    let page = draw(&[&results, &other])?;
    browser.open(&page.file)?;
    let together = browser.eval(count)?;
    require(together == json!([1, 0, 8]), || format!("the same host: charts, warnings, lines: {together}"))?;

    other.facts.host.cpu_model = "Another".into();
    let page = draw(&[&results, &other])?;
    browser.open(&page.file)?;
    let apart = browser.eval(count)?;
    require(apart == json!([2, 1, 8]), || format!("other hosts: charts, warnings, lines: {apart}"))?;
    is_quiet(browser, &page)
}

fn says_what_is_not_there(browser: &mut Browser) -> Result<(), Failed> {
    let mut results = fake::sweep(&[2], 2);
    let page = draw(&[&results])?;
    browser.open(&page.file)?;
    let words = browser
        .eval("document.body.textContent.includes('No memory size was booted with more than one vCPU count')")?;
    require(words == json!(true), || "one vCPU count, and not a word about scaling".into())?;

    results.boots.clear();
    let page = draw(&[&results])?;
    browser.open(&page.file)?;
    is_quiet(browser, &page)?;
    let heading = browser.eval(
        "[document.querySelector('h1').textContent, document.querySelectorAll('svg, .nothing, .warning').length]",
    )?;
    require(heading == json!(["No boot that counts has reached init", 5]), || format!("without a boot: {heading}"))
}
