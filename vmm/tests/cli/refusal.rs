// SPDX-License-Identifier: Apache-2.0
//! A row of a table: arguments, and the line that flatboot refuses them with.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::SystemTime;

use libtest_mimic::{Failed, Trial};
use tempfile::TempDir;

use crate::host::{Host, Needs};
use crate::images;

/// What a line of flatboot's errors begins with.
pub(crate) const PREFIX: &str = "flatboot: error: ";
/// Exit statuses, as the help lists them.
pub(crate) const ERROR: i32 = 1;
pub(crate) const USAGE: i32 = 2;

/// A command line that must be refused.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Separated by spaces; `@` is the directory of [`Files`].
    pub(crate) arguments: String,
    pub(crate) status: i32,
    /// The whole line; `…` is any text, `@` as above.
    pub(crate) line: String,
    pub(crate) needs: Needs,
}

impl Row {
    pub(crate) fn new(name: &str, arguments: &str, status: i32, line: &str) -> Self {
        let (name, arguments, line) = (name.to_owned(), arguments.to_owned(), line.to_owned());
        Self { name, arguments, status, line, needs: Needs::Nothing }
    }

    pub(crate) fn needs(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }

    /// The row as a test, ignored if this host lacks what it needs.
    pub(crate) fn trial(self, host: &Arc<Host>) -> Trial {
        let ignored = host.skips(&self.name, self.needs);
        let host = Arc::clone(host);
        Trial::test(self.name.clone(), move || self.check(&host)).with_ignored_flag(ignored)
    }

    fn check(&self, host: &Host) -> Result<(), Failed> {
        let files = Files::new();
        let arguments: Vec<_> = files.fill(&self.arguments).split(' ').map(OsString::from).collect();
        let arguments = files.with_defaults(arguments);
        let command = host.command(self.needs).ok_or("this host lacks what the row needs")?;
        files.refused(command, &arguments, self.status, &self.line)
    }
}

/// A directory with one file of every kind that rows name.
#[derive(Debug)]
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        for (name, content) in [
            ("kernel", images::vmlinux()),
            ("bzimage", images::bzimage()),
            ("efi", images::efi_bzimage()),
            ("firmware", images::firmware()),
            ("erased", vec![0xff; 64 << 10]),
            ("zeroes", vec![0; 64 << 10]),
            ("volumeless", vec![b'x'; 64 << 10]),
            ("odd", vec![0; (64 << 10) + 512]),
            ("initramfs", b"070701".to_vec()),
            ("disk", vec![0; 1024]),
            ("old", b"what it held".to_vec()),
            ("empty", Vec::new()),
            ("ragged", vec![0; 513]),
            ("text", b"not a kernel\n".repeat(300)),
            ("secret", vec![0; 512]),
            ("readonly", vec![0; 512]),
        ] {
            fs::write(files.path(name), content).unwrap();
        }
        // Larger than the smallest memory, than the room for a hand-off, and than what firmware fetches; all only holes.
        for (name, length) in [("large", 65 << 20), ("table", 262_129), ("huge", 1 << 32)] {
            File::create(files.path(name)).unwrap().set_len(length).unwrap();
        }
        fs::hard_link(files.path("disk"), files.path("link")).unwrap();
        fs::create_dir(files.path("directory")).unwrap();
        fs::create_dir(files.path("locked")).unwrap();
        assert!(Command::new("mkfifo").arg(files.path("pipe")).status().unwrap().success());
        // Whoever runs flatboot may create files here, but not in "locked".
        for (name, mode) in [("", 0o777), ("locked", 0o555), ("secret", 0o000), ("readonly", 0o444), ("disk", 0o666)] {
            fs::set_permissions(files.path(name), Permissions::from_mode(mode)).unwrap();
        }
        fs::set_permissions(files.path("old"), Permissions::from_mode(0o666)).unwrap();
        files
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `template` with the directory for `@`.
    pub(crate) fn fill(&self, template: &str) -> String {
        template.replace('@', &self.0.path().display().to_string())
    }

    /// Adds to a `run` what it does not say: a kernel if there is no firmware and no snapshot, a file to create and a file to overwrite.
    pub(crate) fn with_defaults(&self, mut arguments: Vec<OsString>) -> Vec<OsString> {
        if arguments.first().is_none_or(|verb| verb != "run") || arguments.iter().any(|argument| argument == "--config")
        {
            return arguments;
        }
        let defaults =
            [("--kernel", "@/kernel"), ("--serial", "file=@/new"), ("--timeline", "@/old"), ("--rng", "off")];
        let starts = arguments.iter().any(|argument| argument == "--firmware" || argument == "--restore");
        for (option, value) in defaults.into_iter().filter(|(option, _)| !starts || *option != "--kernel") {
            if !arguments.iter().any(|argument| argument == option) {
                arguments.extend([option.into(), self.fill(value).into()]);
            }
        }
        arguments
    }

    /// Runs `command` with `arguments`, which must be refused with `line` and leave every file as it was.
    pub(crate) fn refused(
        &self,
        mut command: Command,
        arguments: &[OsString],
        status: i32,
        line: &str,
    ) -> Result<(), Failed> {
        let before = self.snapshot();
        let output = command.args(arguments).stdin(Stdio::null()).output()?;
        let said = one_line(&output)?;
        let said = said.strip_prefix(PREFIX).ok_or_else(|| format!("no {PREFIX:?}: {said}"))?;
        let line = self.fill(line);
        if !matches(said, &line) {
            return Err(format!("it says\n  {said}\nand should say\n  {line}").into());
        }
        if output.status.code() != Some(status) {
            return Err(format!("{}: should be {status}: {said}", output.status).into());
        }
        if !output.stdout.is_empty() {
            return Err(format!("standard output: {}", String::from_utf8_lossy(&output.stdout)).into());
        }
        let after = self.snapshot();
        if before == after { Ok(()) } else { Err(format!("files changed: {before:?}\nto {after:?}").into()) }
    }

    /// Every file by name: mode, length, time of the last change, and its bytes unless it is large.
    fn snapshot(&self) -> BTreeMap<PathBuf, (u32, u64, SystemTime, Vec<u8>)> {
        let mut found = BTreeMap::new();
        let mut left = vec![self.0.path().to_owned()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let metadata = path.symlink_metadata().unwrap();
                let content = match metadata.file_type() {
                    kind if kind.is_file() && metadata.len() < 1 << 20 => fs::read(&path).unwrap_or_default(),
                    kind if kind.is_fifo() => b"pipe".to_vec(),
                    _ => Vec::new(),
                };
                if metadata.is_dir() {
                    left.push(path.clone());
                }
                // A directory's own time changes when a file is made in it and removed again.
                let time = if metadata.is_dir() { SystemTime::UNIX_EPOCH } else { metadata.modified().unwrap() };
                found.insert(path, (metadata.permissions().mode(), metadata.len(), time, content));
            }
        }
        found
    }
}

/// The one line on standard error.
fn one_line(output: &Output) -> Result<String, Failed> {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let one = text.strip_suffix('\n').filter(|line| !line.is_empty() && !line.contains('\n'));
    one.map(str::to_owned).ok_or_else(|| format!("{}; not one line: {text:?}", output.status).into())
}

/// Whether `text` is `pattern`, in which `…` stands for any text.
pub(crate) fn matches(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// Writes `bytes` to a new file.
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    File::create(path).unwrap().write_all(bytes).unwrap();
}
