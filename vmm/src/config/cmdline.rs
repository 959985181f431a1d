// SPDX-License-Identifier: Apache-2.0
//! The kernel's command line.

use std::fmt;

use crate::field::Field;

const CMDLINE: Field = Field::of("payload", "cmdline");

/// What is wrong with a kernel command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CmdlineError {
    /// More than the kernel copies.
    #[error(
        "{CMDLINE}: {length} bytes with flatboot's defaults: must be at most {} (the kernel's COMMAND_LINE_SIZE)",
        Cmdline::MAX_LENGTH
    )]
    TooLong {
        /// Bytes, defaults included.
        length: usize,
    },
    /// A byte that no parameter has.
    #[error("{CMDLINE}: has byte {byte:#04x} at {position}: must be printable ASCII, spaces and tabs")]
    Byte {
        /// The byte.
        byte: u8,
        /// How many are before it.
        position: usize,
    },
}

/// A kernel command line, flatboot's defaults included: printable ASCII, spaces and tabs, at most [`Cmdline::MAX_LENGTH`] bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cmdline(String);

/// What every guest gets unless the user names the same parameter.
const DEFAULTS: [&str; 4] = [
    // A VM above 4 GiB would zero a 64 MiB bounce buffer that none of our devices uses.
    "swiotlb=noforce",
    // The kernel's own delays write to port 0x80, where boot marks go.
    "io_delay=none",
    // There is no PCI bus: this saves the search for one through its ports.
    "pci=off",
    // A kernel that knows EFI would reset a hardware-reduced machine through it, and hang where there is none.
    "reboot=acpi",
];

/// Where a kernel's messages go, unless the user says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelConsole {
    /// To the serial port.
    Serial,
    /// To the virtio console.
    Virtio,
}

impl KernelConsole {
    const fn parameter(self) -> &'static str {
        match self {
            Self::Serial => "console=ttyS0",
            Self::Virtio => "console=hvc0",
        }
    }
}

impl Cmdline {
    /// Bytes that x86 kernels take, without the terminating zero (`COMMAND_LINE_SIZE` in `arch/x86/include/asm/setup.h`).
    pub const MAX_LENGTH: usize = 2047;

    /// What the help says about `--cmdline`.
    pub(super) fn help() -> String {
        format!(
            "Kernel command line\n\nflatboot puts {} and, with --serial tty or file, {} in front, or {} with --console \
             tty or file alone, each unless TEXT names the same parameter. At most {} bytes with them.",
            DEFAULTS.join(", "),
            KernelConsole::Serial.parameter(),
            KernelConsole::Virtio.parameter(),
            Self::MAX_LENGTH
        )
    }

    /// The user's parameters after flatboot's defaults; `console` says where the kernel's messages go.
    pub fn new(user: &str, console: Option<KernelConsole>) -> Result<Self, CmdlineError> {
        if let Some((position, byte)) = user.bytes().enumerate().find(|(_, byte)| !matches!(byte, b' '..=b'~' | b'\t'))
        {
            return Err(CmdlineError::Byte { byte, position });
        }

        // In front, because what follows a "--" is for init.
        let given = parameter_names(user);
        let defaults = console.map(KernelConsole::parameter).into_iter().chain(DEFAULTS);
        let mut words: Vec<_> = defaults.filter(|word| !given.contains(&name(word))).collect();
        words.extend(Some(user.trim()).filter(|user| !user.is_empty()));
        let text = words.join(" ");

        let length = text.len();
        if length > Self::MAX_LENGTH { Err(CmdlineError::TooLong { length }) } else { Ok(Self(text)) }
    }

    /// The text, without a terminating zero.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text and a terminating zero, as the guest finds it.
    #[must_use]
    pub fn to_bytes_with_nul(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() + 1);
        bytes.extend_from_slice(self.0.as_bytes());
        bytes.push(0);
        bytes
    }
}

