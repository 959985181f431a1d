// SPDX-License-Identifier: Apache-2.0
//! Commands and their arguments.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use super::exit::ExitStatus;
use super::outside::OutsideArgs;
use super::process::ProcessArgs;
use crate::config::{ConfigError, OptionError, Options, RawConfig, ReadError, ShapeArgs, VmConfig, parse_size};
use crate::field::Field;
use crate::memory::Foreign;
use crate::run::First;
use crate::vmm::Restore;

const MEMORY: Field = Field::section("memory");
const RESTORE: Field = Field::section("restore");

// No line of these is wider than 80 columns: clap would break it.
const EXAMPLES: &str = "\
Examples:
  flatboot check
      Say whether this machine can run guests and, if not, what to do.

  flatboot run --kernel vmlinux --initramfs init.cpio --memory size=64G
      A 64 GiB guest, its serial console on this terminal.

  flatboot run --kernel bzImage --cpus boot=8 --disk path=root.img \\
           --cmdline 'root=/dev/vda rw' --timeline boot.json
      A guest with 8 vCPUs and a raw disk; its boot timeline goes to boot.json.

  flatboot run --firmware FLATBOOT.fd --disk path=disk.img --memory size=16G
      UEFI firmware, which boots from the disk, or --kernel if given.

  flatboot config --kernel vmlinux --memory size=64G > vm.json
  flatboot run --config vm.json
      Write the configuration to a file, then start a VM from it.

  flatboot --api-socket path=vm.sock
      Wait for requests of Cloud Hypervisor's API; vm.create creates a VM.

  flatboot run --restore /var/lib/vm/snapshot --serial file=console
      The VM that vm.snapshot of that API has saved there goes on.

  flatboot map --memory size=256G
      The memory map and the hand-off that such a guest would get.

  flatboot map --for qemu-microvm --memory size=64G --table table.bin
      Write the hand-off of such a guest under QEMU, for its option -fw_cfg.
";

const MISSING: &str = "a command is missing: must be run, config, check or map, or --api-socket (see flatboot --help)";

const ENVIRONMENT: &str = "\
Environment:
  FLATBOOT_LOG  what to log, overrides -v: error, warn, info, debug or trace,
                or a filter like flatboot::devices=debug [warn]
";

/// Boots Linux guests on KVM, in a time that does not grow with their memory
///
/// Options have Cloud Hypervisor's names and syntax: KEY=VALUE pairs separated by commas; put a value that contains commas in
/// double quotes.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "flatboot",
    bin_name = "flatboot",
    version,
    max_term_width = 100,
    after_help = "See 'flatboot COMMAND --help' for options, units, defaults and examples.",
    after_long_help = format!("{EXAMPLES}\n{}\n{ENVIRONMENT}", ExitStatus::help()),
    disable_help_subcommand = true,
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would become the help's text")]
    pub outside: OutsideArgs,

    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would become the help's text")]
    pub process: ProcessArgs,

    #[command(subcommand)]
    #[expect(missing_docs, reason = "a comment here would become the help's text")]
    pub verb: Option<Verb>,
}

/// What to do.
#[derive(Debug, Clone, Subcommand)]
pub enum Verb {
    /// Start a VM and stay until it ends
    #[command(after_long_help = format!("{EXAMPLES}\n{}\n{ENVIRONMENT}", ExitStatus::help()))]
    Run(Box<RunArgs>),
    /// Print the options of run as JSON, for run --config
    ///
    /// Defaults are included. The files that options name are not opened.
    Config(Box<RawConfig>),
    /// Say whether this machine can run guests and, if not, what is missing
    Check(CheckArgs),
    /// Print the memory map and the hand-off that a VM would get
    ///
    /// Needs no KVM and starts nothing. Ranges inside a range are indented below it; END is the address after the last byte.
    Map(MapArgs),
}

/// What describes a VM, and so cannot be with a file that does: all of [`RawConfig`].
const VM_OPTIONS: [&str; 21] = [
    "kernel",
    "firmware",
    "initramfs",
    "cmdline",
    "cpus",
    "memory",
    "memory_zones",
    "numa",
    "study",
    "disks",
    "nets",
    "vsock",
    "balloon",
    "rng",
    "serial",
    "serial_limit",
    "console",
    "timeline",
    "restart_on_reset",
    "landlock",
    "shutdown_timeout",
];

/// Of those, what a snapshot says once and for all; but for the size of memory.
const SAVED_OPTIONS: [&str; 10] =
    ["config", "kernel", "firmware", "initramfs", "cmdline", "cpus", "memory_zones", "numa", "study", "balloon"];

