// SPDX-License-Identifier: Apache-2.0
//! Standard output: how wide it is, and whether anyone listens.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Write};

use anstyle::{AnsiColor, Style};

pub(super) const BOLD: Style = Style::new().bold();
pub(super) const DIM: Style = Style::new().dimmed();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// Longer lines of prose are hard to read, however wide the screen.
const PROSE: usize = 100;

/// Where text is going to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// Characters in a line, if that is limited.
    pub width: Option<usize>,
}

impl Screen {
    /// Of standard output: what COLUMNS says, else the terminal's width. A file has room for everything.
    #[must_use]
    pub fn of_stdout() -> Self {
        let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        let terminal = || {
            let stdout = io::stdout();
            let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(stdout).ok()).flatten();
            size.map(|size| usize::from(size.ws_col))
        };
        Self { width: columns.or_else(terminal).filter(|width| *width > 0) }
    }
}

/// Writes `text` to standard output, without its styles where that is no terminal or wants none. A reader who has seen
/// enough and gone is no error.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = anstream::AutoStream::auto(io::stdout());
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// A loud line for each, or more if it is long.
pub(crate) fn warnings(texts: &[String], width: Option<usize>) -> String {
    let label = "WARNING";
    let line = |text: &String| hanging(&format!("{WARNING}{label}{WARNING:#}  "), label.len() + 2, text, width);
    let before = if texts.is_empty() { "" } else { "\n" };
    texts.iter().map(line).fold(before.to_owned(), |all, line| all + &line)
}

/// Something to read first.
pub(crate) fn bold(text: &str) -> String {
    format!("{BOLD}{text}{BOLD:#}")
}

/// A word to see from afar.
pub(crate) fn loud(word: &str, color: AnsiColor) -> String {
    let style = color.on_default().bold();
    format!("{style}{word}{style:#}")
}

/// Lines to read last.
pub(crate) fn faint(text: &str, width: Option<usize>) -> String {
    let lines = hanging("  ", 2, text, Some(width.unwrap_or(PROSE).min(PROSE)));
    format!("{DIM}{lines}{DIM:#}")
}

/// Labels in one column, what they say in the next; long lines go on below their beginning.
pub(crate) fn fields(fields: &[(String, String)], width: Option<usize>) -> String {
    let label_width = fields.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for (label, text) in fields {
        let first = format!("  {DIM}{label}{DIM:#}{:1$}  ", "", label_width - label.chars().count());
        out += &hanging(&first, label_width + 4, text, width);
    }
    out
}

/// `text` in lines of `width` at most, where words allow: the first behind `first`, the others behind `indent` blanks.
fn hanging(first: &str, indent: usize, text: &str, width: Option<usize>) -> String {
    // Narrower than this nothing can be read; the terminal then wraps as it likes.
    let room = width.map(|width| width.saturating_sub(indent)).filter(|room| *room >= 20).unwrap_or(usize::MAX);
    let mut out = first.to_owned();
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > room {
            let _ = write!(out, "\n{:indent$}", "");
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out += word;
        column += length;
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_fields_go_on_below_their_beginning() {
        let list = [("a".to_owned(), "one two three four five six".to_owned()), ("bcd".to_owned(), "x".to_owned())];
        let wrapped = anstream::adapter::strip_str(&fields(&list, Some(28))).to_string();
        assert_eq!(wrapped, "  a    one two three four\n       five six\n  bcd  x\n");
        let whole = anstream::adapter::strip_str(&fields(&list, None)).to_string();
        assert_eq!(whole, "  a    one two three four five six\n  bcd  x\n");
    }
}
