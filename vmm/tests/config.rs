// SPDX-License-Identifier: Apache-2.0
//! From what a user types to a configuration: every refusal says what is wrong and leaves no trace.
#![expect(clippy::unwrap_used, reason = "tests may stop at the first surprise")]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use flatboot::cli::in_options;
use flatboot::config::{Config, Payload, RawConfig, SerialConfig, ShapeArgs};
use tempfile::TempDir;

/// A directory with a kernel, an initramfs and a disk in it.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        fs::write(files.path("kernel"), "k").unwrap();
        fs::write(files.path("initramfs"), "i").unwrap();
        fs::write(files.path("disk"), [0; 1024]).unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// What `flatboot run --kernel …/kernel` gives.
    fn raw(&self) -> RawConfig {
        RawConfig { kernel: Some(self.path("kernel")), ..RawConfig::default() }
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn disk(&self, name: &str, rest: &str) -> String {
        format!("path={}{rest}", self.text(name))
    }
}

fn refused(raw: RawConfig) -> (String, bool) {
    let error = Config::try_from(raw).unwrap_err();
    (in_options(|| error.to_string()), error.is_usage())
}

/// A file is refused with `{option} {path}: {fault}`, and that is no usage error.
#[track_caller]
fn refused_file(raw: RawConfig, option: &str, path: &Path, fault: &str) {
    assert_eq!(refused(raw), (format!("{option} {}: {fault}", path.display()), false));
}

/// Whether permissions bind this process.
fn permissions_bind(files: &Files) -> bool {
    let secret = files.path("secret");
    fs::write(&secret, "s").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o000)).unwrap();
    let bind = File::open(&secret).is_err();
    fs::remove_file(&secret).unwrap();
    bind
}

/// Runs one test of this file again as the user `nobody`.
fn again_as_nobody(test: &str) {
    const NOBODY: u32 = 65534;

    let program = std::env::current_exe().unwrap();
    let run = Command::new(program).args(["--exact", test]).current_dir("/").uid(NOBODY).gid(NOBODY).status();
    match run {
        Ok(status) => assert!(status.success(), "{test} as nobody: {status}"),
        Err(error) => eprintln!("SKIPPED: {test}: this user may read every file, and nobody cannot run it: {error}"),
    }
}

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn a_full_command_line_becomes_a_configuration() {
    let files = Files::new();
    let raw = RawConfig {
        initramfs: Some(files.path("initramfs")),
        cmdline: "quiet".to_owned(),
        disks: vec![files.disk("disk", ""), files.disk("initramfs", ",readonly=on")],
        ..files.raw()
    };
    // The initramfs is no whole number of sectors.
    let (message, usage) = refused(raw.clone());
    assert_eq!(message, format!("--disk {}: has 1 bytes: must be a multiple of 512", files.text("initramfs")));
    assert!(!usage);
    // Whoever has typed no options hears which of the disks it is.
    let message = Config::try_from(raw.clone()).unwrap_err().to_string();
    assert_eq!(message, format!("disks[1].path={}: has 1 bytes: must be a multiple of 512", files.text("initramfs")));

    let config = Config::try_from(RawConfig { disks: vec![files.disk("disk", "")], ..raw }).unwrap();
    let Config { payload: Payload::Kernel(kernel), machine, .. } = config else { panic!("no kernel") };
    assert_eq!(kernel.image.length(), 1);
    assert_eq!(kernel.initramfs.unwrap().path(), files.path("initramfs"));
    assert_eq!(kernel.cmdline.as_str(), "console=ttyS0 swiotlb=noforce io_delay=none pci=off reboot=acpi quiet");
    assert_eq!(machine.cpus.boot.get(), 1);
    assert_eq!(machine.memory.size().0, 512 << 20);
    assert_eq!(machine.disks[0].length(), 1024);
    assert!(!machine.disks[0].readonly());
    assert!(machine.rng.is_some());
    assert!(matches!(machine.serial, SerialConfig::Tty));
    assert_eq!(machine.shutdown_timeout.as_secs(), 10);
}

