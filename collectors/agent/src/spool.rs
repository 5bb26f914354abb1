//! What is finished and not acknowledged, on disk, so that neither an outage of the service nor an end of the agent loses it.
//!
//! Finished segments are kept as reports that stand by themselves, each in a frame: mark, length and CRC-32C, then the report, packed.
//! Frames are added to files that are never changed, only added to by the start that made them, and removed once all of their reports were
//! answered. Removing the file is the acknowledgement: between an answer and it, the agent may end, and the report is sent again, which
//! the service knows. What was open is kept beside them in one file that is replaced whole, and becomes a report at the next start.
//!
//! What cannot be read is passed over to the next frame, counted, and kept for people to look at; it does not hold up the rest. Some space
//! is held in reserve, so that a disk that others fill takes what is finished for some days more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gpuledger_wire::{Epoch, RecordName, Report};
use serde::{Deserialize, Serialize};

use crate::segments::name_of;

/// A report's place: its file, then where its frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    file: u64,
    offset: u64,
}

/// The reports on disk, and the one file that is written.
#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    limit_bytes: u64,
    /// Lengths of packed reports, by place.
    reports: BTreeMap<Place, u32>,
    current: Option<(u64, File, u64)>,
    next_file: u64,
    bytes: u64,
    // Held for as long as this is: two agents must not share a folder.
    _lock: File,
}

/// What was found at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Reports that were not acknowledged, that of what was open included.
    pub reports: usize,
    /// Bytes at the end of a file whose frame was never finished: its writing was cut off.
    pub torn_bytes: u64,
    /// Other bytes that could not be read. The file was copied aside.
    pub damaged_bytes: u64,
    /// Files that the disk does not give, or that find no room as finished. They are left for the next start.
    pub left_files: usize,
}

/// A report as it is on disk: whoever knows reports can read it as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The report.
    #[serde(flatten)]
    pub report: Report,
    /// Whether the service had said, when it was made, that its clock is off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clock_is_off: bool,
}

/// What became of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Whether its finished segments are on disk.
    pub finished: bool,
    /// What could not be written, and why.
    pub failures: Vec<String>,
}

const MARK: [u8; 4] = *b"GLS1";
/// Mark, length, checksum.
const HEADER: usize = 12;
/// The next report goes into another file once one is this large.
const FILE_BYTES: u64 = 1 << 20;
const OPEN: &str = "open";
/// How files begin that were open at an earlier start and found no room as finished.
const WAITS: &str = "open-";
const RESERVE: &str = "reserve";
const RESERVE_BYTES: usize = 1 << 20;
const LEVEL: i32 = 3;
/// Dead letters beyond this go into another file, and those of before it are let go.
const DEAD_LETTERS_BYTES: u64 = 16 << 20;

