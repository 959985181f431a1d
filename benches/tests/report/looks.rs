// SPDX-License-Identifier: Apache-2.0
//! How the page looks: on a phone, in the dark, on paper. Pictures of it are left in `target/report`.

use std::fs;
use std::path::{Path, PathBuf};

use flatboot_bench::report;
use libtest_mimic::Failed;
use serde_json::json;

use super::browser::Browser;
use super::fake;
use super::pages::{Page, draw};
use super::verb::require;
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[
    ("looks::fits_a_phone", fits_a_phone),
    ("looks::can_be_read_in_light_and_dark", can_be_read_in_light_and_dark),
    ("looks::prints", prints),
    ("looks::has_its_picture_taken", has_its_picture_taken),
];

/// WCAG 2.2, level AA: text, and what is not text.
const TEXT: f64 = 4.5;
const GRAPHICS: f64 = 3.0;

fn page() -> Result<Page, Failed> {
    let mut results = fake::sweep(&[1, 2], 10);
    fake::break_some(&mut results);
    draw(&[&results])
}

/// Where pictures go.
fn pictures() -> Result<PathBuf, Failed> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("report");
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn fits_a_phone(browser: &mut Browser) -> Result<(), Failed> {
    let page = page()?;
    browser.open(&page.file)?;
    for width in [320, 390, 800] {
        browser.resize(width, 844, true)?;
        let is = browser.eval("document.documentElement.scrollWidth")?;
        require(is == json!(width), || format!("a page of {width} pixels is {is} wide"))?;
        let smallest = browser.eval(
            "Math.min(...[...document.querySelectorAll('figure svg')].map((svg) =>
               svg.getBoundingClientRect().width / svg.viewBox.baseVal.width
               * Math.min(...[...svg.querySelectorAll('text')].map((t) => parseFloat(getComputedStyle(t).fontSize)))))",
        )?;
        require(smallest.as_f64() >= Some(10.0), || format!("text of {smallest} pixels at a width of {width}"))?;
    }
    browser.resize(390, 844, true)?;
    browser.picture(Some(4200), &pictures()?.join("phone.png"))
}

/// A function: of the least contrasts of text and graphics to what was found.
const CONTRAST: &str = include_str!("contrast.js");

fn can_be_read_in_light_and_dark(browser: &mut Browser) -> Result<(), Failed> {
    let page = page()?;
    browser.open(&page.file)?;
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        browser.scheme("screen", scheme)?;
        browser.eval("document.querySelectorAll('details').forEach((d) => d.open = true)")?;
        let result = browser.eval(&format!("{}({TEXT}, {GRAPHICS})", CONTRAST.trim_end()))?;
        let checked = result["checked"].as_u64().unwrap_or(0);
        require(checked > 1000, || format!("{scheme}: looked at {checked} elements"))?;
        require(result["bad"] == json!([]), || format!("{scheme}: too little contrast: {}", result["bad"]))?;
        grounds.push(result["ground"].as_f64().unwrap_or(-1.0));
        browser.eval("document.querySelectorAll('details').forEach((d) => d.open = false)")?;
        browser.picture(None, &pictures()?.join(format!("{scheme}.png")))?;
    }
    require(grounds[0] > 0.9 && (0.0..0.05).contains(&grounds[1]), || format!("luminance of the page: {grounds:?}"))
}

fn prints(browser: &mut Browser) -> Result<(), Failed> {
    let page = page()?;
    browser.open(&page.file)?;
    // Paper is light, whatever the screen is.
    browser.scheme("print", "dark")?;
    let paints = browser.eval(
        "[getComputedStyle(document.body).backgroundColor, matchMedia('(prefers-color-scheme: dark)').matches]",
    )?;
    require(paints == json!(["rgb(255, 255, 255)", true]), || {
        format!("paper, and whether dark is preferred: {paints}")
    })?;
    browser.scheme("screen", "dark")?;
    let pdf = browser.print()?;
    require(pdf.starts_with(b"%PDF-") && pdf.len() > 50_000, || format!("a PDF of {} bytes", pdf.len()))?;
    Ok(fs::write(pictures()?.join("report.pdf"), pdf)?)
}

fn has_its_picture_taken(browser: &mut Browser) -> Result<(), Failed> {
    let made_up;
    let (file, picture) = match std::env::var_os("FLATBOOT_REPORT_OF") {
        None => {
            made_up = page()?;
            fs::copy(&made_up.file, pictures()?.join("made-up.html"))?;
            (made_up.file.clone(), pictures()?.join("made-up.png"))
        }
        Some(results) => {
            let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images");
            fs::create_dir_all(&images)?;
            let file = pictures()?.join("report.html");
            // As seen from the repository's root, not from this package.
            report::write(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(results)], &file)?;
            (file, images.join("report.png"))
        }
    };
    browser.open(&file)?;
    browser.scheme("screen", "light")?;
    // As far as the charts that the sentence on top is about, and the bars.
    let end = "Math.ceil(document.querySelectorAll('main section')[1].getBoundingClientRect().bottom + scrollY)";
    let height = browser.eval(end)?.as_u64();
    browser.picture(height, &picture)?;
    let png = fs::read(&picture)?;
    require(png.starts_with(b"\x89PNG") && png.len() > 20_000, || format!("a picture of {} bytes", png.len()))?;
    println!("{}", picture.display());
    Ok(())
}
