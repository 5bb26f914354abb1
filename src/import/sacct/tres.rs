//! Trackable resources as Slurm writes them: `cpu=8,gres/gpu=2,gres/gpu:a100=2,mem=64G`.

use crate::import::job_record::GPUS_MAX;

/// What Slurm calls a GPU without a type.
pub(crate) const UNTYPED: &str = "gpu";
/// What Slurm calls a part of a shared GPU.
const SHARD: &str = "shard";
/// What Slurm calls percents of a GPU that is shared by MPS.
const MPS: &str = "mps";

/// GPUs of one type: what Slurm calls it, and how many.
pub(super) type GpuCount<'a> = (&'a str, i32);

/// What is held of one resource: the total, and the types, which are a part of it.
struct Counts<'a> {
    untyped: &'static str,
    total: Option<i32>,
    types: Vec<GpuCount<'a>>,
}

impl<'a> Counts<'a> {
    const fn of(untyped: &'static str) -> Counts<'a> {
        Counts { untyped, total: None, types: Vec::new() }
    }

    /// Takes note of an entry, which may be told twice; gives the other count where it was told otherwise.
    fn note(&mut self, kind: Option<&'a str>, count: i32) -> Option<i32> {
        let known = match kind {
            None => self.total.replace(count),
            Some(kind) => match self.types.iter().find(|(known, _)| *known == kind) {
                Some((_, known)) => Some(*known),
                None => {
                    self.types.push((kind, count));
                    None
                }
            },
        };
        known.filter(|known| *known != count)
    }

    /// The types, and what the total has more, which is untyped.
    fn once(self, tres: &str) -> Result<Vec<GpuCount<'a>>, String> {
        let Counts { untyped, total, mut types } = self;
        let typed: i32 = types.iter().map(|(_, count)| *count).fold(0, i32::saturating_add);
        match total {
            Some(total) if total < typed => {
                return Err(format!("“{tres}” tells gres/{untyped}={total} in all, but {typed} by type"));
            }
            Some(total) if total > typed => add(&mut types, (untyped, total - typed)),
            _ => {}
        }
        types.retain(|(_, count)| *count > 0);
        Ok(types)
    }
}

/// Adds GPUs to those of their type.
fn add<'a>(counts: &mut Vec<GpuCount<'a>>, (kind, more): GpuCount<'a>) {
    match counts.iter_mut().find(|(known, _)| *known == kind) {
        Some((_, count)) => *count = count.saturating_add(more),
        None => counts.push((kind, more)),
    }
}

/// The GPUs in a list of resources, by type in the order told, and behind them its shards. Typed entries are a part of
/// the untyped total: with both, the types count, and what the total has more is untyped. `gres/gpumem` and
/// `gres/gpuutil` are no counts.
///
/// # Errors
/// A sentence where the list cannot be read, or contradicts itself.
pub(super) fn gpus(tres: &str) -> Result<Vec<GpuCount<'_>>, String> {
    let (mut whole, mut shards, mut shares) = (Counts::of(UNTYPED), Counts::of(SHARD), false);
    if !tres.contains("gres/") {
        return Ok(Vec::new());
    }
    for entry in tres.split(',').filter(|entry| !entry.is_empty()) {
        let Some(gres) = entry.strip_prefix("gres/") else { continue };
        let (name, count) = gres.split_once('=').ok_or_else(|| format!("“{entry}” is no NAME=COUNT"))?;
        let (counts, kind) = match name.split_once(':') {
            Some((UNTYPED, kind)) => (&mut whole, Some(kind)),
            Some((SHARD, _)) => (&mut shards, Some(name)),
            None if name == UNTYPED => (&mut whole, None),
            None if name == SHARD => (&mut shards, None),
            _ => {
                shares |= name == MPS || name.starts_with("mps:");
                continue;
            }
        };
        let count = self::count(count).ok_or_else(|| format!("“{entry}” is no count of GPUs"))?;
        if counts.note(kind, count).is_some() {
            return Err(format!("“{tres}” tells gres/{name} twice, and not the same"));
        }
    }
    let mut counts = whole.once(tres)?;
    shards.once(tres)?.into_iter().for_each(|shards| add(&mut counts, shards));
    if shares && counts.is_empty() {
        return Err(format!(
            "“{tres}” tells shares of GPUs by MPS, of which it cannot be said how much of a GPU they are"
        ));
    }
    Ok(counts)
}

