// SPDX-License-Identifier: Apache-2.0
//! Files of JSON, which are compressed by zstd where their names end in `.zst`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use crate::atomic_file;

/// How a frame of zstd begins (RFC 8878, section 3.1.1).
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// What `path` holds, unpacked if it is compressed, whatever its name: all of it, or one byte more than `most`.
pub(crate) fn read(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    unpacked(path, most + 1).with_context(|| format!("{}: cannot be read", path.display()))
}

/// The length in the directory would say nothing of a pipe, nor of what is compressed.
fn unpacked(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = BufReader::new(File::open(path)?);
    let mut bytes = Vec::new();
    if file.fill_buf()?.starts_with(&ZSTD) {
        zstd::Decoder::with_buffer(file)?.take(most).read_to_end(&mut bytes)?;
    } else {
        file.take(most).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Makes `path` hold `value`, all of it or nothing: a power cut leaves the old file or the new one.
pub(crate) fn write(value: &impl Serialize, path: &Path) -> anyhow::Result<()> {
    let written = || atomic_file::write(path, &bytes(value, path)?).map_err(anyhow::Error::from);
    written().map(drop).with_context(|| format!("{}: cannot be written", path.display()))
}

/// What a file at `path` is to hold.
pub(crate) fn bytes(value: &impl Serialize, path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    if path.extension().is_some_and(|end| end == "zst") {
        bytes = zstd::encode_all(&*bytes, zstd::DEFAULT_COMPRESSION_LEVEL)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_is_read_whatever_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let value = vec!["0123456789"; 1000];
        let [plain, packed] = ["a.json", "b.json.zst"].map(|name| {
            write(&value, &path(name)).unwrap();
            std::fs::read(path(name)).unwrap()
        });
        assert!(plain.starts_with(b"[\n") && packed.starts_with(&ZSTD) && packed.len() < plain.len() / 10);
        std::fs::write(path("c.json"), &packed).unwrap();
        for name in ["a.json", "b.json.zst", "c.json"] {
            assert_eq!(read(&path(name), 1 << 20).unwrap(), plain, "{name}");
            assert_eq!(read(&path(name), 9).unwrap(), plain[..10], "{name}");
        }
        std::fs::write(path("c.json"), &packed[..packed.len() - 1]).unwrap();
        assert!(read(&path("c.json"), 1 << 20).unwrap_err().to_string().ends_with("c.json: cannot be read"));
    }
}
