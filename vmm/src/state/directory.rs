// SPDX-License-Identifier: Apache-2.0
//! A snapshot as its owner sees it: a directory with two files, `state` and `memory`. It has its name when all of it is safe on the
//! disk, and not before: whoever is killed meanwhile leaves nothing of that name.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

const STATE: &str = "state";
const MEMORY: &str = "memory";
/// Of a mode: what it lets others do than the owner,
const OTHERS: u32 = 0o077;
/// and of that, what is more than to look.
const OTHERS_WRITE: u32 = 0o022;

/// Why there is no snapshot at a path.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Not a path that can get one.
    #[error("must be an absolute path of a directory that is not there yet, or empty")]
    Path,
    /// Where another one would be while it is written: who writes that takes what is there for its own.
    #[error("has the name of a snapshot that is being written: must be another one than .NAME.partial")]
    Partial,
    /// Something is there.
    #[error("is there, and not an empty directory: must be another path, or emptied before")]
    Taken,
    /// It is the top of a file system, or leads elsewhere: what is renamed cannot take its place.
    #[error("is a mount point or a symbolic link: must be a directory in a file system")]
    Elsewhere,
    /// Somebody else could read or change what is written there.
    #[error("{}: is there, and open to others than this user: must be removed before", path.display())]
    Shared {
        /// Where it would be written meanwhile.
        path: PathBuf,
    },
    /// Something else is where it would be written meanwhile.
    #[error("{}: is there, and no directory: must be removed before", path.display())]
    NoDirectory {
        /// Where.
        path: PathBuf,
    },
    /// Somebody else is making one.
    #[error("a snapshot is being written there: must be over before")]
    Busy,
    /// Nothing can be there.
    #[error("cannot be made: must have a name of at most 246 bytes, in a directory that exists")]
    Place(#[source] io::Error),
    /// The host does not let it be made.
    #[error("cannot be made")]
    Make(#[source] io::Error),
    /// There is none.
    #[error("{0}: there is no such file: must be a directory that vm.snapshot has written")]
    Missing(&'static str),
    /// The host does not let it be read.
    #[error("{file}: cannot be opened")]
    Open {
        /// Which file of it.
        file: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// A snapshot that is being written. Dropping it removes what there is of it.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
    /// Where it is meanwhile: beside that, with a name that begins with a point.
    partial: PathBuf,
    /// That directory, locked as long as somebody writes.
    directory: File,
    parent: File,
    finished: bool,
    /// Where the state goes,
    pub state: File,
    /// and where the content of memory goes.
    pub memory: File,
}

impl Unfinished {
    /// Begins one that will be at `path`. What somebody who was killed has left there of another one is removed.
    pub fn begin(path: &Path) -> Result<Self, DirectoryError> {
        let (Some(parent), Some(name), true) = (path.parent(), path.file_name(), path.is_absolute()) else {
            return Err(DirectoryError::Path);
        };
        if name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(b".partial") {
            return Err(DirectoryError::Partial);
        }
        check_free(path)?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(".partial");
        let partial = parent.join(hidden);
        let parent = File::open(parent).map_err(not_made)?;
        let is_new = match DirBuilder::new().mode(0o700).create(&partial) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(not_made(error)),
        };
        let directory = open_and_lock(&partial).inspect_err(|error| {
            if is_new && !matches!(error, DirectoryError::Busy) {
                remove(&partial);
            }
        })?;
        if !is_own(&directory, is_new).map_err(DirectoryError::Make)? {
            if is_new {
                remove(&partial);
            }
            return Err(DirectoryError::Shared { path: partial });
        }
        // It may have become somebody's snapshot before it was locked.
        if !is_same(&directory, &partial) {
            return Err(DirectoryError::Busy);
        }
        let made = clear(&partial).and_then(|()| Ok((create(&partial, STATE)?, create(&partial, MEMORY)?)));
        let (state, memory) = made.map_err(DirectoryError::Make).inspect_err(|_| remove(&partial))?;
        Ok(Self { path: path.to_owned(), partial, directory, parent, finished: false, state, memory })
    }

    /// Where it will be.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Both files are written and safe: from now on it is there. If its name is not safe, it is not there.
    pub fn finish(mut self) -> Result<(), DirectoryError> {
        let rename = || {
            self.directory.sync_all()?;
            // It replaces an empty directory, and nothing else.
            fs::rename(&self.partial, &self.path)?;
            // Under its first name it is removed, as any that is not finished.
            self.parent.sync_all().inspect_err(|_| drop(fs::rename(&self.path, &self.partial)))
        };
        rename().map_err(DirectoryError::Make)?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.finished {
            remove(&self.partial);
        }
    }
}

/// The paths of the files of the snapshot at `path`.
#[must_use]
pub fn files(path: &Path) -> [PathBuf; 2] {
    [STATE, MEMORY].map(|file| path.join(file))
}

/// The files of the snapshot at `path`: state, and the content of memory.
pub fn open(path: &Path) -> Result<(File, File), DirectoryError> {
    let open = |file| {
        // A pipe would be waited for.
        let options = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path.join(file));
        let opened = options.and_then(|opened| {
            if opened.metadata()?.is_file() { Ok(opened) } else { Err(io::Error::other("is not a regular file")) }
        });
        opened.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => DirectoryError::Missing(file),
            _ => DirectoryError::Open { file, source },
        })
    };
    Ok((open(STATE)?, open(MEMORY)?))
}

