// SPDX-License-Identifier: Apache-2.0
//! What a user types: texts that nobody has looked at, and the help for each.

use std::path::PathBuf;

use super::cmdline::Cmdline;

/// What is below this in the help is not for those who just run guests.
const STUDIES: &str = "For studies of boot time";

/// The options that give a VM its shape.
#[derive(Debug, Clone, clap::Args)]
#[expect(clippy::doc_markdown, reason = "the help is shown as it is written")]
pub struct ShapeArgs {
    /// Virtual CPUs: boot=N, 1 to 1024, their topology, affinity and features
    ///
    ///   topology=T:C:D:P     threads per core, cores per die, dies per package,
    ///                        packages [1:N:1:1]
    ///   affinity=[VCPU@[CPUS],...]
    ///                        host CPUs that a vCPU may run on, as in
    ///                        [0@[0-3],1@[2,4]]; one not listed may run on all
    ///   nested=on|off        the guest may run VMs itself (VMX, SVM), if this
    ///                        host's KVM supports it [on]
    #[arg(long, value_name = "boot=N[,KEY=VALUE]...", default_value = "boot=1", verbatim_doc_comment)]
    pub cpus: String,

    /// Guest memory: size=SIZE and how the host backs it [512M]
    ///
    /// SIZE is in bytes, or with the suffix K, M, G or T in units of 2^10, 2^20,
    /// 2^30 or 2^40 bytes: at least 64M, a multiple of 1M, at most what the
    /// processor's physical addresses allow. The host allocates memory only for
    /// what the guest touches.
    ///
    ///   max=SIZE             most memory that the VM can have while it runs, more
    ///                        than size by a multiple of 128M; the control API's
    ///                        vm.resize changes how much it has. The guest's kernel
    ///                        must support it [size]
    ///   hotplug_size=SIZE    the same as max=, as what can be added to size [0]
    ///   hugepages=on|off     use the host's reserved huge pages [off]
    ///   hugepage_size=2M|1G  their size; SIZE must be a multiple of it [2M]
    ///   shared=on|off        use a memfd instead of anonymous memory [off]
    ///   thp=on|off|all       transparent huge pages: on, for kernel, memmap and
    ///                        what vm.resize adds,
    ///                        and for all memory with prefault=on; all, for all
    ///                        memory [on]
    ///   prefault=on|off      allocate all memory before the guest runs, with one
    ///                        thread per host CPU, up to 16; an error at start if
    ///                        the host does not have enough [off]
    #[arg(long, value_name = "size=SIZE[,KEY=VALUE]...", verbatim_doc_comment)]
    pub memory: Option<String>,

    /// A part of guest memory with its own host memory settings; may be given
    /// several times; --memory then has no size
    ///
    ///   id=NAME              its name in --numa
    ///   size=SIZE            a multiple of 128M, except for the last zone
    ///   hugepages=, hugepage_size=, shared=
    ///                        as in --memory
    ///   host_numa_node=N     bind it to NUMA node N of this host (mbind)
    #[arg(long = "memory-zone", value_name = "id=NAME,size=SIZE[,KEY=VALUE]...", num_args = 1.., verbatim_doc_comment)]
    pub memory_zones: Vec<String>,

    /// A NUMA node of the guest: its vCPUs and memory; may be given several times
    ///
    /// If there are nodes, each vCPU and each zone must be on one of them. Memory
    /// without zones is the zone mem0.
    ///
    ///   guest_numa_id=ID     its proximity domain, at most 255. The guest's kernel
    ///                        numbers nodes in this order, those without vCPUs last
    ///   cpus=[LIST]          its vCPUs, as in [0-3,7]
    ///   memory_zones=[NAME,...]
    ///                        its zones, in the order of the guest's addresses
    ///   distances=[ID@DISTANCE,...]
    ///                        to other nodes, 11 to 254, symmetric [20]
    #[arg(long, value_name = "guest_numa_id=ID[,KEY=VALUE]...", num_args = 1.., verbatim_doc_comment)]
    pub numa: Vec<String>,

    /// For measurements and tests only: switch off parts of the fast boot, or pass
    /// unusual memory maps and tables to the kernel
    ///
    ///   layout=split|pc      memory below 4 GiB: 512M (1G with 1G pages), or up
    ///                        to 3G, as in other VMMs [split]
    ///   arenas=on|off        the hand-off says where to put the memmap [on]
    ///   zeroed=on|off        the hand-off says which memory is zero [on]
    ///   holes=N              cut memory above 4 GiB into N + 1 parts, 128M
    ///                        apart [0]
    ///   early=on|off         vCPU threads allocate what the guest touches first,
    ///                        kernel and first memmap, while they wait for their
    ///                        start [on]
    ///   prefault_arenas=on|off
    ///                        allocate the memmap's arenas before the guest runs [off]
    ///   handoff=on|off       pass the hand-off, a description of guest memory, to
    ///                        the kernel; kernels without the patches ignore it [on]
    ///   handoff_file=FILE    pass the bytes of FILE instead, unchecked
    #[arg(long, value_name = "KEY=VALUE[,KEY=VALUE]...", num_args = 1.., help_heading = STUDIES, verbatim_doc_comment)]
    pub study: Vec<String>,
}

