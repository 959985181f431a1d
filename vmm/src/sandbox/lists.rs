// SPDX-License-Identifier: Apache-2.0
//! What each kind of thread may ask of the kernel: the lists that docs/threat-model.md speaks of.
//!
//! A thread may make the calls of [`EVERY`] and of its kind's own list, and no others. None of the lists has a call that opens a file,
//! makes a socket, starts a program, or reaches into another process; a test holds them to that, but for two: a server's owner opens
//! files, since it starts VMs ([`START`]), and a vsock device has UNIX sockets ([`VSOCK`]). What glibc, Rust's library, or a crate does
//! behind our backs is said at each call.

use std::mem::size_of;

use kvm_bindings::{
    kvm_cpuid2, kvm_debugregs, kvm_irq_routing, kvm_lapic_state, kvm_mp_state, kvm_msrs, kvm_regs, kvm_sregs,
    kvm_userspace_memory_region, kvm_vcpu_events, kvm_xcrs, kvm_xsave,
};

use super::Kind;
use crate::memory::scan::PAGEMAP_SCAN;

/// A call, and when it is allowed. Twice in a list, it is allowed when either allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call(pub(super) i64, pub(super) When);

/// What a call's arguments must be, counted from 0. All but [`Null`](Self::Null) look at 32 bits, as the kernel does for these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Whatever they are.
    Always,
    /// That one is one of these.
    OneOf(u8, &'static [u32]),
    /// That one is a null pointer.
    Null(u8),
    /// That one has none of these bits.
    Without(u8, u32),
    /// That one has all of these bits.
    With(u8, u32),
    /// That one has these bits, of those of a mask that comes first.
    Masked(u8, u32, u32),
    /// That one is this process's number.
    Ourselves(u8),
}

use When::{Always, Masked, Null, OneOf, Ourselves, With, Without};

/// What threads of all kinds need.
const EVERY: &[Call] = &[
    // Waiting for each other, and for time. A stopped and continued wait goes on by restart_syscall.
    Call(libc::SYS_futex, Always),
    Call(libc::SYS_sched_yield, Always),
    Call(libc::SYS_clock_nanosleep, Always),
    Call(libc::SYS_restart_syscall, Always),
    // The vDSO asks the kernel where the host's clock cannot be read without it.
    Call(libc::SYS_clock_gettime, Always),
    Call(libc::SYS_gettimeofday, Always),
    // Files that are open: the log, standard output and error, events. What there is to write to is decided by then.
    Call(libc::SYS_write, Always),
    Call(libc::SYS_writev, Always),
    Call(libc::SYS_close, Always),
    // Builds with debug assertions look whether what they close is open.
    Call(libc::SYS_fcntl, OneOf(1, &[word(libc::F_GETFD)])),
    // Memory for malloc and for thread stacks. None of it can become code.
    Call(libc::SYS_brk, Always),
    Call(libc::SYS_mmap, Without(2, word(libc::PROT_EXEC))),
    Call(libc::SYS_mprotect, Without(2, word(libc::PROT_EXEC))),
    Call(libc::SYS_mremap, Always),
    Call(libc::SYS_munmap, Always),
    Call(libc::SYS_madvise, OneOf(2, &[word(libc::MADV_DONTNEED), word(libc::MADV_FREE), MADV_GUARD_INSTALL])),
    // malloc asks how many CPUs there are when it makes another arena, and HashMap for its keys.
    Call(libc::SYS_sched_getaffinity, Always),
    Call(libc::SYS_getrandom, Always),
    // Page faults, for the timeline.
    Call(libc::SYS_getrusage, Always),
    // Signals: a handler's return; the self-pipe of the crate signal-hook, whichever thread a signal strikes; SIGBUS and SIGSEGV, which
    // memory/fault.rs gives their defaults back.
    Call(libc::SYS_rt_sigreturn, Always),
    Call(libc::SYS_rt_sigprocmask, Always),
    Call(libc::SYS_sendto, Null(4)),
    Call(libc::SYS_rt_sigaction, OneOf(0, &[word(libc::SIGBUS), word(libc::SIGSEGV), word(libc::SIGABRT)])),
    // A thread's end, the process's, and abort(), which is how a panic ends.
    Call(libc::SYS_sigaltstack, Always),
    Call(libc::SYS_exit, Always),
    Call(libc::SYS_exit_group, Always),
    Call(libc::SYS_getpid, Always),
    Call(libc::SYS_gettid, Always),
    Call(libc::SYS_tgkill, Ourselves(0)),
    // The terminal's own mode, which whoever ends the process gives back to it; never TIOCSTI, which types.
    Call(libc::SYS_ioctl, OneOf(1, &[TCGETS, TCSETS, TCGETS2, TCSETS2, TIOCGPGRP])),
    Call(libc::SYS_getpgrp, Always),
    Call(libc::SYS_getpgid, Always),
];