/// Whether a directory is nobody else's to change, nor, unless it `is_new`, to look into, as it will not be made so. File systems
/// without modes, such as CIFS and vfat, give what is new the mode that they were mounted with.
fn is_own(directory: &File, is_new: bool) -> io::Result<bool> {
    let metadata = directory.metadata()?;
    let closed = if is_new { OTHERS_WRITE } else { OTHERS };
    Ok(metadata.uid() == geteuid().as_raw() && metadata.mode() & closed == 0)
}

/// Opens the directory at `path`, and nothing that a pipe or a link there leads to.
fn open_and_lock(path: &Path) -> Result<File, DirectoryError> {
    let directory = File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path);
    let directory = directory.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOTDIR | libc::ELOOP) => DirectoryError::NoDirectory { path: path.to_owned() },
        _ => DirectoryError::Make(error),
    })?;
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(directory),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(DirectoryError::Busy),
        Err(error) => Err(DirectoryError::Make(error.into())),
    }
}

/// Whether nothing is at `path`, or nothing in it, and what is renamed can be there.
fn check_free(path: &Path) -> Result<(), DirectoryError> {
    if let (Ok(is), Some(Ok(parent))) = (fs::symlink_metadata(path), path.parent().map(fs::metadata))
        && (is.is_symlink() || (is.is_dir() && is.dev() != parent.dev()))
    {
        return Err(DirectoryError::Elsewhere);
    }
    match fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(false) => Err(DirectoryError::Taken),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(DirectoryError::Taken),
        Err(error) => Err(not_made(error)),
    }
}

/// Why nothing was made: the path, or the host.
fn not_made(error: io::Error) -> DirectoryError {
    use io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound};
    match error.kind() {
        NotFound | NotADirectory | InvalidInput | InvalidFilename => DirectoryError::Place(error),
        _ => DirectoryError::Make(error),
    }
}

fn is_same(directory: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (one, other) = (directory.metadata().map(identity), fs::symlink_metadata(path).map(identity));
    one.ok().is_some_and(|one| other.is_ok_and(|other| one == other))
}

fn create(directory: &Path, name: &str) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(directory.join(name))
}

/// What was begun there and never finished is nobody's.
fn clear(directory: &Path) -> io::Result<()> {
    [STATE, MEMORY].into_iter().try_for_each(|name| match fs::remove_file(directory.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    })
}