impl ShapeArgs {
    /// The text of `--memory`, or what it is as good as where nobody has typed one.
    pub(super) fn memory(&self) -> &str {
        let unsaid = if self.memory_zones.is_empty() { "size=512M" } else { "size=0" };
        self.memory.as_deref().unwrap_or(unsaid)
    }
}

/// What `flatboot run` without options gives.
impl Default for ShapeArgs {
    fn default() -> Self {
        Self { cpus: "boot=1".to_owned(), memory: None, memory_zones: Vec::new(), numa: Vec::new(), study: Vec::new() }
    }
}

/// A VM, as typed.
#[derive(Debug, Clone, clap::Args)]
pub struct RawConfig {
    /// Kernel image: an uncompressed ELF vmlinux (starts sooner) or a bzImage
    ///
    /// With --firmware, a bzImage with an EFI stub, which the firmware loads and starts.
    #[arg(long, value_name = "FILE", required_unless_present = "firmware")]
    pub kernel: Option<PathBuf>,

    /// Firmware image: EDK2 for QEMU's microvm machine, 64 KiB to 16 MiB, a multiple of 4 KiB
    ///
    /// It is mapped just below 4 GiB, where the processor starts, read-only to the guest. It boots --kernel or, without one, what
    /// it finds on the disks; --initramfs and --cmdline need --kernel.
    #[arg(long, value_name = "FILE")]
    pub firmware: Option<PathBuf>,

    /// Initial RAM file system, passed to the kernel unchanged
    #[arg(long, value_name = "FILE")]
    pub initramfs: Option<PathBuf>,

    /// Kernel command line
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    #[arg(long_help = Cmdline::help())]
    pub cmdline: String,

    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would become the help's text")]
    pub shape: ShapeArgs,

    /// Raw disk: a file or a block device of whole 512-byte sectors; may be given several times
    ///
    /// The guest sees them as /dev/vda, /dev/vdb and so on, in this order. readonly=on opens the disk for reading only [off]. A
    /// disk is locked: one VM may write it, or any number may read it. Blocks that the guest discards are freed in the file,
    /// unless sparse=off. serial=TEXT is the serial number that the guest sees [flatboot-disk0 and so on]. id=NAME is its name in
    /// the control API.
    ///
    /// direct=on bypasses the host's page cache (O_DIRECT) [off]; the guest's sectors are then as large as the file system or
    /// device wants, 512 to 4096 bytes, and a disk that another VM has is waited for, 5 s at most. num_queues=N is the number of
    /// queues, each with its own thread [1], queue_size=N the number of descriptors in each, a power of two [128]. A file that
    /// begins like an image of another format, qcow2 for example, is refused, unless image_type=raw is given.
    ///
    /// Rate limit: bw_size=SIZE bytes per bw_refill_time=MILLISECONDS, plus bw_one_time_burst=SIZE once after each start;
    /// likewise ops_size, ops_refill_time and ops_one_time_burst for requests.
    #[arg(long = "disk", value_name = "path=FILE[,KEY=VALUE]...", num_args = 1..)]
    #[expect(clippy::doc_markdown, reason = "the help is shown as it is written")]
    pub disks: Vec<String>,

    /// Network interface; may be given several times; disks, network interfaces, vsock, console and balloon are at most 13
    /// together
    ///
    /// passt needs no privileges: the program of that name (Debian: apt-get install passt) gives the guest an address and opens
    /// its connections as this user. forward=2222:22 forwards port 2222 of this host's 127.0.0.1 to port 22 of the guest; the
    /// full form is [udp/][ADDRESS/]PORT:PORT, with + between several.
    ///
    /// tap=NAME is a tap device of the host. If it does not exist it is created, which needs CAP_NET_ADMIN, and removed with the
    /// VM; without a name it gets the next free one. fd=N is an inherited descriptor: a tap, opened with IFF_NO_PI and
    /// IFF_VNET_HDR, or a stream socket to a program with passt's protocol. num_queues=N [2] counts both queues of each pair, for
    /// a tap; fd=[N,N] has a descriptor for each pair.
    ///
    /// ip=ADDRESS and mask=ADDRESS [255.255.255.0] are set on the tap; mac=ADDRESS [random] is the guest's. mtu=BYTES is the
    /// longest packet in either direction. Rate limits are as for disks, in each direction; id=NAME is its name in the control
    /// API.
    ///
    /// queue_size=N [256] is the size of each queue. offload_csum, offload_tso and offload_ufo=on|off: checksum and TCP and UDP
    /// segmentation offload between guest and host [on, over a tap]. vhost=on|off: the host's kernel moves a tap's frames [on if
    /// there is /dev/vhost-net and no rate limit].
    #[arg(long = "net", value_name = "passt|tap=NAME|fd=N[,KEY=VALUE]...", num_args = 1..)]
    #[expect(clippy::doc_markdown, reason = "the help is shown as it is written")]
    pub nets: Vec<String>,

