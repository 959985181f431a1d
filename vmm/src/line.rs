// SPDX-License-Identifier: Apache-2.0
//! A line that is put together without allocating, as a signal handler must.

/// Text of 256 bytes at most. What does not fit is cut.
#[derive(Debug)]
pub struct Line {
    bytes: [u8; 256],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; 256], length: 0 }
    }
}

impl Line {
    /// Adds `text`.
    pub fn text(&mut self, text: &str) {
        self.raw(text.as_bytes());
    }

    /// Adds `bytes`, whatever they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        let room = self.bytes.iter_mut().skip(self.length);
        self.length += room.zip(bytes).map(|(to, from)| *to = *from).count();
    }

    /// Adds `number` in hexadecimal.
    pub fn hexadecimal(&mut self, number: u64) {
        self.text("0x");
        self.digits(number, 16);
    }

    /// Adds `number` in decimal.
    pub fn decimal(&mut self, number: u64) {
        self.digits(number, 10);
    }

    fn digits(&mut self, number: u64, base: u64) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        // 64 bits are 20 decimal digits.
        let mut reversed = [0; 20];
        let (mut left, mut count) = (number, 0);
        for slot in &mut reversed {
            *slot = usize::try_from(left % base).ok().and_then(|digit| DIGITS.get(digit)).copied().unwrap_or(b'?');
            (left, count) = (left / base, count + 1);
            if left == 0 {
                break;
            }
        }
        for digit in reversed.iter().take(count).rev() {
            self.raw(&[*digit]);
        }
    }

    /// What there is so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_long_lines() {
        for (number, hexadecimal, decimal) in [
            (0, "0x0", "0"),
            (0xf, "0xf", "15"),
            (257, "0x101", "257"),
            (0x1234_5678_9abc_def0, "0x123456789abcdef0", "1311768467463790320"),
            (u64::MAX, "0xffffffffffffffff", "18446744073709551615"),
        ] {
            let mut line = Line::default();
            line.hexadecimal(number);
            line.text(" ");
            line.decimal(number);
            assert_eq!(std::str::from_utf8(line.bytes()), Ok(format!("{hexadecimal} {decimal}").as_str()));
        }
        let mut line = Line::default();
        (0..100).for_each(|_| line.text("abcdef"));
        assert_eq!(line.bytes().len(), 256);
    }
}