/// And those that may be other ones than they were, with the sections that they are.
const RENEWABLE_OPTIONS: [(&str, &str); 11] = [
    ("disks", "disks"),
    ("nets", "net"),
    ("vsock", "vsock"),
    ("rng", "rng"),
    ("serial", "serial"),
    ("serial_limit", "serial_limit"),
    ("console", "console"),
    ("timeline", "timeline"),
    ("restart_on_reset", "restart_on_reset"),
    ("landlock", "landlock_enable"),
    ("shutdown_timeout", "shutdown_timeout"),
];

/// The arguments of `run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Read the VM's configuration from FILE, as 'flatboot config' prints it, instead of options
    ///
    /// Missing fields have their defaults. Paths in it are relative to the current directory.
    #[arg(long, value_name = "FILE", conflicts_with_all = VM_OPTIONS)]
    pub config: Option<PathBuf>,

    /// Go on from the snapshot in DIR, which vm.snapshot has written
    ///
    /// The VM is what it was. What other options give takes the place of what it had there: --disk (all of them, in their order),
    /// --net, --vsock, --console, --serial, --rng and what is about this process. --memory size=SIZE changes how much memory it
    /// has, up to the max= that it was started with. prefault=on reads its memory before it goes on
    /// [off]. resume=off leaves it paused until vm.resume, for which --api-socket must be there [on].
    #[arg(long, value_name = "DIR[,KEY=VALUE]...", conflicts_with_all = SAVED_OPTIONS)]
    pub restore: Option<String>,

    /// Those of `RENEWABLE_OPTIONS` that were typed, as sections.
    #[arg(skip)]
    pub given: Vec<&'static str>,

    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would become the help's text")]
    pub process: ProcessArgs,

    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would become the help's text")]
    pub outside: OutsideArgs,

    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would become the help's text")]
    pub raw: RawConfig,
}

/// Why there is no VM to run.
#[derive(Debug, thiserror::Error)]
pub enum NoVm {
    /// The options.
    #[error(transparent)]
    Typed(#[from] ConfigError),
    /// What the options are in JSON.
    #[error("{0}")]
    Words(String),
    /// The file, or what is in it.
    #[error("--config {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: ReadError,
    },
}

impl RunArgs {
    /// The VM, whichever way it is described.
    pub fn first(self) -> Result<First, NoVm> {
        if let Some(text) = &self.restore {
            return Ok(First::Restore(self.restored(text)?));
        }
        let Some(path) = self.config else { return Ok(First::Boot(self.raw.try_into()?)) };
        VmConfig::read(&path).map(First::Boot).map_err(|source| NoVm::Read { path, source })
    }

    /// What `text` is to go on from, with what else was typed.
    fn restored(&self, text: &str) -> Result<Restore, NoVm> {
        let (path, rest) = match text.strip_prefix('"').and_then(|text| text.split_once('"')) {
            // What is behind the quotes is looked at as if there was a comma.
            Some((path, rest)) => (path, rest.strip_prefix(',').unwrap_or(rest)),
            None => text.split_once(',').unwrap_or((text, "")),
        };
        if path.is_empty() {
            return Err(
                ConfigError::from(OptionError::word(RESTORE, text, "must be the directory of a snapshot")).into()
            );
        }
        let options = if rest.is_empty() {
            Options::none(RESTORE)
        } else {
            Options::parse(RESTORE, rest, &["prefault", "resume"]).map_err(ConfigError::from)?
        };
        let switch = |key, default| options.switch(key, default).map_err(ConfigError::from);
        let (prefault, resume) = (switch("prefault", false)?, switch("resume", true)?);
        if !resume && self.outside.api_socket.is_none() {
            let must = "resume=off: nobody could let the VM go on: must be with --api-socket";
            return Err(ConfigError::from(OptionError::word(RESTORE, text, must)).into());
        }
        // A kernel has to be there for a whole configuration. It is not looked at.
        let shape = ShapeArgs { memory: None, ..self.raw.shape.clone() };
        let raw = RawConfig { kernel: Some("saved".into()), shape, ..self.raw.clone() };
        let mut sections = VmConfig::try_from(raw)?.sections(&self.given).map_err(NoVm::Words)?;
        if self.outside.api_socket.is_none() {
            // To start again takes a process that was started for it.
            sections.entry("restart_on_reset").or_insert(false.into());
        }
        if let Some(text) = &self.raw.shape.memory {
            let options = Options::parse(MEMORY, text, &["size"]).map_err(ConfigError::from)?;
            let size = options.value("size", parse_size).map_err(ConfigError::from)?;
            sections.extend(size.map(|size| ("memory".to_owned(), serde_json::json!({ "size": size }))));
        }
        Ok(Restore { path: path.into(), prefault, resume, sections })
    }
}