#[test]
fn the_console_parameter_follows_the_serial_port() {
    let files = Files::new();
    for (serial, has) in [("tty", true), ("null", false), ("off", false), ("file=/dev/null", true)] {
        let config = Config::try_from(RawConfig { serial: serial.to_owned(), ..files.raw() }).unwrap();
        let Payload::Kernel(kernel) = config.payload else { panic!("no kernel") };
        assert_eq!(kernel.cmdline.as_str().contains("console=ttyS0"), has, "{serial}");
    }
}

#[test]
fn wrong_texts_are_usage_errors() {
    let files = Files::new();
    let raw = || files.raw();
    let shape = |cpus: &str, memory: &str| RawConfig {
        shape: ShapeArgs { cpus: cpus.to_owned(), memory: Some(memory.to_owned()), ..ShapeArgs::default() },
        ..raw()
    };
    let disk = |text: &str| RawConfig { disks: vec![text.to_owned()], ..raw() };
    for (raw, expected) in [
        (shape("boot=0", "size=1G"), "--cpus boot=0: must be a number of vCPUs, 1 to 1024"),
        (shape("boot=1", "size=0"), "--memory size=0: must be at least 64M"),
        (
            disk("file=x"),
            "--disk file=x: there is no key file: must be one of path, readonly, direct, sparse, serial, id, num_queues, queue_size, image_type, _disable_io_uring, bw_size, bw_one_time_burst, bw_refill_time, ops_size, ops_one_time_burst, ops_refill_time",
        ),
        (disk("readonly=on"), "--disk path=FILE: is missing: must be given"),
        (disk("path=x,readonly=yes"), "--disk readonly=yes: must be on or off"),
        (
            RawConfig { disks: vec!["path=x".to_owned(); 14], ..raw() },
            "--disk, --net, --vsock, --console and --balloon: 14 given: must be at most 13",
        ),
        (
            RawConfig { disks: vec!["path=x,id=a".to_owned(); 2], ..raw() },
            "--disk id=a: is that of another device: must be the id of no other",
        ),
        (
            RawConfig { rng: "/dev/urandom".to_owned(), ..raw() },
            "--rng /dev/urandom: must be written KEY=VALUE; the keys are src, bw_size, bw_one_time_burst, bw_refill_time, ops_size, \
             ops_one_time_burst, ops_refill_time",
        ),
        (
            RawConfig { console: "tty".to_owned(), ..raw() },
            "--console tty: must be with a serial port that is null, off or a file: the serial port has the terminal",
        ),
        (
            RawConfig {
                shape: ShapeArgs { study: vec!["handoff=planned".to_owned()], ..ShapeArgs::default() },
                ..raw()
            },
            "--study handoff=planned: must be on or off",
        ),
        (RawConfig { serial: "pty".to_owned(), ..raw() }, "--serial pty: must be tty, file=FILE, null or off"),
        (
            RawConfig { cmdline: "a\nb".to_owned(), ..raw() },
            "--cmdline: has byte 0x0a at 1: must be printable ASCII, spaces and tabs",
        ),
        (
            RawConfig { shutdown_timeout: "5s".to_owned(), ..raw() },
            "--shutdown-timeout 5s: must be a number of seconds, at most 86400",
        ),
    ] {
        assert_eq!(refused(raw), (expected.to_owned(), true));
    }
}

#[test]
fn kernel_and_initramfs_are_regular_files_with_content() {
    let files = Files::new();
    fs::write(files.path("empty"), "").unwrap();
    make_pipe(&files.path("pipe"));
    for (name, fault) in [
        ("missing", "there is no such file: must exist"),
        ("kernel/below", "there is no such file: must exist"),
        ("empty", "is empty: must not be"),
        ("", "is a directory: must be a regular file"),
        ("pipe", "is a pipe: must be a regular file"),
    ] {
        let path = files.path(name);
        refused_file(RawConfig { kernel: Some(path.clone()), ..files.raw() }, "--kernel", &path, fault);
        refused_file(RawConfig { initramfs: Some(path.clone()), ..files.raw() }, "--initramfs", &path, fault);
    }
}