impl Spool {
    /// Opens a folder, which is made where it is not there, and takes up what is in it.
    ///
    /// # Errors
    /// Where the folder cannot be written, or another agent has it.
    pub fn open(folder: &Path, limit_bytes: u64) -> io::Result<(Spool, Found)> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let lock = private().open(folder.join("lock"))?;
        lock.try_lock().map_err(|_| io::Error::other("another agent has it"))?;
        let mut spool = Spool {
            folder: folder.to_owned(),
            limit_bytes,
            reports: BTreeMap::new(),
            current: None,
            next_file: 0,
            bytes: 0,
            _lock: lock,
        };
        let mut found = Found::default();
        let mut files = Vec::new();
        for entry in folder.read_dir()? {
            let name = entry?.file_name();
            files.extend(
                name.to_str().and_then(|name| name.strip_suffix(".spool")).and_then(|name| name.parse::<u64>().ok()),
            );
        }
        files.sort_unstable();
        for file in files {
            spool.next_file = file + 1;
            spool.take_up(file, &mut found)?;
        }
        spool.take_up_open(&mut found)?;
        spool.hold_reserve();
        found.reports = spool.reports.len();
        Ok((spool, found))
    }

    /// Where the frames of a file are.
    fn take_up(&mut self, file: u64, found: &mut Found) -> io::Result<()> {
        let path = self.path(file);
        let Ok(bytes) = std::fs::read(&path) else {
            found.left_files += 1;
            return Ok(());
        };
        let read = frames(&bytes);
        self.bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        found.torn_bytes += read.torn_bytes;
        found.damaged_bytes += read.damaged_bytes;
        if read.damaged_bytes > 0 {
            // Where there is no room for a copy, that must not keep the agent from its work.
            let _ = std::fs::copy(&path, self.folder.join(format!("{file:020}.damaged")));
        }
        self.reports.extend(read.frames.iter().map(|(offset, length)| (Place { file, offset: *offset }, *length)));
        if read.frames.is_empty() {
            self.remove(file)?;
        }
        Ok(())
    }

    /// What was open when an agent ended is finished, unless it was finished and kept just before. Where there is no room for it as such,
    /// it waits under another name for the next start.
    fn take_up_open(&mut self, found: &mut Found) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in self.folder.read_dir()? {
            names.extend(entry?.file_name().into_string().ok());
        }
        // A name that waits is never given again.
        let waits = names.iter().filter_map(|name| name.strip_prefix(WAITS)?.parse::<u64>().ok());
        let mut next = waits.max().map_or(0, |last| last + 1);
        for name in names
            .iter()
            .filter(|name| *name == OPEN || name.strip_prefix(WAITS).is_some_and(|rest| rest.parse::<u64>().is_ok()))
        {
            let path = self.folder.join(name);
            let Ok(bytes) = std::fs::read(&path) else {
                found.left_files += 1;
                continue;
            };
            let packed = frames(&bytes).frames.first().and_then(|frame| payload(&bytes, *frame));
            let Some(mut stored) = packed.and_then(|packed| unpacked(packed).ok()) else {
                found.damaged_bytes += wide(bytes.len());
                std::fs::rename(&path, self.folder.join(format!("{name}.damaged")))?;
                continue;
            };
            let report = &mut stored.report;
            let finished = self.names(report.epoch);
            report.segments.append(&mut report.head);
            report.segments.retain(|segment| !finished.contains(&name_of(segment)));
            if report.segments.is_empty() || self.keep(&stored).is_ok() {
                std::fs::remove_file(path)?;
                continue;
            }
            found.left_files += 1;
            if name == OPEN {
                std::fs::rename(&path, self.folder.join(format!("{WAITS}{next:020}")))?;
                next += 1;
            }
        }
        self.sync_folder()
    }

    /// Names of the segments of an epoch that are kept.
    fn names(&self, epoch: Epoch) -> BTreeSet<RecordName> {
        let reports = self.reports.keys().filter_map(|place| self.read(*place).ok()?.ok());
        let of_epoch = reports.map(|stored| stored.report).filter(|report| report.epoch == epoch);
        of_epoch.flat_map(|report| report.segments).map(|segment| name_of(&segment)).collect()
    }

    /// Keeps a report: what it has of finished segments, and what is open in the place of what was. What could not be kept as
    /// finished is kept with what is open, if that can be written.
    pub fn put(&mut self, report: &Report, clock_is_off: bool) -> Kept {
        let mut kept = Kept { finished: true, failures: Vec::new() };
        if !report.segments.is_empty() {
            // It has the number of the report before: without a head, it must not take the place of that one's.
            let sequence = report.sequence.saturating_sub(1);
            let finished = Report { head: Vec::new(), sequence, ..report.clone() };
            if let Err(error) = self.keep(&Stored { report: finished, clock_is_off }) {
                kept.failures.push(format!("what is finished stays in memory: {error}"));
                kept.finished = false;
            }
        }
        let open =
            Report { segments: if kept.finished { Vec::new() } else { report.segments.clone() }, ..report.clone() };
        if let Err(error) = self.keep_open(&Stored { report: open, clock_is_off }) {
            kept.failures.push(format!("what is open is not on disk as it is now: {error}"));
        }
        kept
    }

    /// Keeps a report of finished segments. When this returns, it outlives a loss of power.
    fn keep(&mut self, report: &Stored) -> io::Result<()> {
        let frame = framed(report)?;
        let length = wide(frame.len());
        if self.bytes.saturating_add(length) > self.limit_bytes {
            return Err(io::Error::other(format!("the spool holds {} bytes, and may not hold more", self.bytes)));
        }
        self.add(&frame).or_else(|error| {
            self.give_up_reserve().map_err(|_| error)?;
            self.add(&frame)
        })
    }

    fn give_up_reserve(&self) -> io::Result<()> {
        std::fs::remove_file(self.folder.join(RESERVE))
    }

    /// Adds a frame.
    fn add(&mut self, frame: &[u8]) -> io::Result<()> {
        let (file, mut writer, offset) = match self.current.take() {
            Some(current) => current,
            None => self.create()?,
        };
        if let Err(error) = writer.write_all(frame).and_then(|()| writer.sync_data()) {
            // Half a frame would be passed over; the next goes into another file in any case.
            let _ = writer.set_len(offset);
            if offset == 0 {
                let _ = std::fs::remove_file(self.path(file));
            }
            return Err(error);
        }
        let length = wide(frame.len());
        self.bytes += length;
        let packed = u32::try_from(frame.len().saturating_sub(HEADER)).unwrap_or(u32::MAX);
        self.reports.insert(Place { file, offset }, packed);
        let end = offset + length;
        self.current = (end < FILE_BYTES).then_some((file, writer, end));
        Ok(())
    }

    /// Takes space in advance, where it is not taken and there is some.
    fn hold_reserve(&self) {
        let path = self.folder.join(RESERVE);
        let held = || path.metadata().is_ok_and(|known| known.len() == wide(RESERVE_BYTES));
        let write = || private().truncate(true).open(&path)?.write_all(&vec![0; RESERVE_BYTES]);
        if !held() && write().is_err() {
            let _ = std::fs::remove_file(path);
        }
    }

    fn create(&mut self) -> io::Result<(u64, File, u64)> {
        let file = self.next_file;
        let writer = private().create_new(true).open(self.path(file))?;
        self.next_file += 1;
        self.sync_folder()?;
        Ok((file, writer, 0))
    }

    /// Keeps what is open, in the place of what was. Where it cannot be written, what was stays: it is less, and no less true.
    fn keep_open(&self, report: &Stored) -> io::Result<()> {
        let (path, new) = (self.folder.join(OPEN), self.folder.join("open.new"));
        let write = || {
            let mut file = private().truncate(true).open(&new)?;
            file.write_all(&framed(report)?)?;
            file.sync_data()?;
            std::fs::rename(&new, &path)?;
            self.sync_folder()
        };
        let written = write().or_else(|error| {
            self.give_up_reserve().map_err(|_| error)?;
            write()
        });
        written.inspect_err(|_| drop(std::fs::remove_file(&new)))
    }

    /// The first report after a place; the oldest of all for `None`.
    #[must_use]
    pub fn after(&self, place: Option<Place>) -> Option<Place> {
        match place {
            None => self.reports.keys().next().copied(),
            Some(place) => {
                let later = (std::ops::Bound::Excluded(place), std::ops::Bound::Unbounded);
                self.reports.range(later).next().map(|(place, _)| *place)
            }
        }
    }

    /// How many reports are kept.
    #[must_use]
    pub fn reports(&self) -> usize {
        self.reports.len()
    }

    /// How many bytes of files they take.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads a report; the inner error holds what could not be read as one.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn read(&self, place: Place) -> io::Result<Result<Stored, String>> {
        let length = usize::try_from(self.reports.get(&place).copied().unwrap_or(0)).unwrap_or(0);
        let mut file = File::open(self.path(place.file))?;
        file.seek(SeekFrom::Start(place.offset))?;
        let mut bytes = vec![0; HEADER.saturating_add(length)];
        file.read_exact(&mut bytes)?;
        let read = frames(&bytes);
        let packed = read.frames.first().and_then(|frame| payload(&bytes, *frame));
        Ok(packed.ok_or_else(|| "its checksum is wrong".to_owned()).and_then(unpacked))
    }

    /// Lets go of a report that was answered.
    ///
    /// # Errors
    /// Where its file could not be removed.
    pub fn done(&mut self, place: Place) -> io::Result<()> {
        self.reports.remove(&place);
        let of_file = Place { file: place.file, offset: 0 }..Place { file: place.file.saturating_add(1), offset: 0 };
        if self.reports.range(of_file).next().is_some() {
            return Ok(());
        }
        if self.current.as_ref().is_some_and(|(file, _, _)| *file == place.file) {
            self.current = None;
        }
        self.remove(place.file)
    }

    /// Lets go of a report that cannot be read any more. Its file is copied for people to look at.
    ///
    /// # Errors
    /// Where its file could not be removed.
    pub fn put_aside(&mut self, place: Place) -> io::Result<()> {
        // Where there is no room for a copy, that must not keep the others from being sent, which makes some.
        let _ = std::fs::copy(self.path(place.file), self.folder.join(format!("{:020}.damaged", place.file)));
        self.done(place)
    }

    /// Keeps a line for people to look at: what the service did not take, and why.
    ///
    /// # Errors
    /// Where it could not be written.
    pub fn dead_letter(&self, line: &str) -> io::Result<()> {
        let path = self.folder.join("dead-letters.jsonl");
        if path.metadata().is_ok_and(|known| known.len() > DEAD_LETTERS_BYTES) {
            std::fs::rename(&path, self.folder.join("dead-letters.old.jsonl"))?;
        }
        let mut file = private().append(true).open(path)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_data()
    }

    fn remove(&mut self, file: u64) -> io::Result<()> {
        let length = self.path(file).metadata().map_or(0, |known| known.len());
        std::fs::remove_file(self.path(file))?;
        self.bytes = self.bytes.saturating_sub(length);
        self.hold_reserve();
        self.sync_folder()
    }

    fn path(&self, file: u64) -> PathBuf {
        self.folder.join(format!("{file:020}.spool"))
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

/// A file that its owner alone may read: it holds names of people and jobs.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

fn framed(report: &Stored) -> io::Result<Vec<u8>> {
    let packed = zstd::encode_all(serde_json::to_vec(report)?.as_slice(), LEVEL)?;
    let length = u32::try_from(packed.len()).map_err(io::Error::other)?;
    let mut frame = Vec::with_capacity(HEADER.saturating_add(packed.len()));
    frame.extend(MARK);
    frame.extend(length.to_le_bytes());
    frame.extend(crc32c::crc32c_append(crc32c::crc32c(&length.to_le_bytes()), &packed).to_le_bytes());
    frame.extend(packed);
    Ok(frame)
}

fn unpacked(packed: &[u8]) -> Result<Stored, String> {
    let json = zstd::decode_all(packed).map_err(|error| error.to_string())?;
    serde_json::from_slice(&json).map_err(|error| error.to_string())
}

/// Frames of a file: where each begins and how long its report is; and what is none.
#[derive(Default)]
struct Frames {
    frames: Vec<(u64, u32)>,
    torn_bytes: u64,
    damaged_bytes: u64,
}

fn frames(bytes: &[u8]) -> Frames {
    let mut read = Frames::default();
    let (mut at, mut bad_from) = (0, None);
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        if let Some(length) = frame(rest) {
            read.damaged_bytes += bad_from.take().map_or(0, |from| wide(at - from));
            read.frames.push((wide(at), length));
            at += HEADER + usize::try_from(length).unwrap_or(0);
        } else {
            bad_from.get_or_insert(at);
            at += 1;
        }
    }
    if let Some(from) = bad_from {
        let rest = bytes.get(from..).unwrap_or_default();
        let torn = rest.len() < HEADER && MARK.starts_with(rest.get(..rest.len().min(4)).unwrap_or_default())
            || header(rest).is_some_and(|(length, _)| wide(rest.len()) < wide(HEADER) + u64::from(length));
        *(if torn { &mut read.torn_bytes } else { &mut read.damaged_bytes }) += wide(rest.len());
    }
    read
}

/// Length and checksum of the frame that begins here.
fn header(bytes: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    (bytes.first_chunk::<4>()? == &MARK).then_some(())?;
    Some((number(4)?, number(8)?))
}

/// The length of the report whose frame begins here and is whole.
fn frame(bytes: &[u8]) -> Option<u32> {
    let (length, checksum) = header(bytes)?;
    let packed = payload(bytes, (0, length))?;
    (crc32c::crc32c_append(crc32c::crc32c(&length.to_le_bytes()), packed) == checksum).then_some(length)
}

fn payload(bytes: &[u8], (offset, length): (u64, u32)) -> Option<&[u8]> {
    let from = usize::try_from(offset).ok()?.checked_add(HEADER)?;
    bytes.get(from..from.checked_add(usize::try_from(length).ok()?)?)
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