/// The arguments of `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// Print JSON instead of sentences
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `map`.
#[derive(Debug, Clone, Args)]
pub struct MapArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would become the help's text")]
    pub shape: ShapeArgs,

    /// Kernel image: show where it goes
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,

    /// Initial RAM file system: show where it goes; with --kernel
    #[arg(long, value_name = "FILE", requires = "kernel")]
    pub initramfs: Option<PathBuf>,

    /// Print JSON instead of a table: addresses and sizes in bytes
    #[arg(long)]
    pub json: bool,

    /// Write the hand-off for a VM with that memory under another VMM
    ///
    /// Uses the size of --memory, and arenas and zeroed of --study. Prints the options that the VMM needs.
    #[arg(long = "for", value_name = "VMM", value_enum, requires = "table", conflicts_with_all = ["cpus", "kernel", "json"])]
    pub foreign: Option<Foreign>,

    /// Write the hand-off's table to FILE, in the form that the kernel reads
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,
}

/// Arguments that are no command: help or version were asked for, or they are wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotACommand {
    /// Print this text to standard output and end well.
    Answer(String),
    /// Print this line to standard error and end with [`ExitStatus::Usage`].
    Wrong(String),
}

impl Cli {
    /// Takes the arguments of the process, the program's name first.
    pub fn from_arguments(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, NotACommand> {
        let arguments: Vec<_> = arguments.into_iter().collect();
        let cli = Self::parse_arguments(&arguments).map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => NotACommand::Answer(error.render().to_string()),
            ErrorKind::InvalidUtf8 => NotACommand::Wrong(not_utf8(&arguments)),
            _ => NotACommand::Wrong(one_line(&error.render().to_string())),
        })?;
        // Only a server can wait for somebody to say what to do.
        if cli.verb.is_none() && cli.outside.api_socket.is_none() {
            return Err(NotACommand::Wrong(MISSING.to_owned()));
        }
        Ok(cli)
    }
}

impl Cli {
    fn parse_arguments(arguments: &[OsString]) -> Result<Self, clap::Error> {
        // Of a VM that a file describes, a kernel is there, too.
        let run = |run: clap::Command| {
            run.mut_arg("kernel", |kernel| kernel.required_unless_present_any(["firmware", "config", "restore"]))
        };
        let mut command = Self::command().mut_subcommand("run", run);
        let matches = command.try_get_matches_from_mut(arguments)?;
        let mut cli = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        if let (Some(Verb::Run(run)), Some((_, matches))) = (&mut cli.verb, matches.subcommand()) {
            let typed = |id: &&(&str, &str)| matches.value_source(id.0) == Some(ValueSource::CommandLine);
            run.given = RENEWABLE_OPTIONS.iter().filter(typed).map(|(_, section)| *section).collect();
        }
        Ok(cli)
    }
}

/// clap does not say which argument it is; all but those that are only a path must be UTF-8.
fn not_utf8(arguments: &[OsString]) -> String {
    let wrong = arguments.iter().filter(|argument| argument.to_str().is_none());
    let list: Vec<_> = wrong.map(|argument| format!("\"{}\"", argument.display())).collect();
    format!("{}: must be UTF-8", list.join(", "))
}