/// Owns the VM. Once its guest is over: the timeline; and if KVM has failed, the probe guest of `flatboot check`, in a thread.
const VMM: &[Call] = &[
    Call(libc::SYS_fstat, Always),
    Call(libc::SYS_statx, Always),
    Call(libc::SYS_ftruncate, Always),
    Call(libc::SYS_lseek, Always),
    // Threads, and no processes.
    Call(libc::SYS_clone, With(0, word(libc::CLONE_THREAD))),
    Call(libc::SYS_set_robust_list, Always),
    Call(libc::SYS_rseq, Always),
    Call(libc::SYS_prctl, OneOf(0, &[word(libc::PR_SET_NAME)])),
    Call(
        libc::SYS_ioctl,
        OneOf(
            1,
            &[
                KVM_CHECK_EXTENSION,
                KVM_CREATE_VM,
                KVM_GET_VCPU_MMAP_SIZE,
                KVM_GET_SUPPORTED_CPUID,
                KVM_SET_USER_MEMORY_REGION,
                KVM_CREATE_VCPU,
                KVM_SET_CPUID2,
                KVM_GET_SREGS,
                KVM_SET_SREGS,
                KVM_SET_REGS,
                KVM_RUN,
            ],
        ),
    ),
    // Guest memory of that.
    Call(libc::SYS_madvise, OneOf(2, &[word(libc::MADV_DONTDUMP)])),
];

/// Removes the socket of a vsock device or of a console. No filter sees which file it is.
const REMOVE: &[Call] = &[Call(libc::SYS_unlink, Always)];

/// Owns a server's VMs. Besides what it does when one is over, it opens the files of the next one, makes what that consists of, and
/// starts its threads. Those have its filter, too: what they may is here, and their own filters take the rest from them again.
const START: &[Call] = &[
    Call(libc::SYS_openat, Always),
    Call(libc::SYS_newfstatat, Always),
    Call(libc::SYS_readlink, Always),
    Call(libc::SYS_getdents64, Always),
    Call(libc::SYS_unlink, Always),
    // Directories of snapshots: each has its name when it is written, and one that is not is removed.
    Call(libc::SYS_mkdir, Always),
    Call(libc::SYS_rename, Always),
    Call(libc::SYS_rmdir, Always),
    Call(libc::SYS_flock, Always),
    Call(libc::SYS_geteuid, Always),
    Call(libc::SYS_fallocate, Always),
    Call(libc::SYS_memfd_create, Always),
    // Disks are locked. Descriptors: their flags, and another one for the same file.
    Call(libc::SYS_fcntl, OneOf(1, FCNTL)),
    Call(libc::SYS_eventfd2, Always),
    Call(libc::SYS_pipe2, Always),
    Call(libc::SYS_epoll_create1, Always),
    Call(libc::SYS_epoll_ctl, Always),
    Call(libc::SYS_ioctl, Masked(1, KVM_MASK, kvm(0))),
    // A new pseudo terminal.
    Call(libc::SYS_ioctl, OneOf(1, &[TIOCGPTN, TIOCSPTLCK])),
    Call(libc::SYS_ioctl, Masked(1, KVM_MASK, VHOST_SET_OWNER & KVM_MASK)),
    // Sockets to networks that others have made: of which kind they are.
    Call(libc::SYS_getsockopt, Always),
    // Taps that are set up already, and their addresses, by which their counters are known.
    Call(libc::SYS_ioctl, OneOf(1, &[TUNSETIFF, TUNGETIFF, TUNSETVNETHDRSZ, SIOCGIFHWADDR])),
    Call(
        libc::SYS_madvise,
        OneOf(2, &[word(libc::MADV_HUGEPAGE), word(libc::MADV_POPULATE_WRITE), word(libc::MADV_POPULATE_READ)]),
    ),
    // Disks that are block devices: their sectors.
    Call(libc::SYS_ioctl, OneOf(1, &[BLKPBSZGET])),
    // Which pages of a snapshot there are, before they are brought into the host's memory.
    Call(libc::SYS_ioctl, OneOf(1, &[PAGEMAP_SCAN])),
    // Guest memory that is bound to a node.
    Call(libc::SYS_mbind, OneOf(2, &[word(libc::MPOL_BIND)])),
    // The signal that interrupts vCPUs, and where each of them runs: a thread says so of itself.
    Call(libc::SYS_rt_sigaction, OneOf(0, &[SIGRTMIN])),
    Call(libc::SYS_sched_setaffinity, OneOf(0, &[0])),
    // Limits are asked for, and none is set.
    Call(libc::SYS_prlimit64, Null(2)),
    // A thread's own jail, from which there is no way back. The crate rustix asks where the vDSO is.
    Call(libc::SYS_prctl, OneOf(0, &[word(libc::PR_SET_NO_NEW_PRIVS), PR_GET_AUXV])),
    Call(libc::SYS_seccomp, Always),
    Call(libc::SYS_landlock_create_ruleset, Always),
    Call(libc::SYS_landlock_restrict_self, Always),
];

