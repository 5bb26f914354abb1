//! A file as a stream of bytes, unpacked on the way.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Cursor, Read, Seek};
use std::rc::Rc;
use std::sync::Arc;

use crate::error::AppError;

/// A file that can be read more than once. `-` is standard input, which is kept in a temporary file.
#[derive(Debug)]
pub struct InputFile {
    /// As the person named it.
    pub name: String,
    content: Content,
    /// Its size as it lies on disk, in bytes.
    pub size_bytes: u64,
}

/// Where the bytes are.
#[derive(Debug)]
enum Content {
    File(std::fs::File),
    Memory(Arc<[u8]>),
}

/// Longest line that is read, in bytes: past it a quote was not closed.
const LINE_BYTES_MAX: u64 = 4 << 20;

impl InputFile {
    /// Opens a file.
    ///
    /// # Errors
    /// [`AppError::File`] where it cannot be read.
    pub fn open(path: &str) -> Result<InputFile, AppError> {
        let file = if path == "-" {
            let mut kept = tempfile::tempfile().map_err(|error| AppError::file("standard input", error))?;
            std::io::copy(&mut std::io::stdin().lock(), &mut kept)
                .map_err(|error| AppError::file("standard input", error))?;
            kept
        } else {
            std::fs::File::open(path).map_err(|error| AppError::file(path, error))?
        };
        let metadata = file.metadata().map_err(|error| AppError::file(path, error))?;
        if metadata.is_dir() {
            return Err(AppError::file(path, "it is a folder; name a file in it"));
        }
        if !metadata.is_file() {
            return Err(AppError::file(path, "it is no plain file; import - to read from a pipe"));
        }
        Ok(InputFile { name: path.to_owned(), content: Content::File(file), size_bytes: metadata.len() })
    }

    /// Takes bytes that are in memory.
    #[must_use]
    pub fn of_bytes(name: &str, bytes: &[u8]) -> InputFile {
        let size_bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        InputFile { name: name.to_owned(), content: Content::Memory(bytes.into()), size_bytes }
    }

    /// The unpacked bytes from the start. gzip and zstd are known by their first bytes, whatever the file is called.
    /// `read` counts packed bytes as they are taken, for a progress bar.
    pub(super) fn bytes(&self, read: &Rc<Cell<u64>>) -> Result<Box<dyn Read>, AppError> {
        let wrong = |error: std::io::Error| AppError::file(&self.name, error);
        let plain: Box<dyn Read> = match &self.content {
            Content::Memory(bytes) => Box::new(Cursor::new(Arc::clone(bytes))),
            Content::File(file) => {
                if file.metadata().map_err(wrong)?.len() != self.size_bytes {
                    return Err(AppError::file(
                        &self.name,
                        "it changes while it is read; import it when it is written",
                    ));
                }
                let mut file = file.try_clone().map_err(wrong)?;
                file.rewind().map_err(wrong)?;
                Box::new(file)
            }
        };
        let mut counted = BufReader::with_capacity(1 << 17, Counted { inner: plain, read: Rc::clone(read) });
        let magic = counted.fill_buf().map_err(wrong)?.get(..4).map(<[u8]>::to_vec).unwrap_or_default();
        Ok(match magic.as_slice() {
            [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(counted)),
            [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::stream::read::Decoder::with_buffer(counted).map_err(wrong)?),
            _ => Box::new(counted),
        })
    }
}

/// Counts the bytes that pass.
struct Counted<R> {
    inner: R,
    read: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read.set(self.read.get() + u64::try_from(count).unwrap_or(0));
        Ok(count)
    }
}

/// A file read as CSV.
pub(super) struct CsvLines {
    /// Gives the records.
    pub(super) reader: csv::Reader<LineGuard<BufReader<Box<dyn Read>>>>,
    /// Bytes taken since the last whole line; to be set to 0 after each.
    pub(super) since_line: Rc<Cell<u64>>,
    /// Packed bytes taken so far.
    pub(super) read: Rc<Cell<u64>>,
    /// What the reader's count of lines lacks.
    pub(super) lines_missed: u64,
}

impl CsvLines {
    /// Opens a file from its start.
    ///
    /// # Errors
    /// [`AppError::File`] where it cannot be read.
    pub(super) fn open(file: &InputFile, delimiter: u8, quoting: bool) -> Result<CsvLines, AppError> {
        let (read, since_line) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let mut bytes = BufReader::with_capacity(1 << 16, file.bytes(&read)?);
        // The reader counts one line too few where lines end in CRLF.
        let start = bytes.fill_buf().map_err(|error| AppError::file(&file.name, error))?;
        let first_end = start.iter().position(|byte| *byte == b'\n');
        let crlf = first_end.is_some_and(|end| end > 0 && start.get(end - 1) == Some(&b'\r'));
        let inner = LineGuard { inner: bytes, since_line: Rc::clone(&since_line) };
        let mut builder = csv::ReaderBuilder::new();
        let reader = builder.delimiter(delimiter).quoting(quoting).trim(csv::Trim::All).from_reader(inner);
        Ok(CsvLines { reader, since_line, read, lines_missed: u64::from(crlf) })
    }
}

/// Stops a reader that takes more than one line may have, before a missing quote makes it take the whole file.
pub(super) struct LineGuard<R> {
    inner: R,
    /// Bytes taken since the last whole line; its owner sets it to 0.
    since_line: Rc<Cell<u64>>,
}

impl<R: Read> Read for LineGuard<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.since_line.get() > LINE_BYTES_MAX {
            return Err(std::io::Error::other("a line is longer than 4 MiB; a quote is not closed"));
        }
        let count = self.inner.read(buffer)?;
        self.since_line.set(self.since_line.get() + u64::try_from(count).unwrap_or(0));
        Ok(count)
    }
}
