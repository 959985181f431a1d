// SPDX-License-Identifier: Apache-2.0
//! The protocol of flatboot-bench and the emulated host's init, over two virtio-serial ports.
//!
//! A frame is a 9-byte header (kind u8, sequence u32 LE, length u32 LE) and `length` bytes of body. The *control* port
//! carries orders to the init and reports and output back; the *stdin* port carries only input, so that a program which
//! does not read its input cannot hold up a signal. The sequence number is the command's: what a leftover process of an
//! earlier command still writes is not taken for the output of a later one.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Changes with every change of this module: an init of another build is refused, not misunderstood.
pub const VERSION: u32 = 2;
/// Name of the virtio-serial port for orders, reports and output.
pub const CONTROL_PORT: &str = "flatboot.control";
/// Name of the virtio-serial port for the program's input.
pub const STDIN_PORT: &str = "flatboot.stdin";
/// 9p mount tag of the machine's root.
pub const ROOT_TAG: &str = "flatboot-root";
/// Longest body, in bytes.
const MAX_BODY: u32 = 1 << 20;
/// Body size that fits, with its header, in one write to a virtio-serial port (32 KiB in `drivers/char/virtio_console.c`).
pub const CHUNK: usize = 32 * 1024 - HEADER;
const HEADER: usize = 9;

/// What a frame's body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// JSON of an [`Order`] or a [`Report`].
    Message,
    /// Bytes of the program's standard output.
    Stdout,
    /// Bytes of the program's standard error.
    Stderr,
    /// Bytes of the program's standard input; an empty body is its end.
    Stdin,
}

/// One frame.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// What the body is.
    pub kind: Kind,
    /// Number of the command that it belongs to; 0 for none.
    pub sequence: u32,
    /// The content.
    pub body: Vec<u8>,
}

/// From flatboot-bench to the init.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// The first order: what to mount before any program runs.
    Setup(Setup),
    /// Run a program.
    Start(Start),
    /// Send this signal to the running program.
    Signal(i32),
    /// The caller's terminal has a new size.
    Resize(Size),
}

/// From the init to flatboot-bench.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// The init runs and speaks this version.
    Ready(u32),
    /// Everything is mounted.
    SetUp,
    /// The init cannot do what it was told.
    Failed(String),
    /// The program ended.
    Exit(Exit),
}

/// What to mount.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Setup {
    /// 9p shares to mount read-write: tag and path.
    pub writable: Vec<(String, PathBuf)>,
    /// Block devices to put over a file's path: virtio serial and path.
    pub drives: Vec<(String, PathBuf)>,
}

/// A program to run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// Path, or a name to look up in PATH.
    pub program: OsString,
    /// Its arguments, without the program's name.
    pub args: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// A terminal of this size instead of pipes.
    pub terminal: Option<Size>,
}

/// Terminal size, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Height.
    pub rows: u16,
    /// Width.
    pub columns: u16,
}

/// How a program ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code; 128 + n after death by signal n.
    pub code: u8,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Message, Self::Stdout, Self::Stderr, Self::Stdin].into_iter().find(|kind| *kind as u8 == byte)
    }
}

impl Frame {
    /// The body as an [`Order`] or a [`Report`].
    pub fn message<T: DeserializeOwned>(&self) -> io::Result<T> {
        Ok(serde_json::from_slice(&self.body)?)
    }
}

/// Writes one frame, in one write call if the writer takes it whole.
pub fn write_frame(mut writer: impl Write, kind: Kind, sequence: u32, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).ok().filter(|length| *length <= MAX_BODY);
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "frame body above 1 MiB"))?;
    let mut frame = Vec::with_capacity(HEADER + body.len());
    frame.push(kind as u8);
    frame.extend_from_slice(&sequence.to_le_bytes());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(body);
    writer.write_all(&frame)
}

/// Writes an [`Order`] or a [`Report`].
pub fn write_message(writer: impl Write, sequence: u32, message: &impl Serialize) -> io::Result<()> {
    write_frame(writer, Kind::Message, sequence, &serde_json::to_vec(message)?)
}

/// Reads one frame; `None` at the end of the stream between two frames.
pub fn read_frame(mut reader: impl Read) -> io::Result<Option<Frame>> {
    let mut first = [0];
    loop {
        match reader.read(&mut first) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let kind = Kind::from_byte(first[0]).ok_or_else(|| invalid(format!("frame kind {}: 0 to 3 exist", first[0])))?;
    let (mut sequence, mut length) = ([0; 4], [0; 4]);
    reader.read_exact(&mut sequence)?;
    reader.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MAX_BODY {
        return Err(invalid(format!("frame body of {length} bytes: at most {MAX_BODY}")));
    }
    let mut body = vec![0; length as usize];
    reader.read_exact(&mut body)?;
    Ok(Some(Frame { kind, sequence: u32::from_le_bytes(sequence), body }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_written() {
        let mut bytes = Vec::new();
        for (n, kind) in [Kind::Message, Kind::Stdout, Kind::Stderr, Kind::Stdin].into_iter().enumerate() {
            write_frame(&mut bytes, kind, 7, &vec![0xa5; n * 1000]).unwrap();
        }
        let mut reader = bytes.as_slice();
        for (n, kind) in [Kind::Message, Kind::Stdout, Kind::Stderr, Kind::Stdin].into_iter().enumerate() {
            let frame = read_frame(&mut reader).unwrap().unwrap();
            assert_eq!(frame, Frame { kind, sequence: 7, body: vec![0xa5; n * 1000] });
        }
        assert!(read_frame(&mut reader).unwrap().is_none());
    }

    #[test]
    fn a_cut_frame_is_an_error() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, Kind::Stdout, 1, b"abc").unwrap();
        for end in 1..bytes.len() {
            assert!(read_frame(&bytes[..end]).is_err(), "cut after {end} bytes");
        }
    }

    #[test]
    fn hostile_headers_are_refused_before_allocation() {
        let too_long = [&[1, 0, 0, 0, 0][..], &u32::MAX.to_le_bytes()].concat();
        assert!(read_frame(too_long.as_slice()).is_err());
        assert!(read_frame([9; 9].as_slice()).is_err());
    }

    #[test]
    fn arguments_need_not_be_utf8() {
        use std::os::unix::ffi::OsStringExt;
        let start = Start {
            program: OsString::from_vec(vec![0x2f, 0xff]),
            args: vec![],
            env: vec![],
            cwd: PathBuf::from("/"),
            terminal: None,
        };
        let mut bytes = Vec::new();
        write_message(&mut bytes, 1, &Order::Start(start)).unwrap();
        let frame = read_frame(bytes.as_slice()).unwrap().unwrap();
        let Order::Start(back) = frame.message().unwrap() else { panic!("not a Start") };
        assert_eq!(back.program, OsString::from_vec(vec![0x2f, 0xff]));
    }
}