/// fcntl(2), but for what sends signals.
const FCNTL: &[u32] = &[
    word(libc::F_GETFL),
    word(libc::F_SETFL),
    word(libc::F_SETFD),
    word(libc::F_DUPFD_CLOEXEC),
    word(libc::F_OFD_GETLK),
    word(libc::F_OFD_SETLK),
];

/// Serves connections to a socket that is there: takes them, and never makes one.
const API: &[Call] = &[
    Call(libc::SYS_accept4, Always),
    Call(libc::SYS_epoll_wait, Always),
    Call(libc::SYS_epoll_ctl, Always),
    Call(libc::SYS_read, Always),
    Call(libc::SYS_recvfrom, Always),
    // The same with descriptors that a client hands over.
    Call(libc::SYS_recvmsg, Always),
    Call(libc::SYS_shutdown, Always),
    // A connection that is taken is looked at: whether it waits.
    Call(libc::SYS_fcntl, OneOf(1, &[word(libc::F_GETFL), word(libc::F_SETFL)])),
];

/// Gives up the socket when a signal ends a server whose VM is about to start.
const LEAVE: &[Call] = &[Call(libc::SYS_statx, Always), Call(libc::SYS_unlink, Always)];

/// What the kernel is to seem not to have, for kinds that start threads: the arguments of clone3 are in memory, where no filter can look.
/// glibc then starts its threads by clone.
const NO_CLONE3: &[Call] = &[Call(libc::SYS_clone3, Always)];

/// Runs the guest, having made its vCPU; backs memory that the guest will touch. Writes what the serial port is given. If KVM fails,
/// says where the guest was.
const VCPU: &[Call] = &[
    Call(
        libc::SYS_ioctl,
        // Routes: the I/O APIC of VMs with many vCPUs.
        OneOf(
            1,
            &[
                KVM_RUN,
                KVM_SET_GSI_ROUTING,
                KVM_KVMCLOCK_CTRL,
                KVM_GET_SREGS,
                KVM_SET_SREGS,
                KVM_GET_REGS,
                KVM_SET_REGS,
                // What else a vCPU is, when it is saved.
                KVM_GET_MSRS,
                KVM_GET_LAPIC,
                KVM_GET_MP_STATE,
                KVM_GET_VCPU_EVENTS,
                KVM_GET_DEBUGREGS,
                KVM_GET_TSC_KHZ,
                KVM_GET_XSAVE,
                KVM_GET_XCRS,
            ],
        ),
    ),
    Call(libc::SYS_madvise, OneOf(2, &[word(libc::MADV_POPULATE_WRITE)])),
];