/// The first paragraph of clap's message, as one line: what follows repeats the usage.
fn one_line(message: &str) -> String {
    let paragraph = message.split("\n\n").next().unwrap_or(message);
    let words: Vec<_> = paragraph.trim_start_matches("error:").split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, NotACommand> {
        Cli::from_arguments(line.split(' ').map(OsString::from))
    }

    #[test]
    fn clap_finds_no_fault_with_the_definition() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_line_in_the_syntax_of_cloud_hypervisor() {
        let cli = parse(
            "flatboot run --kernel vmlinux --initramfs x.cpio --cmdline -x --cpus boot=8 --memory size=64G,hugepages=on \
             --disk path=root.img path=data.img,readonly=on --serial tty --console off --disk path=z",
        );
        let Some(Verb::Run(run)) = cli.unwrap().verb else { panic!("not run") };
        let run = run.raw;
        assert_eq!(run.disks, ["path=root.img", "path=data.img,readonly=on", "path=z"]);
        assert_eq!((run.shape.cpus.as_str(), run.cmdline.as_str()), ("boot=8", "-x"));
        assert!(!run.restart_on_reset);
    }

    #[test]
    fn wrong_arguments_get_one_line() {
        for (line, expected) in [
            ("flatboot", MISSING),
            ("flatboot --event-monitor path=e", MISSING),
            ("flatboot start", "unrecognized subcommand 'start'"),
            ("flatboot run", "the following required arguments were not provided: --kernel <FILE>"),
            (
                "flatboot run --firmware f --firmware g",
                "the argument '--firmware <FILE>' cannot be used multiple times",
            ),
            ("flatboot run --kernel k --bios b", "unexpected argument '--bios' found"),
            ("flatboot run --kernel k --kernel l", "the argument '--kernel <FILE>' cannot be used multiple times"),
            ("flatboot check now", "unexpected argument 'now' found"),
            (
                "flatboot map --memory",
                "a value is required for '--memory <size=SIZE[,KEY=VALUE]...>' but none was supplied",
            ),
            ("flatboot map --initramfs i", "the following required arguments were not provided: --kernel <FILE>"),
        ] {
            assert_eq!(parse(line).unwrap_err(), NotACommand::Wrong(expected.to_owned()), "{line}");
        }
    }

    #[test]
    fn a_file_takes_the_place_of_every_option() {
        let command = <RawConfig as Args>::augment_args(clap::Command::new("x"));
        let options: Vec<_> = command.get_arguments().map(|argument| argument.get_id().as_str()).collect();
        assert_eq!(options, VM_OPTIONS);
    }

    #[test]
    fn what_is_saved_stays_and_the_rest_is_taken() {
        let first = |line: &str| {
            let Ok(Cli { verb: Some(Verb::Run(run)), .. }) = parse(line) else { panic!("{line}") };
            run.first().map_err(|error| error.to_string())
        };
        let Ok(First::Restore(restore)) = first("flatboot run --restore /a,prefault=on --serial null --disk path=b")
        else {
            panic!("no restore");
        };
        assert_eq!((restore.path, restore.prefault, restore.resume), ("/a".into(), true, true));
        let sections: Vec<_> = restore.sections.keys().map(String::as_str).collect();
        assert_eq!(sections, ["disks", "restart_on_reset", "serial"]);
        let Ok(First::Restore(quoted)) = first("flatboot run --restore \"/a,b\",prefault=on") else {
            panic!("no restore")
        };
        assert_eq!((quoted.path, quoted.prefault), ("/a,b".into(), true));
        for (line, expected) in [
            ("flatboot run --restore ,prefault=on", "restore ,prefault=on: must be the directory of a snapshot"),
            ("flatboot run --restore a,b=c", "restore b=c: there is no key b: must be one of prefault, resume"),
            (
                "flatboot run --restore a,resume=off",
                "restore a,resume=off: resume=off: nobody could let the VM go on: must be with --api-socket",
            ),
        ] {
            assert_eq!(first(line).unwrap_err(), expected, "{line}");
        }
        let Ok(First::Restore(restore)) = first("flatboot run --restore a --memory size=2G") else {
            panic!("no restore")
        };
        assert_eq!(restore.sections["memory"], serde_json::json!({"size": 2u64 << 30}));
        let error = first("flatboot run --restore a --memory size=2G,thp=all").unwrap_err();
        assert_eq!(error, "memory thp=all: there is no key thp: must be one of size");
        let error = parse("flatboot run --restore a --cpus boot=2").unwrap_err();
        assert!(matches!(error, NotACommand::Wrong(line) if line.contains("cannot be used with")));
    }

    #[test]
    fn what_may_be_other_is_known_by_both_names() {
        let mut sections: Vec<_> = RENEWABLE_OPTIONS.iter().map(|(_, section)| *section).collect();
        sections.sort_unstable();
        let mut known = crate::config::RENEWABLE;
        known.sort_unstable();
        assert_eq!(sections, known);
        let mut all: Vec<_> =
            RENEWABLE_OPTIONS.iter().map(|(option, _)| *option).chain(SAVED_OPTIONS).chain(["memory"]).collect();
        all.retain(|option| *option != "config");
        all.sort_unstable();
        let mut options = VM_OPTIONS;
        options.sort_unstable();
        assert_eq!(all, options);
    }

    #[test]
    fn help_has_what_a_manual_page_has() {
        for command in ["flatboot --help", "flatboot run --help"] {
            let Err(NotACommand::Answer(help)) = parse(command) else { panic!("no help") };
            for part in ["Usage:", "Examples:", "Exit status:", "Environment:", "6  the guest was ended from outside"] {
                assert!(help.contains(part), "{command}: {part}");
            }
        }
        let version = format!("flatboot {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(parse("flatboot --version").unwrap_err(), NotACommand::Answer(version));
    }
}
