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
    /// Virtual CPUs: boot=N, 1 to 1024, how they are grouped, where they run, and
    /// what they can
    ///
    ///   topology=T:C:D:P     threads of a core, cores of a die, dies of a
    ///                        package, packages [1:N:1:1]
    ///   affinity=[VCPU@[CPUS],...]
    ///                        which CPUs of the host a vCPU runs on, as in
    ///                        [0@[0-3],1@[2,4]]; the others run on all
    ///   nested=on|off        the guest may run VMs of its own (VMX, SVM), where
    ///                        this host's KVM can [on]
    #[arg(long, value_name = "boot=N[,KEY=VALUE]...", default_value = "boot=1", verbatim_doc_comment)]
    pub cpus: String,

    /// Guest memory: size=SIZE and how the host backs it [512M]
    ///
    /// SIZE is a number of bytes, with K, M, G or T after it for 2^10, 2^20,
    /// 2^30 or 2^40 of them: at least 64M, a multiple of 1M, at most what the
    /// processor's physical addresses have room for. Host memory is used
    /// only for what the guest touches.
    ///
    ///   hugepages=on|off     from the host's reserved huge pages [off]
    ///   hugepage_size=2M|1G  which of them; size is a multiple of it [2M]
    ///   shared=on|off        in a memfd, not in anonymous memory [off]
    ///   thp=on|off|all       ask for transparent huge pages: on, behind kernel
    ///                        and memmap, or behind all that prefault=on backs;
    ///                        all, everywhere [on]
    ///   prefault=on|off      back all memory before the guest runs, by a thread
    ///                        for each host CPU, up to 16. What the host cannot
    ///                        give is an error at start [off]
    #[arg(long, value_name = "size=SIZE[,KEY=VALUE]...", verbatim_doc_comment)]
    pub memory: Option<String>,

    /// A part of guest memory that is backed in its own way; may be given several
    /// times, then without a size of --memory
    ///
    ///   id=NAME              what --numa calls it
    ///   size=SIZE            a multiple of 128M, but for the last in memory
    ///   hugepages=, hugepage_size=, shared=
    ///                        as of --memory
    ///   host_numa_node=N     all of it comes from node N of this host (mbind)
    #[arg(long = "memory-zone", value_name = "id=NAME,size=SIZE[,KEY=VALUE]...", num_args = 1.., verbatim_doc_comment)]
    pub memory_zones: Vec<String>,

    /// A node of the guest: its vCPUs and memory; may be given several times
    ///
    /// With any, each vCPU and each zone is on one of them. Memory without zones is
    /// the zone mem0.
    ///
    ///   guest_numa_id=ID     its proximity domain, at most 255. The guest's kernel
    ///                        numbers nodes by it, those without vCPUs last
    ///   cpus=[LIST]          its vCPUs, as in [0-3,7]
    ///   memory_zones=[NAME,...]
    ///                        its zones, in the order of the guest's addresses
    ///   distances=[ID@DISTANCE,...]
    ///                        to others, 11 to 254, the same both ways [20]
    #[arg(long, value_name = "guest_numa_id=ID[,KEY=VALUE]...", num_args = 1.., verbatim_doc_comment)]
    pub numa: Vec<String>,

    /// What nobody needs who just runs guests: each part of the fast boot can be
    /// switched off, to measure its worth, and what a kernel is told can be odd
    ///
    ///   layout=split|pc      below 4 GiB, 512M (1G with 1G pages), or up to 3G
    ///                        as other VMMs have it [split]
    ///   arenas=on|off        the hand-off says where the memmap goes [on]
    ///   zeroed=on|off        the hand-off says which memory is zero [on]
    ///   holes=N              cut memory above 4 GiB into N + 1 parts, 128M
    ///                        apart [0]
    ///   early=on|off         vCPU threads back what the guest touches first,
    ///                        kernel and first memmap, while they wait for their
    ///                        start [on]
    ///   prefault_arenas=on|off
    ///                        back the memmap's arenas before the guest runs [off]
    ///   handoff=on|off       the hand-off tells the guest about its memory, so
    ///                        that a kernel which knows it sets up its memory in
    ///                        parallel; others ignore it [on]
    ///   handoff_file=FILE    the bytes of FILE take its place, as they are
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
    /// With --firmware, a bzImage with an EFI stub, which the firmware fetches and starts.
    #[arg(long, value_name = "FILE", required_unless_present = "firmware")]
    pub kernel: Option<PathBuf>,

    /// Firmware image: EDK2 for QEMU's microvm machine, 64 KiB to 16 MiB, a multiple of 4 KiB
    ///
    /// It ends at 4 GiB, where the processor starts, and is read-only to the guest. It boots --kernel or, without one, what it
    /// finds on the disks; then --initramfs and --cmdline are not for it.
    #[arg(long, value_name = "FILE")]
    pub firmware: Option<PathBuf>,

    /// Initial RAM file system, handed to the kernel as it is
    #[arg(long, value_name = "FILE")]
    pub initramfs: Option<PathBuf>,

    /// Kernel command line
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    #[arg(long_help = Cmdline::help())]
    pub cmdline: String,

    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment here would become the help's text")]
    pub shape: ShapeArgs,

    /// Raw disk, a file or a block device of whole 512-byte sectors; may be given 13 times
    ///
    /// The guest sees them as /dev/vda, /dev/vdb and so on, in this order. readonly=on opens the disk for reading only [off].
    /// A disk is locked: one VM may write it, or any number may read it. What the guest discards needs no room in the file any more,
    /// unless sparse=off. serial=TEXT is the serial number that the guest sees [flatboot-disk0 and so on]. id=NAME names it in the
    /// control API.
    ///
    /// direct=on keeps its bytes out of the host's page cache [off]. num_queues=N is how many queues it has, each with a thread
    /// [1], queue_size=N how many descriptors are in each, a power of two [128]. A file that begins like an image of another format, qcow2 for example, is refused, unless image_type=raw says that it is
    /// the disk all the same.
    ///
    /// Its rate can be limited: bw_size=SIZE bytes in bw_refill_time=MILLISECONDS, and bw_one_time_burst=SIZE once besides; likewise
    /// ops_size, ops_refill_time and ops_one_time_burst for requests.
    #[arg(long = "disk", value_name = "path=FILE[,KEY=VALUE]...", num_args = 1..)]
    #[expect(clippy::doc_markdown, reason = "the help is shown as it is written")]
    pub disks: Vec<String>,

    /// Network interface; may be given several times, disks and these 13 in all
    ///
    /// passt needs no rights: the program of that name (Debian: apt-get install passt) gives the guest an address and connects it
    /// as any program of this user may. forward=2222:22 leads port 2222 of this host's 127.0.0.1 to port 22 of the guest;
    /// [udp/][ADDRESS/]PORT:PORT says it all, + comes between several.
    ///
    /// tap=NAME is an interface of the host. It is made if it is not there, which takes CAP_NET_ADMIN, and goes with the VM;
    /// without it, one gets the next free name. fd=N is one that flatboot was started with, opened with IFF_NO_PI and
    /// IFF_VNET_HDR, or a stream socket to a program that speaks as passt does. num_queues=N [2] over a tap is two for each pair;
    /// fd=[N,N] has a descriptor for each.
    ///
    /// ip=ADDRESS and mask=ADDRESS [255.255.255.0] are the host's end; mac=ADDRESS [random] is the guest's. mtu=BYTES is the
    /// longest packet that either sends. Rates are limited as those of disks, in each direction; id=NAME is for the control API.
    ///
    /// queue_size=N [256] is the room of each queue. offload_csum, offload_tso and offload_ufo=on|off say whether guest and host
    /// leave out checksums, and pass each other TCP and UDP uncut [on, over a tap]. vhost=on|off: the host's kernel moves a tap's
    /// frames [on where there is /dev/vhost-net, without limits].
    #[arg(long = "net", value_name = "passt|tap=NAME|fd=N[,KEY=VALUE]...", num_args = 1..)]
    #[expect(clippy::doc_markdown, reason = "the help is shown as it is written")]
    pub nets: Vec<String>,

    /// Connections between programs of the guest and of the host, without a network (virtio-vsock)
    ///
    /// The guest has the context id cid=N, at least 3. A program of the host connects to the UNIX socket PATH, writes CONNECT PORT
    /// and a line feed, and reads OK. A program of the guest that connects to port N of the host, context id 2, is connected to the
    /// socket PATH_N. Rates are limited as those of disks, in each direction; id=NAME is for the control API.
    #[arg(long, value_name = "cid=N,socket=PATH[,KEY=VALUE]...")]
    #[expect(clippy::doc_markdown, reason = "the help is shown as it is written")]
    pub vsock: Option<String>,

    /// Memory that the guest gives up (virtio-balloon)
    ///
    /// size=SIZE is how much it is asked for, which the control API can change while it runs [0]. deflate_on_oom=on lets it take
    /// that back before it ends a program for lack of memory [off]. free_page_reporting=on makes it give up whatever is free,
    /// without being asked, and take it back as it pleases [off].
    #[arg(long, value_name = "KEY=VALUE[,KEY=VALUE]...")]
    #[expect(clippy::doc_markdown, reason = "the help is shown as it is written")]
    pub balloon: Option<String>,

    /// Source of the guest's random bytes (virtio-rng), or off for no such device
    #[arg(long, value_name = "src=FILE|off", default_value = "src=/dev/urandom")]
    pub rng: String,

    /// Serial port: the terminal, a file, a sink, or no port
    ///
    /// On a terminal every key is the guest's, Ctrl-C too. Ctrl-A x ends the VM; Ctrl-A Ctrl-A is a Ctrl-A for the guest.
    #[arg(long, value_name = "tty|file=FILE|null|off", default_value = "tty")]
    pub serial: String,

    /// Most bytes of the file of --serial: what the guest writes beyond them is dropped
    #[arg(long, value_name = "SIZE")]
    pub serial_limit: Option<String>,

    /// Virtio console, /dev/hvc0 in the guest: a pseudo terminal, a UNIX socket, or none
    ///
    /// pty makes a pseudo terminal and says its path. With socket=PATH, whoever connects there is at the console, one at a time.
    /// What the guest writes while nobody is there is dropped.
    #[arg(long, value_name = "pty|socket=PATH|null|off", default_value = "off")]
    pub console: String,

    /// Write the boot timeline to FILE as JSON: every mark, in nanoseconds since flatboot's exec
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,

    /// Start the VM again when the guest resets, instead of ending
    ///
    /// --serial file=FILE goes on where it was. A guest that resets within a second of its start waits 100 ms.
    #[arg(long)]
    pub restart_on_reset: bool,

    /// Keep every file away from flatboot once those that options name are open (Landlock)
    ///
    /// The host's kernel must have it; what it can keep away besides (TCP ports, signals to others) depends on its version. With
    /// --api-socket the thread that starts the next VM still opens files.
    #[arg(long)]
    pub landlock: bool,

    /// How long a guest may take to power off after SIGTERM or SIGINT, before it is ended
    ///
    /// It is asked again every 5 seconds: while it starts it may not hear.
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