#[test]
fn files_without_permission() {
    let files = Files::new();
    if !permissions_bind(&files) {
        return again_as_nobody("files_without_permission");
    }
    for (mode, rest, fault) in [
        (0o000, "", "permission denied: must be readable"),
        (0o200, "", "permission denied: must be readable"),
        (0o400, "", "cannot be written: must be writable, or be used with readonly=on"),
    ] {
        let disk = files.path("disk");
        fs::set_permissions(&disk, Permissions::from_mode(mode)).unwrap();
        refused_file(RawConfig { disks: vec![files.disk("disk", rest)], ..files.raw() }, "--disk", &disk, fault);
    }
    Config::try_from(RawConfig { disks: vec![files.disk("disk", ",readonly=on")], ..files.raw() }).unwrap();

    let fault = "permission denied: must be writable";
    let disk = files.path("disk");
    refused_file(RawConfig { timeline: Some(disk.clone()), ..files.raw() }, "--timeline", &disk, fault);
    fs::set_permissions(files.path("kernel"), Permissions::from_mode(0o000)).unwrap();
    refused_file(files.raw(), "--kernel", &files.path("kernel"), "permission denied: must be readable");
}

#[test]
fn disks_are_whole_sectors() {
    let files = Files::new();
    fs::write(files.path("empty"), "").unwrap();
    fs::write(files.path("ragged"), [0; 513]).unwrap();
    make_pipe(&files.path("pipe"));
    for (name, fault) in [
        ("missing", "there is no such file: must exist"),
        ("empty", "is empty: must not be"),
        ("ragged", "has 513 bytes: must be a multiple of 512"),
        ("", "is a directory: must be a regular file or a block device"),
        ("pipe", "is a pipe: must be a regular file or a block device"),
    ] {
        for rest in ["", ",readonly=on"] {
            let raw = RawConfig { disks: vec![files.disk(name, rest)], ..files.raw() };
            refused_file(raw, "--disk", &files.path(name), fault);
        }
    }
}

#[test]
fn an_rng_source_can_be_read() {
    let files = Files::new();
    let raw = |path: &Path| RawConfig { rng: format!("src={}", path.display()), ..files.raw() };
    let missing = files.path("missing");
    refused_file(raw(&missing), "--rng", &missing, "there is no such file: must exist");
    let fault = "is a directory: must be a character device or a regular file";
    refused_file(raw(files.0.path()), "--rng", files.0.path(), fault);
    assert!(Config::try_from(RawConfig { rng: "off".to_owned(), ..files.raw() }).unwrap().machine.rng.is_none());
}

#[test]
fn a_file_that_is_written_has_no_other_use() {
    let files = Files::new();
    fs::hard_link(files.path("disk"), files.path("link")).unwrap();
    let disk = || files.disk("disk", "");
    let fault = "is the file of --disk, too: must be a file of its own";

    let twice = RawConfig { disks: vec![disk(), files.disk("link", "")], ..files.raw() };
    refused_file(twice, "--disk", &files.path("link"), fault);
    let half = RawConfig { disks: vec![disk(), files.disk("link", ",readonly=on")], ..files.raw() };
    refused_file(half, "--disk", &files.path("link"), fault);
    let timeline = RawConfig { disks: vec![disk()], timeline: Some(files.path("link")), ..files.raw() };
    refused_file(timeline, "--timeline", &files.path("link"), fault);
    let kernel = RawConfig { timeline: Some(files.path("kernel")), ..files.raw() };
    let fault = "is the file of --kernel, too: must be a file of its own";
    refused_file(kernel, "--timeline", &files.path("kernel"), fault);
    let table = RawConfig {
        shape: ShapeArgs { study: vec![format!("handoff_file={}", files.text("initramfs"))], ..ShapeArgs::default() },
        timeline: Some(files.path("initramfs")),
        ..files.raw()
    };
    let fault = "is the file of --study handoff_file, too: must be a file of its own";
    refused_file(table, "--timeline", &files.path("initramfs"), fault);
    let log = files.path("log");
    let both = RawConfig { serial: format!("file={}", log.display()), timeline: Some(log.clone()), ..files.raw() };
    refused_file(both, "--timeline", &log, "is the file of --serial, too: must be a file of its own");

    let shared = vec![files.disk("disk", ",readonly=on"), files.disk("link", ",readonly=on")];
    Config::try_from(RawConfig { disks: shared, ..files.raw() }).unwrap();
    let null = RawConfig { serial: "file=/dev/null".to_owned(), timeline: Some("/dev/null".into()), ..files.raw() };
    Config::try_from(null).unwrap();
    assert_eq!(files.names(), ["disk", "initramfs", "kernel", "link"]);
    assert_eq!(fs::metadata(files.path("disk")).unwrap().len(), 1024);
}

