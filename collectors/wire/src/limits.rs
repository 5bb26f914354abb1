//! How much one report may hold. A collector that has more sends several.

/// Most bytes of a body as it is sent, packed or not.
pub const PACKED_BYTES_MAX: usize = 4 << 20;
/// Most bytes of a body once unpacked.
pub const BODY_BYTES_MAX: usize = 32 << 20;
/// Most segments, those of the head counted too.
pub const SEGMENTS_MAX: usize = 20_000;
/// Most units.
pub const UNITS_MAX: usize = 4_096;
/// Most jobs.
pub const JOBS_MAX: usize = 8_192;
/// Most bytes of any text: a name, a UUID, a fact.
pub const TEXT_BYTES_MAX: usize = 200;
/// Most compute or memory slices of a GPU: those of any device are fewer.
pub const SLICES_MAX: u32 = 32;
