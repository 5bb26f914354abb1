//! Where GPU instances lie, and whether another would fit.

/// A run of memory slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placement {
    /// The first.
    pub start: u32,
    /// How many.
    pub size: u32,
}

/// A profile of GPU instances that a device knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its compute slices.
    pub compute_slices: u32,
    /// Most instances of it on one device.
    pub most: u32,
    /// Where instances of it may lie.
    pub placements: Vec<Placement>,
}

impl Placement {
    const fn overlaps(self, other: Placement) -> bool {
        self.start < other.start.saturating_add(other.size) && other.start < self.start.saturating_add(self.size)
    }
}

/// Whether an instance of any profile would fit beside those that exist: some placement of it is free, and so many compute
/// slices are left.
///
/// What a device has left without room for anything is stranded: no request can be answered with it.
#[must_use]
pub fn has_room(profiles: &[Profile], taken: &[Placement], compute_left: u32) -> bool {
    let free = |placement: &Placement| !taken.iter().any(|taken| taken.overlaps(*placement));
    profiles
        .iter()
        .filter(|profile| profile.compute_slices > 0 && profile.compute_slices <= compute_left)
        .any(|profile| profile.placements.iter().any(free))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An A30's 1g, 2g and 4g.
    fn a30() -> Vec<Profile> {
        let of = |compute_slices, most, starts: &[u32]| Profile {
            compute_slices,
            most,
            placements: starts.iter().map(|start| Placement { start: *start, size: compute_slices }).collect(),
        };
        vec![of(1, 4, &[0, 1, 2, 3]), of(2, 2, &[0, 2]), of(4, 1, &[0])]
    }

    #[test]
    fn room_is_a_free_placement_and_enough_compute() {
        let taken = |placements: &[(u32, u32)]| -> Vec<Placement> {
            placements.iter().map(|(start, size)| Placement { start: *start, size: *size }).collect()
        };
        assert!(has_room(&a30(), &[], 4));
        assert!(has_room(&a30(), &taken(&[(0, 2), (2, 1)]), 1));
        assert!(!has_room(&a30(), &taken(&[(0, 2), (2, 2)]), 0));
        let only_large = &a30()[1..];
        assert!(!has_room(only_large, &taken(&[(1, 1)]), 1), "two in a row are free, but only one slice is left");
        assert!(has_room(only_large, &taken(&[(1, 1)]), 3));
        assert!(!has_room(only_large, &taken(&[(1, 1), (2, 1)]), 2), "one is free on each side, and nothing fits");
    }

    #[test]
    fn an_h100_with_seven_small_instances_has_a_memory_slice_that_nothing_fits() {
        // 1g.10gb at 0 to 6, each with one of eight memory slices; 1g.20gb takes two.
        let small = Profile {
            compute_slices: 1,
            most: 7,
            placements: (0..7).map(|start| Placement { start, size: 1 }).collect(),
        };
        let taken: Vec<Placement> = small.placements.clone();
        assert!(!has_room(&[small], &taken, 0));
    }
}