#[test]
fn outputs_are_files_that_can_be_written() {
    let files = Files::new();
    make_pipe(&files.path("pipe"));
    let below = "cannot be created: entity not found: must be in a directory that exists and is writable";
    for (name, fault) in [
        ("missing/timeline", below),
        ("", "is a directory: must be a regular file, a character device or a pipe"),
        ("pipe", "no one reads from this pipe: must have a reader"),
    ] {
        let path = files.path(name);
        refused_file(RawConfig { timeline: Some(path.clone()), ..files.raw() }, "--timeline", &path, fault);
        let serial = format!("file={}", path.display());
        refused_file(RawConfig { serial, ..files.raw() }, "--serial", &path, fault);
    }
    assert_eq!(files.names(), ["disk", "initramfs", "kernel", "pipe"]);
}

#[test]
fn an_output_is_untouched_until_it_is_committed() {
    let files = Files::new();
    fs::write(files.path("old"), "what it held").unwrap();
    let raw = |serial: &str, timeline: &str| RawConfig {
        serial: format!("file={}", files.text(serial)),
        timeline: Some(files.path(timeline)),
        ..files.raw()
    };

    // The second output is impossible: the first, just created, is removed; what existed is as it was.
    assert!(Config::try_from(raw("new", "missing/x")).is_err());
    assert!(Config::try_from(raw("old", "missing/x")).is_err());
    // A configuration that is never used leaves no trace either.
    drop(Config::try_from(raw("new", "old")).unwrap());
    assert_eq!(files.names(), ["disk", "initramfs", "kernel", "old"]);
    assert_eq!(fs::read_to_string(files.path("old")).unwrap(), "what it held");

    let config = Config::try_from(raw("new", "old")).unwrap();
    let SerialConfig::File(serial) = config.machine.serial else { panic!("no file") };
    serial.commit().unwrap();
    config.timeline.unwrap().commit().unwrap();
    assert_eq!(files.names(), ["disk", "initramfs", "kernel", "new", "old"]);
    assert_eq!(fs::metadata(files.path("old")).unwrap().len(), 0);
}

#[test]
fn nothing_is_created_when_anything_else_is_wrong() {
    let files = Files::new();
    let raw = RawConfig {
        serial: format!("file={}", files.text("serial")),
        timeline: Some(files.path("timeline")),
        disks: vec![files.disk("missing", "")],
        ..files.raw()
    };
    assert!(Config::try_from(raw).is_err());
    assert_eq!(files.names(), ["disk", "initramfs", "kernel"]);
}

/// The lock goes with the open file, so another configuration in this process meets it as another process would.
#[test]
fn a_disk_has_one_writer_or_many_readers() {
    let files = Files::new();
    let with = |rest: &str| RawConfig { disks: vec![files.disk("disk", rest)], ..files.raw() };
    let path = files.path("disk");
    let in_use = "is in use by another VM or process: must be used by no other, or by all with readonly=on";
    let writer = Config::try_from(with("")).unwrap();
    refused_file(with(""), "--disk", &path, in_use);
    refused_file(
        with(",readonly=on"),
        "--disk",
        &path,
        "is written by another VM or process: must be written by no other",
    );
    drop(writer);
    let readers = [",readonly=on", ",readonly=on"].map(|rest| Config::try_from(with(rest)).unwrap());
    refused_file(with(""), "--disk", &path, in_use);
    drop(readers);
    Config::try_from(with("")).unwrap();
    // A refusal leaves nothing behind, neither a lock nor a file.
    let held = Config::try_from(with("")).unwrap();
    let mut raw = with("");
    raw.timeline = Some(files.path("timeline"));
    refused_file(raw, "--disk", &path, in_use);
    drop(held);
    assert_eq!(files.names(), ["disk", "initramfs", "kernel"]);
}

