// SPDX-License-Identifier: Apache-2.0
//! The results file of a sweep that runs.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

use anyhow::{Context, Error, Result, anyhow, bail};

use super::format::Results;
use crate::{atomic_file, json_file};

/// A results file that one sweep writes, and no other meanwhile.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    path: &'a Path,
    /// The file, once it is there.
    locked: Option<File>,
}

impl<'a> Output<'a> {
    /// At `path`, where nothing may be unless a sweep is to `resume`.
    pub(crate) fn open(path: &'a Path, resume: bool) -> Result<Self> {
        let out = path.display();
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_dir() => bail!("--out {out}: is a directory; name a file"),
            Ok(_) if !resume => return Err(exists(path)),
            Err(_) if resume => bail!("--out {out}: not there; without --resume a new sweep begins"),
            _ => {}
        }
        // Now, and not after minutes of builds and boots.
        atomic_file::can_write(path).with_context(|| cannot(path))?;
        let locked = resume.then(|| atomic_file::lock(path)).transpose();
        Ok(Self { path, locked: locked.map_err(|error| refused(path, error))? })
    }

    /// Writes it whole or not at all, as [`super::save`] does. The first time nothing may be there.
    pub(crate) fn save(&mut self, results: &Results) -> Result<()> {
        let bytes = json_file::bytes(results, self.path).with_context(|| cannot(self.path))?;
        let write = if self.locked.is_some() { atomic_file::write } else { atomic_file::write_new };
        self.locked = Some(write(self.path, &bytes).map_err(|error| refused(self.path, error))?);
        Ok(())
    }
}

fn refused(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock => {
            anyhow!("--out {}: another sweep writes it; wait until that has ended", path.display())
        }
        ErrorKind::AlreadyExists => exists(path),
        _ => Error::new(error).context(cannot(path)),
    }
}

fn exists(path: &Path) -> Error {
    anyhow!("--out {}: exists; --resume goes on with it, another --out starts anew", path.display())
}

fn cannot(path: &Path) -> String {
    format!("{}: cannot be written", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{GIB, sweep, variant};
    use crate::results::load;

    #[test]
    fn of_two_sweeps_of_one_name_the_second_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.json");
        let results = |runs| sweep(vec![variant("flatboot", "async", GIB)], runs, |_, _| 1);
        let [mut first, mut second] = [(); 2].map(|()| Output::open(&path, false).unwrap());
        first.save(&results(1)).unwrap();
        assert!(second.save(&results(2)).unwrap_err().to_string().contains("exists; --resume"));
        first.save(&results(3)).unwrap();
        let resumed = || Output::open(&path, true).map(drop).map_err(|error| error.to_string());
        assert!(resumed().unwrap_err().contains("another sweep writes it"));
        drop(first);
        assert_eq!((resumed(), load(&path).unwrap().sweep.runs), (Ok(()), 3));
    }
}