/// Waits for notifications, reads and writes the open file. Tells a tap what its driver can do. Gives up what a guest does not need.
const DEVICE: &[Call] = &[
    Call(libc::SYS_epoll_wait, Always),
    Call(libc::SYS_epoll_pwait, Always),
    Call(libc::SYS_read, Always),
    Call(libc::SYS_readv, Always),
    Call(libc::SYS_pread64, Always),
    Call(libc::SYS_preadv, Always),
    Call(libc::SYS_pwrite64, Always),
    Call(libc::SYS_pwritev, Always),
    Call(libc::SYS_lseek, Always),
    // And which of its queues are used.
    Call(libc::SYS_ioctl, OneOf(1, &[TUNSETOFFLOAD, TUNSETQUEUE])),
    // Whether a tap that takes no frames is switched off.
    Call(libc::SYS_ppoll, Always),
    // A socket to a network, when its device goes.
    Call(libc::SYS_shutdown, Always),
    Call(libc::SYS_fallocate, Always),
    Call(libc::SYS_fdatasync, Always),
    Call(libc::SYS_fsync, Always),
    // Guest memory in a memfd.
    Call(libc::SYS_madvise, OneOf(2, &[word(libc::MADV_REMOVE)])),
];

/// Besides what any device does: tells a ring that there is something in it, and waits for what is over. What is in it no filter sees:
/// the ring takes reads, writes and flushes of one file only (devices/virtio/block/ring.rs), and none can be made here.
const DISK: &[Call] = &[
    Call(libc::SYS_io_uring_enter, OneOf(3, &[0, IORING_ENTER_GETEVENTS])),
    // A disk that is made larger. It has its file's content in its hands anyway.
    Call(libc::SYS_ftruncate, Always),
];

/// What a server's owner makes for those.
const RING: &[Call] = &[
    Call(libc::SYS_io_uring_setup, Always),
    Call(
        libc::SYS_io_uring_register,
        OneOf(1, &[IORING_REGISTER_FILES, IORING_REGISTER_RESTRICTIONS, IORING_REGISTER_ENABLE_RINGS]),
    ),
];

/// Besides what any device does: takes connections of programs of this host, and connects to them. No filter sees to which: a path
/// is in memory. No other kind of socket can be had.
const VSOCK: &[Call] = &[
    Call(libc::SYS_accept4, Always),
    Call(libc::SYS_socket, OneOf(0, &[word(libc::AF_UNIX)])),
    Call(libc::SYS_connect, Always),
    Call(libc::SYS_epoll_ctl, Always),
];

/// Besides what any device does: takes connections to a socket that is there, and asks whether somebody is at a pseudo terminal.
const CONSOLE: &[Call] = &[
    Call(libc::SYS_accept4, Always),
    Call(libc::SYS_epoll_ctl, Always),
    Call(libc::SYS_poll, Always),
    Call(libc::SYS_ppoll, Always),
];

/// Hands queues over to the host's kernel and takes them back. What the kernel then does it does to this process's memory.
const VHOST: &[Call] = &[
    Call(libc::SYS_epoll_wait, Always),
    Call(libc::SYS_epoll_pwait, Always),
    Call(libc::SYS_read, Always),
    Call(
        libc::SYS_ioctl,
        OneOf(
            1,
            &[
                TUNSETOFFLOAD,
                TUNSETQUEUE,
                VHOST_SET_FEATURES,
                VHOST_SET_VRING_NUM,
                VHOST_SET_VRING_ADDR,
                VHOST_SET_VRING_BASE,
                VHOST_GET_VRING_BASE,
                VHOST_NET_SET_BACKEND,
            ],
        ),
    ),
];

/// What a server's owner makes for those.
const LISTENER: &[Call] = &[
    // Its mode, which lets nobody else connect.
    Call(libc::SYS_fchmod, OneOf(1, &[0o600])),
    Call(libc::SYS_bind, Always),
    Call(libc::SYS_listen, Always),
];

/// Reads standard input, until nobody wants it any more.
const SERIAL_INPUT: &[Call] =
    &[Call(libc::SYS_poll, Always), Call(libc::SYS_ppoll, Always), Call(libc::SYS_read, Always)];

/// Reads the files that firmware is given.
const FW_CFG: &[Call] = &[Call(libc::SYS_read, Always), Call(libc::SYS_pread64, Always), Call(libc::SYS_lseek, Always)];

