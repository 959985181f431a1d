// SPDX-License-Identifier: Apache-2.0
//! The two initial file systems: the tiny guest's and the emulated host's. Each is one static program.

use std::io::Cursor;
use std::path::Path;
use std::{fs, io};

use anyhow::{Context, Result};
use cpio::NewcBuilder;
use cpio::newc::ModeFileType;

use crate::{artifact, atomic_file};

/// A file of the archive, of root's and without a time: the same content gives the same bytes.
type Entry = (NewcBuilder, Cursor<Vec<u8>>);

/// The tiny guest's initramfs: its init reports the user-space marks and does what `flatboot.check=` asks, after it has loaded
/// what `artifact::guest_modules` has for its kernel.
pub fn guest() -> Result<Vec<u8>> {
    let mut entries = entries(&artifact::own_binary("guest-init")?)?;
    if let Some(modules) = artifact::guest_modules() {
        entries.push(entry("modules", ModeFileType::Directory, 0o755, Vec::new()));
        for release in names(&modules)? {
            add_directory(&mut entries, &modules.join(&release), &format!("modules/{release}"))?;
        }
    }
    archive(entries)
}

/// The emulated host's initramfs.
pub fn host() -> Result<Vec<u8>> {
    archive(entries(&artifact::own_binary("host-init")?)?)
}

/// Writes the tiny guest's initramfs to `out`: all of it or nothing.
pub fn write_guest(out: &Path) -> Result<()> {
    let bytes = guest()?;
    atomic_file::write(out, &bytes).map(drop).with_context(|| format!("{}: cannot write it", out.display()))
}

/// `/init`, the directories that it mounts on, and the console that the kernel opens for it.
fn entries(init: &Path) -> Result<Vec<Entry>> {
    let directory = |name| entry(name, ModeFileType::Directory, 0o755, Vec::new());
    let mut entries = Vec::from(["dev", "proc", "sys", "root"].map(directory));
    let (console, nothing) = entry("dev/console", ModeFileType::Char, 0o600, Vec::new());
    entries.push((console.rdev_major(5).rdev_minor(1), nothing));
    entries.push(entry("init", ModeFileType::Regular, 0o755, read(init)?));
    Ok(entries)
}

/// A directory of files only, as `name`.
fn add_directory(entries: &mut Vec<Entry>, from: &Path, name: &str) -> Result<()> {
    entries.push(entry(name, ModeFileType::Directory, 0o755, Vec::new()));
    for file in names(from)? {
        entries.push(entry(&format!("{name}/{file}"), ModeFileType::Regular, 0o644, read(&from.join(&file))?));
    }
    Ok(())
}

fn entry(name: &str, kind: ModeFileType, permissions: u32, data: Vec<u8>) -> Entry {
    (NewcBuilder::new(name).mode(permissions).set_mode_file_type(kind), Cursor::new(data))
}

fn archive(entries: Vec<Entry>) -> Result<Vec<u8>> {
    cpio::write_cpio(entries.into_iter(), Vec::new()).context("cannot make a cpio archive")
}

/// The names in a directory, in the same order each time.
fn names(directory: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.with_context(|| cannot_read(directory))?;
    let mut names: Vec<_> = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| cannot_read(path))
}

fn cannot_read(path: &Path) -> String {
    format!("{}: cannot read it", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    use cpio::NewcReader;

    #[test]
    fn files_directories_and_devices_are_in_the_archive() {
        let directory = tempfile::tempdir().unwrap();
        let init = directory.path().join("program");
        fs::write(&init, "init").unwrap();
        let mut entries = entries(&init).unwrap();
        add_directory(&mut entries, directory.path(), "modules").unwrap();
        let archive = archive(entries).unwrap();
        let (mut rest, mut seen) = (&archive[..], Vec::new());
        loop {
            let mut reader = NewcReader::new(rest).unwrap();
            let entry = reader.entry().clone();
            if entry.is_trailer() {
                break;
            }
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            rest = reader.finish().unwrap();
            seen.push((entry.name().to_owned(), entry.mode(), (entry.rdev_major(), entry.rdev_minor()), text));
        }
        let expected = [
            ("dev", 0o40755, (0, 0), ""),
            ("proc", 0o40755, (0, 0), ""),
            ("sys", 0o40755, (0, 0), ""),
            ("root", 0o40755, (0, 0), ""),
            ("dev/console", 0o20600, (5, 1), ""),
            ("init", 0o100_755, (0, 0), "init"),
            ("modules", 0o40755, (0, 0), ""),
            ("modules/program", 0o100_644, (0, 0), "init"),
        ];
        let expected = expected.map(|(name, mode, device, text)| (name.to_owned(), mode, device, text.to_owned()));
        assert_eq!(seen, expected);
    }
}