fn remove(directory: &Path) {
    if let Err(error) = clear(directory).and_then(|()| fs::remove_dir(directory)) {
        tracing::warn!(%error, "{}: a part of a snapshot is left there", directory.display());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn it_is_there_when_it_is_finished() {
        let parent = tempfile::tempdir().unwrap();
        for (name, made) in [("new", false), ("empty", true)] {
            let path = parent.path().join(name);
            if made {
                fs::create_dir(&path).unwrap();
            }
            let mut begun = Unfinished::begin(&path).unwrap();
            begun.state.write_all(b"s").unwrap();
            begun.memory.write_all(b"m").unwrap();
            assert!(!path.join(STATE).exists());
            begun.finish().unwrap();
            assert_eq!(names(&path), [MEMORY, STATE]);
            let (state, memory) = open(&path).unwrap();
            let contents = [state, memory].map(|file| io::read_to_string(file).unwrap());
            assert_eq!(contents, ["s", "m"]);
        }
        assert_eq!(names(parent.path()), ["empty", "new"]);
    }

    #[test]
    fn what_is_not_finished_is_gone() {
        let parent = tempfile::tempdir().unwrap();
        drop(Unfinished::begin(&parent.path().join("a")).unwrap());
        assert_eq!(names(parent.path()), [""; 0]);
    }

    #[test]
    fn one_whose_name_is_not_safe_is_gone() {
        let parent = tempfile::tempdir().unwrap();
        let mut begun = Unfinished::begin(&parent.path().join("a")).unwrap();
        // What cannot be synced.
        begun.parent = File::open("/dev/null").unwrap();
        assert!(matches!(begun.finish(), Err(DirectoryError::Make(_))));
        assert_eq!(names(parent.path()), [""; 0]);
    }

    #[test]
    fn what_a_dead_one_has_left_is_taken_over() {
        let parent = tempfile::tempdir().unwrap();
        let (path, left) = (parent.path().join("a"), parent.path().join(".a.partial"));
        DirBuilder::new().mode(0o700).create(&left).unwrap();
        fs::write(left.join(MEMORY), "left").unwrap();
        let begun = Unfinished::begin(&path).unwrap();
        assert!(matches!(Unfinished::begin(&path), Err(DirectoryError::Busy)));
        begun.finish().unwrap();
        assert_eq!(fs::read_to_string(path.join(MEMORY)).unwrap(), "");
    }

    #[test]
    fn what_others_may_change_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let (path, left) = (parent.path().join("a"), parent.path().join(".a.partial"));
        fs::create_dir(&left).unwrap();
        for mode in [0o777, 0o755, 0o710] {
            fs::set_permissions(&left, fs::Permissions::from_mode(mode)).unwrap();
            assert!(
                matches!(Unfinished::begin(&path), Err(DirectoryError::Shared { path }) if path == left),
                "{mode:o}"
            );
        }
        fs::set_permissions(&left, fs::Permissions::from_mode(0o700)).unwrap();
        drop(Unfinished::begin(&path).unwrap());
        assert_eq!(names(parent.path()), [""; 0]);
    }

    /// Where mkdir's mode is not what comes of it.
    #[test]
    fn what_is_new_may_be_one_that_others_see() {
        let directory = tempfile::tempdir().unwrap();
        for (mode, new, old) in
            [(0o700, true, true), (0o755, true, false), (0o770, false, false), (0o777, false, false)]
        {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
            let opened = File::open(directory.path()).unwrap();
            assert_eq!([true, false].map(|is_new| is_own(&opened, is_new).unwrap()), [new, old], "{mode:o}");
        }
    }

    #[test]
    fn what_leads_elsewhere_is_no_place() {
        let parent = tempfile::tempdir().unwrap();
        let (target, link) = (parent.path().join("empty"), parent.path().join("link"));
        fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        // The top of a file system that any Linux has.
        for path in [link.as_path(), Path::new("/proc")] {
            assert!(matches!(Unfinished::begin(path), Err(DirectoryError::Elsewhere)), "{path:?}");
        }
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let parent = tempfile::tempdir().unwrap();
        rustix::fs::mknodat(CWD, parent.path().join(STATE), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let error = open(parent.path()).unwrap_err();
        assert!(matches!(error, DirectoryError::Open { file: STATE, .. }), "{error}");
    }

    /// Whoever else may write to the directory around it can put anything there.
    #[test]
    fn what_is_no_directory_is_neither_waited_for_nor_followed() {
        let parent = tempfile::tempdir().unwrap();
        let (path, left) = (parent.path().join("a"), parent.path().join(".a.partial"));
        let refused = || matches!(Unfinished::begin(&path), Err(DirectoryError::NoDirectory { path }) if path == left);
        rustix::fs::mknodat(CWD, &left, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(refused());
        fs::remove_file(&left).unwrap();
        std::os::unix::fs::symlink("/tmp", &left).unwrap();
        assert!(refused());
        assert_eq!(names(parent.path()), [".a.partial"]);
    }

    #[test]
    fn what_is_there_stays() {
        let parent = tempfile::tempdir().unwrap();
        let (full, file) = (parent.path().join("full"), parent.path().join("file"));
        fs::create_dir(&full).unwrap();
        fs::write(full.join("x"), "").unwrap();
        fs::write(&file, "").unwrap();
        for path in [&full, &file] {
            assert!(matches!(Unfinished::begin(path), Err(DirectoryError::Taken)));
        }
        for path in ["/", "relative", "/tmp/.."] {
            assert!(matches!(Unfinished::begin(Path::new(path)), Err(DirectoryError::Path)), "{path}");
        }
        for name in [".a.partial", ".partial"] {
            let error = Unfinished::begin(&parent.path().join(name)).unwrap_err();
            assert!(matches!(error, DirectoryError::Partial), "{name}: {error}");
        }
        for nowhere in ["no/where", "no/file/where", &"x".repeat(247), "a\0b"] {
            let error = Unfinished::begin(&parent.path().join(nowhere)).unwrap_err();
            assert!(matches!(error, DirectoryError::Place(_)), "{nowhere}: {error}");
        }
        assert!(matches!(open(&full), Err(DirectoryError::Missing(STATE))));
        assert_eq!(names(parent.path()), ["file", "full"]);
    }
}