/// Changes the mappings of held memory, as any thread may, and adds KVM's slot for it.
const MEMORY: &[Call] = &[
    Call(libc::SYS_ioctl, OneOf(1, &[KVM_SET_USER_MEMORY_REGION])),
    Call(libc::SYS_madvise, OneOf(2, &[word(libc::MADV_DONTDUMP), word(libc::MADV_HUGEPAGE)])),
];

/// Reads which pages there are, and where a file has data; writes what is in them to files that are open. Makes disks safe.
const SNAPSHOT: &[Call] = &[
    Call(libc::SYS_ioctl, OneOf(1, &[PAGEMAP_SCAN])),
    Call(libc::SYS_pread64, Always),
    Call(libc::SYS_lseek, Always),
    Call(libc::SYS_pwrite64, Always),
    Call(libc::SYS_fsync, Always),
    Call(libc::SYS_fdatasync, Always),
];

/// Reads the self-pipe of the crate signal-hook, and ends the process by a signal that nobody hears, which a keeper may have passed on.
const SIGNALS: &[Call] = &[
    Call(libc::SYS_read, Always),
    Call(libc::SYS_recvfrom, Always),
    Call(
        libc::SYS_rt_sigaction,
        OneOf(0, &[word(libc::SIGTERM), word(libc::SIGINT), word(libc::SIGHUP), word(libc::SIGUSR1)]),
    ),
];

/// All that a thread of `kind` may call.
pub(super) fn of(kind: Kind) -> impl Iterator<Item = Call> {
    let own: &[&[Call]] = match kind {
        Kind::Vmm => &[VMM],
        Kind::VmmWithSocket => &[VMM, REMOVE],
        Kind::Vcpu => &[VCPU],
        Kind::Device => &[DEVICE],
        Kind::Disk => &[DEVICE, DISK],
        Kind::Vsock => &[DEVICE, VSOCK],
        Kind::Console => &[DEVICE, CONSOLE],
        Kind::Vhost => &[VHOST],
        Kind::SerialInput => &[SERIAL_INPUT],
        Kind::FwCfg => &[FW_CFG],
        Kind::Signals => &[SIGNALS],
        Kind::ServerSignals => &[SIGNALS, LEAVE],
        Kind::Api => &[API],
        Kind::Memory => &[MEMORY],
        Kind::Snapshot => &[SNAPSHOT],
        // What is always allowed is in the lists above.
        Kind::Events | Kind::SerialOutput => &[],
        Kind::Owner => &[START, RING, LISTENER, VMM, DEVICE, DISK, VSOCK, VHOST, SERIAL_INPUT],
    };
    // clone3 is allowed here, since of two answers the kernel takes the sterner one.
    EVERY.iter().chain(own.iter().copied().flatten()).chain(absent(kind)).copied()
}

/// What the kernel is to seem not to have, for a thread of `kind`.
pub(super) const fn absent(kind: Kind) -> &'static [Call] {
    match kind {
        Kind::Vmm | Kind::VmmWithSocket | Kind::Owner => NO_CLONE3,
        _ => &[],
    }
}

/// A constant of the C library, as a filter sees it.
const fn word(value: i32) -> u32 {
    value.cast_unsigned()
}

/// prctl(2), since Linux 6.4: what the kernel told the program at its start.
const PR_GET_AUXV: u32 = 0x4155_5856;

/// The first signal that the C library leaves to programs.
const SIGRTMIN: u32 = 34;

/// Guards of thread stacks, in glibc since 2.42.
const MADV_GUARD_INSTALL: u32 = 102;

const TCGETS: u32 = 0x5401;
const TCSETS: u32 = 0x5402;
const TIOCGPGRP: u32 = 0x540f;
const TIOCGPTN: u32 = 0x8004_5430;
const TIOCSPTLCK: u32 = 0x4004_5431;
const TCGETS2: u32 = 0x802c_542a;
const TCSETS2: u32 = 0x402c_542b;

const IORING_ENTER_GETEVENTS: u32 = 1;
const IORING_REGISTER_FILES: u32 = 2;
const IORING_REGISTER_RESTRICTIONS: u32 = 11;
const IORING_REGISTER_ENABLE_RINGS: u32 = 12;

const BLKPBSZGET: u32 = 0x127b;