/// Where nothing goes by the page cache, writes go on in a file whose process is no more: it is locked as long as that is so, and the
/// next one waits.
#[test]
fn a_disk_for_direct_requests_is_locked_with_its_file() {
    let files = Files::new();
    fs::write(files.path("disk"), vec![0; 8192]).unwrap();
    let open = || Config::try_from(RawConfig { disks: vec![files.disk("disk", ",direct=on")], ..files.raw() });
    let Ok(mut config) = open() else { return eprintln!("SKIPPED: no direct I/O here") };
    let bytes = config.machine.disks.pop().unwrap().into_files().bytes;
    let kept = Duration::from_millis(200);
    let began = Instant::now();
    let other = thread::spawn(move || {
        thread::sleep(kept);
        drop(bytes);
    });
    open().unwrap();
    assert!(began.elapsed() >= kept, "{:?}", began.elapsed());
    other.join().unwrap();
}

/// What a guest has written to its disk is the owner's to vouch for.
#[test]
fn an_image_of_another_format_is_a_disk_if_its_owner_says_so() {
    let files = Files::new();
    let path = files.path("disk");
    let with = |rest: &str| RawConfig { disks: vec![files.disk("disk", rest)], ..files.raw() };
    for (magic, format) in [("QFI\u{fb}", "qcow2"), ("KDMV", "VMDK"), ("vhdxfile", "VHDX")] {
        let magic: Vec<u8> = magic.chars().map(|letter| u8::try_from(u32::from(letter)).unwrap()).collect();
        // The format is said before the length, which of an image is any.
        for length in [1024, 1000] {
            fs::write(&path, [magic.clone(), vec![0; length - magic.len()]].concat()).unwrap();
            let must = "must be raw, which \"qemu-img convert -O raw\" makes of one, or be used with image_type=raw";
            for rest in ["", ",readonly=on", ",image_type=unknown"] {
                refused_file(with(rest), "--disk", &path, &format!("begins like a {format} image: {must}"));
            }
        }
        refused_file(with(",image_type=raw"), "--disk", &path, "has 1000 bytes: must be a multiple of 512");
        fs::write(&path, [magic.clone(), vec![0; 1024 - magic.len()]].concat()).unwrap();
        Config::try_from(with(",image_type=raw")).unwrap();
    }
}

#[test]
fn a_disk_for_direct_requests() {
    let files = Files::new();
    let with = |rest: &str| RawConfig { disks: vec![files.disk("disk", rest)], ..files.raw() };
    fs::write(files.path("disk"), vec![0; 8192]).unwrap();
    for rest in [",direct=on", ",direct=on,readonly=on,queue_size=1024"] {
        match Config::try_from(with(rest)) {
            Ok(config) => {
                let alignment = config.machine.disks[0].direct().unwrap();
                assert!(alignment.offset.is_power_of_two() && (512..=4096).contains(&alignment.offset));
            }
            Err(error) => {
                let fault = "its file system has no direct I/O: must be on one that has, or be used with direct=off";
                assert!(error.to_string().ends_with(fault), "{error}");
            }
        }
    }
    // Linux has none of it for what it makes up.
    let link = files.path("link");
    std::os::unix::fs::symlink("/proc/self/status", &link).unwrap();
    let fault = "its file system has no direct I/O: must be on one that has, or be used with direct=off";
    let raw = RawConfig { disks: vec![files.disk("link", ",direct=on,readonly=on")], ..files.raw() };
    refused_file(raw, "--disk", &link, fault);
}