fn count(text: &str) -> Option<i32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<i32>().ok().filter(|count| digits && *count <= GPUS_MAX)
}

/// The GPUs in the entries of `gres_detail`, one for each node: `gpu:h100:2(IDX:0-1),gpu:h200:4(IDX:2-5)`.
pub(super) fn gpus_of_detail(entries: &[&str]) -> Result<String, String> {
    let mut sums: std::collections::BTreeMap<&str, i32> = std::collections::BTreeMap::new();
    for entry in entries {
        let mut depth = 0i32;
        let outside = |c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ',' && depth == 0
        };
        for gres in entry.split(outside) {
            let gres = gres.split('(').next().unwrap_or_default();
            let mut parts = gres.split(':');
            if parts.next() != Some("gpu") {
                continue;
            }
            let (kind, number) = match (parts.next(), parts.next()) {
                (Some(number), None) => (UNTYPED, number),
                (Some(kind), Some(number)) => (kind, number),
                _ => return Err(format!("“{entry}” is no gres_detail")),
            };
            let number = count(number).ok_or_else(|| format!("“{entry}” is no gres_detail"))?;
            let sum = sums.entry(kind).or_default();
            *sum = sum.saturating_add(number);
        }
    }
    let texts: Vec<String> = sums
        .iter()
        .map(
            |(kind, count)| {
                if *kind == UNTYPED { format!("gres/gpu={count}") } else { format!("gres/gpu:{kind}={count}") }
            },
        )
        .collect();
    Ok(texts.join(","))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn gpus_in_alloc_tres_are_counted_once_job_01() {
        for (tres, right) in [
            ("billing=8,cpu=8,gres/gpu=2,gres/gpu:a100=2,mem=64G,node=1", vec![("a100", 2)]),
            ("cpu=4,gres/gpu:rtx2080ti=1,mem=8G,node=1", vec![("rtx2080ti", 1)]),
            ("cpu=4,gres/gpu=4,mem=8G,node=1", vec![("gpu", 4)]),
            ("cpu=8,gres/gpu=3,gres/gpu:a100=1,gres/gpu:a100_3g.20gb=2,node=1", vec![("a100", 1), ("a100_3g.20gb", 2)]),
            ("cpu=64,gres/gpu=8,node=4", vec![("gpu", 8)]),
            ("cpu=8,gres/shard=2,node=1", vec![("shard", 2)]),
            ("gres/shard=2,gres/shard:a100=2", vec![("shard:a100", 2)]),
            ("gres/shard=3,gres/gpu:shard=1,gres/shard:a100=2", vec![("shard", 2), ("shard:a100", 2)]),
            ("gres/gpu=3,gres/gpu:gpu=1", vec![("gpu", 3)]),
            ("gres/gpu=1,gres/mps=50", vec![("gpu", 1)]),
            ("cpu=192,billing=192,node=1", vec![]),
            ("cpu=00:56:24,gres/gpumem=40777023488,gres/gpuutil=100,mem=10G", vec![]),
            ("gres/gpu=5,gres/gpu:a100=2", vec![("a100", 2), ("gpu", 3)]),
            ("gres/gpu=0", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(gpus(tres).unwrap(), right, "{tres}");
        }
        for bad in [
            "gres/gpu=1,gres/gpu:a100=2",
            "gres/gpu=x",
            "gres/gpu",
            "gres/gpu=1,gres/gpu=2",
            "gres/gpu=-1",
            "gres/shard=1,gres/shard:a100=2",
            "gres/mps=50",
        ] {
            assert!(gpus(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn details_of_nodes_are_summed() {
        let detail = gpus_of_detail(&["gpu:h100:2(IDX:0-1),gpu:h200:4(IDX:2,4-5)", "gpu:h100:1(IDX:0)", "shard:2"]);
        assert_eq!(detail.unwrap(), "gres/gpu:h100=3,gres/gpu:h200=4");
        assert_eq!(gpus_of_detail(&["gpu:5"]).unwrap(), "gres/gpu=5");
        assert!(gpus_of_detail(&["gpu:"]).is_err());
    }
}