impl fmt::Display for Cmdline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The names of the kernel's parameters: of the words (`next_arg()` in `lib/cmdline.c`: double quotes hold spaces) before a `--`.
fn parameter_names(cmdline: &str) -> Vec<String> {
    let mut quoted = false;
    let words = cmdline.split(|character: char| {
        quoted ^= character == '"';
        !quoted && character.is_ascii_whitespace()
    });
    words.take_while(|word| *word != "--").map(name).collect()
}

/// A parameter's name; the kernel takes `-` for `_`.
fn name(word: &str) -> String {
    let word = word.trim_start_matches('"');
    word.split_once('=').map_or(word, |(name, _)| name).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERIAL: Option<KernelConsole> = Some(KernelConsole::Serial);
    const VIRTIO: Option<KernelConsole> = Some(KernelConsole::Virtio);

    fn cmdline(user: &str, console: Option<KernelConsole>) -> String {
        Cmdline::new(user, console).unwrap().to_string()
    }

    #[test]
    fn defaults_come_first_unless_the_user_names_them() {
        for (user, console, expected) in [
            ("", None, "swiotlb=noforce io_delay=none pci=off reboot=acpi"),
            ("quiet", SERIAL, "console=ttyS0 swiotlb=noforce io_delay=none pci=off reboot=acpi quiet"),
            ("quiet", VIRTIO, "console=hvc0 swiotlb=noforce io_delay=none pci=off reboot=acpi quiet"),
            ("\tquiet  ro ", None, "swiotlb=noforce io_delay=none pci=off reboot=acpi quiet  ro"),
            ("console=tty0", SERIAL, "swiotlb=noforce io_delay=none pci=off reboot=acpi console=tty0"),
            (
                "swiotlb=force io-delay=udelay",
                SERIAL,
                "console=ttyS0 pci=off reboot=acpi swiotlb=force io-delay=udelay",
            ),
            ("pci=conf1", None, "swiotlb=noforce io_delay=none reboot=acpi pci=conf1"),
            (
                "a=\"b io_delay=x\" \"swiotlb=1\"",
                None,
                "io_delay=none pci=off reboot=acpi a=\"b io_delay=x\" \"swiotlb=1\"",
            ),
            ("-- io_delay=x", None, "swiotlb=noforce io_delay=none pci=off reboot=acpi -- io_delay=x"),
            (
                "xio_delay=1 io_delayed",
                None,
                "swiotlb=noforce io_delay=none pci=off reboot=acpi xio_delay=1 io_delayed",
            ),
        ] {
            assert_eq!(cmdline(user, console), expected);
        }
    }

    #[test]
    fn the_help_names_every_default() {
        let help = Cmdline::help();
        for word in cmdline("", SERIAL).split(' ').chain(cmdline("", VIRTIO).split(' ')) {
            assert!(help.contains(word), "{word}: {help}");
        }
    }

    #[test]
    fn the_length_counts_the_defaults() {
        let defaults = cmdline("", SERIAL).len() + 1;
        let fits = "x".repeat(Cmdline::MAX_LENGTH - defaults);
        assert_eq!(Cmdline::new(&fits, SERIAL).unwrap().to_bytes_with_nul().len(), 2048);
        let error = Cmdline::new(&format!("{fits}x"), SERIAL).unwrap_err();
        assert_eq!(
            error.to_string(),
            "payload.cmdline: 2048 bytes with flatboot's defaults: must be at most 2047 (the kernel's COMMAND_LINE_SIZE)"
        );
    }

    #[test]
    fn only_printable_ascii() {
        for (user, byte, position) in [("a\nb", 0x0a, 1), ("ab\0", 0, 2), ("é", 0xc3, 0), ("\x7f", 0x7f, 0)] {
            let error = Cmdline::new(user, None).unwrap_err();
            assert_eq!(error, CmdlineError::Byte { byte, position });
        }
        assert_eq!(
            Cmdline::new("a\nb", None).unwrap_err().to_string(),
            "payload.cmdline: has byte 0x0a at 1: must be printable ASCII, spaces and tabs"
        );
    }
}