    /// Connections between programs of the guest and of the host, without a network (virtio-vsock)
    ///
    /// The guest has the context id cid=N, at least 3. A program of the host connects to the UNIX socket PATH, writes CONNECT
    /// PORT and a line feed, and reads OK. A program of the guest that connects to port N of the host, context id 2, is connected
    /// to the socket PATH_N. Rate limits are as for disks, in each direction; id=NAME is its name in the control API.
    #[arg(long, value_name = "cid=N,socket=PATH[,KEY=VALUE]...")]
    #[expect(clippy::doc_markdown, reason = "the help is shown as it is written")]
    pub vsock: Option<String>,

    /// Memory that the guest returns to the host (virtio-balloon)
    ///
    /// size=SIZE is how much the guest is asked to give up; the control API can change it while the VM runs [0].
    /// deflate_on_oom=on lets the guest take that back before it kills a program for lack of memory [off]. free_page_reporting=on
    /// makes the guest report free memory by itself; it may use it again at any time [off].
    #[arg(long, value_name = "KEY=VALUE[,KEY=VALUE]...")]
    #[expect(clippy::doc_markdown, reason = "the help is shown as it is written")]
    pub balloon: Option<String>,

    /// Source of the guest's random bytes (virtio-rng), or off for no device
    ///
    /// bw_size, ops_size and so on limit bytes and requests, as for disks.
    #[arg(long, value_name = "src=FILE[,KEY=VALUE]...|off", default_value = "src=/dev/urandom")]
    #[expect(clippy::doc_markdown, reason = "the help is shown as it is written")]
    pub rng: String,

    /// Serial port: the terminal, a file, output discarded (null), or no port (off)
    ///
    /// On a terminal every key goes to the guest, Ctrl-C too. Ctrl-A x ends the VM; Ctrl-A Ctrl-A sends one Ctrl-A.
    #[arg(long, value_name = "tty|file=FILE|null|off", default_value = "tty")]
    pub serial: String,

    /// Largest size of the files of --serial and --console, each; further output is dropped
    #[arg(long, value_name = "SIZE")]
    pub serial_limit: Option<String>,

    /// Virtio console, /dev/hvc0 in the guest: this terminal, a pseudo terminal, a file, a UNIX socket, or none
    ///
    /// tty needs a serial port that is null, off or a file; keys do what they do with --serial. pty creates a pseudo terminal and
    /// prints its path. With socket=PATH the console is on that UNIX socket, for one client at a time. What the guest writes to
    /// a pseudo terminal or a socket is dropped while nobody is connected.
    #[arg(long, value_name = "tty|pty|file=FILE|socket=PATH|null|off", default_value = "off")]
    pub console: String,

    /// Write the boot timeline to FILE as JSON: every mark, in nanoseconds since flatboot's first statement
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,

    /// Start the VM again when the guest resets, instead of ending
    ///
    /// The files of --serial and --event-monitor are appended to. After a reset within a second of the start, flatboot waits 100 ms.
    #[arg(long)]
    pub restart_on_reset: bool,

    /// Block access to all files once those that options name are open (Landlock)
    ///
    /// The host's kernel must support it; newer kernels also block TCP ports and signals to other processes. With --api-socket
    /// the thread that starts the next VM can still open files.
    #[arg(long)]
    pub landlock: bool,

    /// How long a guest may take to power off after SIGTERM or SIGINT, before it is ended
    ///
    /// The power button is pressed again every 5 seconds: a starting guest may miss it.
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    pub shutdown_timeout: String,
}

/// What `flatboot run` without options gives.
impl Default for RawConfig {
    fn default() -> Self {
        Self {
            kernel: None,
            firmware: None,
            initramfs: None,
            cmdline: String::new(),
            shape: ShapeArgs::default(),
            disks: Vec::new(),
            nets: Vec::new(),
            vsock: None,
            balloon: None,
            rng: "src=/dev/urandom".to_owned(),
            serial: "tty".to_owned(),
            serial_limit: None,
            console: "off".to_owned(),
            timeline: None,
            restart_on_reset: false,
            landlock: false,
            shutdown_timeout: "10".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    #[test]
    fn defaults_are_those_of_the_command_line() {
        let typed =
            RawConfig::augment_args(Command::new("run")).try_get_matches_from(["run", "--kernel", "vmlinux"]).unwrap();
        let typed = RawConfig::from_arg_matches(&typed).unwrap();
        let expected = RawConfig { kernel: Some("vmlinux".into()), ..RawConfig::default() };
        assert_eq!(format!("{typed:?}"), format!("{expected:?}"));
    }
}
