//! Names of MIG profiles, however they are spelled.
//!
//! The name of a slice is the key of its price, and never matched loosely: `1g.18gb` and `1g.18gb+me` are two things. What is read of it
//! here is only how many slices it must have.

use std::collections::BTreeSet;

/// A profile, as its name tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MigProfile {
    /// Compute slices of the compute instance: of `1c.3g.40gb`, 1.
    pub compute_slices: u32,
    /// Compute slices of the GPU instance: of `1c.3g.40gb`, 3.
    pub gpu_instance_slices: u32,
    /// Memory in GB, as the name says.
    pub memory_gb: u32,
    /// What it has besides, such as `me` for the media engines. What is not known to anybody is kept, too.
    pub attributes: BTreeSet<String>,
    /// The GPU's model, where the name holds one, as Slurm's types do.
    pub model: Option<String>,
}

impl MigProfile {
    /// Reads a name: of the driver (`1c.3g.40gb`, `1g.10gb+me`), of nvidia-smi (`MIG 3g.71gb`), of a Kubernetes resource
    /// (`nvidia.com/mig-1g.10gb.me`) or of a type of Slurm (`a100_3g.20gb`). `None` where it is none.
    #[must_use]
    pub fn parse(name: &str) -> Option<MigProfile> {
        let name = name.trim();
        let name = name.strip_prefix("MIG ").or_else(|| name.strip_prefix("nvidia.com/mig-")).unwrap_or(name).trim();
        let (model, name) = match name.rsplit_once('_') {
            Some((model, name)) => (Some(model.to_owned()), name),
            None => (None, name),
        };
        let (first, rest) = name.split_once('.')?;
        let (compute, gpu, rest) = match count(first, 'c') {
            Some(compute) => {
                let (gpu, rest) = rest.split_once('.')?;
                (Some(compute), count(gpu, 'g')?, rest)
            }
            None => (None, count(first, 'g')?, rest),
        };
        let (memory, attributes) = rest.split_once("gb")?;
        let separates = |letter: char| letter == '+' || letter == '.';
        if !(attributes.is_empty() || attributes.starts_with(separates) || attributes.starts_with('-')) {
            return None;
        }
        let attributes: BTreeSet<String> =
            attributes.split(separates).filter(|attribute| !attribute.is_empty()).map(str::to_owned).collect();
        let compute_slices = compute.unwrap_or(gpu);
        if model.as_deref() == Some("") || compute_slices == 0 || compute_slices > gpu {
            return None;
        }
        let memory_gb = number(memory)?;
        Some(MigProfile { compute_slices, gpu_instance_slices: gpu, memory_gb, attributes, model })
    }
}

fn count(text: &str, letter: char) -> Option<u32> {
    number(text.strip_suffix(letter)?)
}

fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn mig_03_each_spelling_is_read_as_what_it_is() {
        type Case<'a> = (&'a str, (u32, u32, u32), &'a [&'a str], Option<&'a str>);
        let cases: [Case<'_>; 12] = [
            ("1g.10gb", (1, 1, 10), &[], None),
            ("1g.10gb+me", (1, 1, 10), &["me"], None),
            ("1g.20gb", (1, 1, 20), &[], None),
            ("1c.3g.40gb", (1, 3, 40), &[], None),
            ("2c.3g.40gb", (2, 3, 40), &[], None),
            ("7g.79gb", (7, 7, 79), &[], None),
            ("1g.24gb+xyz", (1, 1, 24), &["xyz"], None),
            ("MIG 3g.71gb", (3, 3, 71), &[], None),
            ("nvidia.com/mig-1g.10gb.me", (1, 1, 10), &["me"], None),
            ("nvidia.com/mig-3g.40gb", (3, 3, 40), &[], None),
            ("a100_3g.20gb", (3, 3, 20), &[], Some("a100")),
            ("nvidia_h100_80gb_hbm3_4g.40gb", (4, 4, 40), &[], Some("nvidia_h100_80gb_hbm3")),
        ];
        for (spelled, (compute, gpu, memory), attributes, model) in cases {
            let read = MigProfile::parse(spelled).unwrap();
            assert_eq!((read.compute_slices, read.gpu_instance_slices, read.memory_gb), (compute, gpu, memory));
            assert_eq!(read.attributes.iter().map(String::as_str).collect::<Vec<_>>(), attributes, "{spelled}");
            assert_eq!(read.model.as_deref(), model);
        }
        for other in
            ["full", "remainder", "", "h100", "3g", "3g.40", "4c.3g.40gb", "0g.5gb", "g.5gb", "1g.5gbx", "_1g.5gb"]
        {
            assert_eq!(MigProfile::parse(other), None, "{other}");
        }
    }
}
