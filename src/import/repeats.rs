//! Which rows of a file repeat another exactly, found in bounded memory.
//!
//! A row without a job id is identified by its content and its ordinal among equal rows of the same file: two equal
//! rows are two jobs. Counting all rows by content would hold the whole file, so a first pass writes a short
//! fingerprint of each row to temporary files, one for each first byte; each is then sorted by itself. Only rows
//! that do repeat are counted in the second pass. A fingerprint that two unequal rows share costs a little memory
//! and nothing else, since the count is kept by the full hash.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};

/// The hash of a row's mapped columns.
pub type RowHash = [u8; 16];

/// The first pass: takes every row, then names those that may repeat.
#[derive(Debug)]
pub struct RepeatFinder {
    parts: Vec<BufWriter<File>>,
}

/// The second pass: the ordinal of each row among equal rows.
#[derive(Debug, Default)]
pub struct Ordinals {
    may_repeat: BTreeSet<u64>,
    seen: HashMap<RowHash, u32>,
}

const PARTS: usize = 64;

fn fingerprint(hash: &RowHash) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(hash.first_chunk::<8>().unwrap_or(&[0; 8]));
    u64::from_be_bytes(first)
}

impl RepeatFinder {
    /// A finder that has seen nothing.
    ///
    /// # Errors
    /// Where no temporary file can be made.
    pub fn new() -> std::io::Result<RepeatFinder> {
        let parts = (0..PARTS).map(|_| Ok(BufWriter::new(tempfile::tempfile()?))).collect::<std::io::Result<_>>()?;
        Ok(RepeatFinder { parts })
    }

    /// Takes a row.
    ///
    /// # Errors
    /// Where the disk for temporary files is full.
    pub fn take(&mut self, hash: &RowHash) -> std::io::Result<()> {
        let fingerprint = fingerprint(hash);
        let part = usize::try_from(fingerprint >> 58).unwrap_or(0);
        match self.parts.get_mut(part) {
            Some(part) => part.write_all(&fingerprint.to_be_bytes()),
            None => Ok(()),
        }
    }

    /// All rows were taken.
    ///
    /// # Errors
    /// Where a temporary file cannot be read.
    pub fn finish(self) -> std::io::Result<Ordinals> {
        let mut may_repeat = BTreeSet::new();
        for part in self.parts {
            let mut file = part.into_inner().map_err(std::io::IntoInnerError::into_error)?;
            file.rewind()?;
            let mut bytes = Vec::new();
            BufReader::new(file).read_to_end(&mut bytes)?;
            let mut fingerprints: Vec<u64> =
                bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_be_bytes(*bytes)).collect();
            fingerprints.sort_unstable();
            may_repeat.extend(fingerprints.windows(2).filter_map(|pair| match pair {
                [a, b] if a == b => Some(*a),
                _ => None,
            }));
        }
        Ok(Ordinals { may_repeat, seen: HashMap::new() })
    }
}

impl Ordinals {
    /// The ordinal of a row among equal rows so far, from 0. Every row must be asked for once, in any order.
    pub fn next(&mut self, hash: &RowHash) -> u32 {
        if !self.may_repeat.contains(&fingerprint(hash)) {
            return 0;
        }
        let seen = self.seen.entry(*hash).or_insert(0);
        let ordinal = *seen;
        *seen += 1;
        ordinal
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn ordinals_are_those_of_counting_every_row(rows in prop::collection::vec((0u8..4, 0u8..3, 0u8..3), 0..60)) {
            // Rows that share their fingerprint but not their hash are among them.
            let hashes: Vec<RowHash> = rows.iter().map(|(part, first, last)| {
                let mut hash = [0; 16];
                (hash[0], hash[7], hash[15]) = (*part * 64, *first, *last);
                hash
            }).collect();
            let mut finder = RepeatFinder::new().unwrap();
            hashes.iter().for_each(|hash| finder.take(hash).unwrap());
            let mut ordinals = finder.finish().unwrap();
            let mut counted: HashMap<RowHash, u32> = HashMap::new();
            for hash in &hashes {
                let count = counted.entry(*hash).or_insert(0);
                prop_assert_eq!(ordinals.next(hash), *count);
                *count += 1;
            }
        }
    }
}