const SIOCGIFHWADDR: u32 = 0x8927;
const TUNSETIFF: u32 = 0x4004_54ca;
const TUNSETOFFLOAD: u32 = 0x4004_54d0;
const TUNGETIFF: u32 = 0x8004_54d2;
const TUNSETVNETHDRSZ: u32 = 0x4004_54d8;
const TUNSETQUEUE: u32 = 0x4004_54d9;

/// `_IO(VHOST_VIRTIO, 0x01)`, and of those that a thread makes, `_IOW` with a `u64`, `struct vhost_vring_state`, `vhost_vring_addr` and
/// `vhost_vring_file`.
const VHOST_SET_OWNER: u32 = 0xaf01;
const VHOST_SET_FEATURES: u32 = 0x4008_af00;
const VHOST_SET_VRING_NUM: u32 = 0x4008_af10;
const VHOST_SET_VRING_ADDR: u32 = 0x4028_af11;
const VHOST_SET_VRING_BASE: u32 = 0x4008_af12;
const VHOST_GET_VRING_BASE: u32 = 0xc008_af12;
const VHOST_NET_SET_BACKEND: u32 = 0x4008_af30;

/// Where the number of a call has the letter of its device.
const KVM_MASK: u32 = 0xff00;

/// Number `number` of KVM's calls (`_IO(KVMIO, number)`).
const fn kvm(number: u32) -> u32 {
    0xae << 8 | number
}

/// The same with an argument that is written to the kernel (`_IOW`), as large as `T`.
const fn kvm_in<T>(number: u32) -> u32 {
    1 << 30 | size::<T>() << 16 | kvm(number)
}

/// The same with an argument that is read from the kernel (`_IOR`).
const fn kvm_out<T>(number: u32) -> u32 {
    2 << 30 | size::<T>() << 16 | kvm(number)
}

#[expect(clippy::cast_possible_truncation, reason = "structures of an ABI that has 14 bits for their size")]
const fn size<T>() -> u32 {
    size_of::<T>() as u32
}

const KVM_CREATE_VM: u32 = kvm(0x01);
const KVM_CHECK_EXTENSION: u32 = kvm(0x03);
const KVM_GET_VCPU_MMAP_SIZE: u32 = kvm(0x04);
const KVM_GET_SUPPORTED_CPUID: u32 = kvm_in::<kvm_cpuid2>(0x05) | kvm_out::<kvm_cpuid2>(0x05);
const KVM_CREATE_VCPU: u32 = kvm(0x41);
const KVM_SET_USER_MEMORY_REGION: u32 = kvm_in::<kvm_userspace_memory_region>(0x46);
const KVM_SET_GSI_ROUTING: u32 = kvm_in::<kvm_irq_routing>(0x6a);
const KVM_RUN: u32 = kvm(0x80);
const KVM_GET_REGS: u32 = kvm_out::<kvm_regs>(0x81);
const KVM_SET_REGS: u32 = kvm_in::<kvm_regs>(0x82);
const KVM_GET_SREGS: u32 = kvm_out::<kvm_sregs>(0x83);
const KVM_SET_SREGS: u32 = kvm_in::<kvm_sregs>(0x84);
const KVM_GET_MSRS: u32 = kvm_in::<kvm_msrs>(0x88) | kvm_out::<kvm_msrs>(0x88);
const KVM_GET_LAPIC: u32 = kvm_out::<kvm_lapic_state>(0x8e);
const KVM_GET_MP_STATE: u32 = kvm_out::<kvm_mp_state>(0x98);
const KVM_GET_VCPU_EVENTS: u32 = kvm_out::<kvm_vcpu_events>(0x9f);
const KVM_GET_DEBUGREGS: u32 = kvm_out::<kvm_debugregs>(0xa1);
const KVM_GET_TSC_KHZ: u32 = kvm(0xa3);
const KVM_GET_XSAVE: u32 = kvm_out::<kvm_xsave>(0xa4);
const KVM_GET_XCRS: u32 = kvm_out::<kvm_xcrs>(0xa6);
const KVM_SET_CPUID2: u32 = kvm_in::<kvm_cpuid2>(0x90);
const KVM_KVMCLOCK_CTRL: u32 = kvm(0xad);
