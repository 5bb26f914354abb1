//! Names that people give, checked once when they enter, and the numbers the database gives them.

use std::fmt;

/// Longest code, name or experiment that is taken, in bytes.
pub const LENGTH_BYTES_MAX: usize = 200;

macro_rules! code {
    ($(#[$doc:meta])* $name:ident, $extra:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(String);

        impl $name {
            #[doc = concat!("Takes a code: ASCII letters, digits and `", $extra, "`, a letter or digit first, at most 200 bytes.")]
            ///
            /// # Errors
            /// A sentence that says what is wrong and how to write it.
            pub fn parse(text: &str) -> Result<Self, String> {
                checked_code(text, $extra).map(|text| Self(text.to_owned()))
            }

            /// The code as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

code!(
    /// The code of a team, such as `search`. Lists of teams are ordered by it.
    TeamCode, "._+/-"
);
code!(
    /// What has a price: GPU model and profile, such as `h100-80gb/full` or `h100-80gb/1g.10gb`; or, until the price
    /// book is asked, whatever a source calls it, such as `NVIDIA H100 80GB HBM3` or `gres/gpu:h100`.
    SkuCode, "._+/-: ()"
);
code!(
    /// A pool: nodes that share prices.
    PoolName, "._+/-"
);
code!(
    /// A cluster of nodes.
    ClusterName, "._+/-"
);

impl TeamCode {
    /// The team of every job that no rule matches.
    #[must_use]
    pub fn unassigned() -> TeamCode {
        TeamCode("unassigned".to_owned())
    }
}

impl SkuCode {
    /// The SKU of a whole GPU of this model.
    #[must_use]
    pub fn full(gpu_model: &str) -> SkuCode {
        SkuCode(format!("{gpu_model}/full"))
    }
}

fn checked_code<'a>(text: &'a str, extra: &str) -> Result<&'a str, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || extra.contains(c);
    if text.is_empty() {
        Err("it is empty".to_owned())
    } else if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) || !text.chars().all(allowed) {
        Err(format!("{text:?} may hold only ASCII letters, digits and “{extra}”, and begins with a letter or digit"))
    } else {
        checked_length(text)
    }
}

/// Takes a name that people read, such as a team's: any script, no control characters, a letter or digit first,
/// and none of the words that spreadsheets and pipelines read as "nothing".
///
/// # Errors
/// A sentence that says what is wrong.
pub fn checked_name(text: &str) -> Result<&str, String> {
    if text.trim() != text || text.is_empty() {
        Err(format!("{text:?} is empty or has spaces around it"))
    } else if text.chars().any(char::is_control) {
        Err(format!("{text:?} holds a control character"))
    } else if !text.starts_with(char::is_alphanumeric) {
        Err(format!("{text:?} must begin with a letter or digit: a spreadsheet could run it as a formula"))
    } else if ["na", "n/a", "null", "nan", "none"].contains(&text.to_ascii_lowercase().as_str()) {
        Err(format!("{text:?} is read as “nothing” by spreadsheets; choose another name"))
    } else {
        checked_length(text)
    }
}

/// Takes a fact as a scheduler gives it: any text without control characters, at most 200 bytes.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn checked_fact(text: &str) -> Result<&str, String> {
    if text.chars().any(char::is_control) {
        Err(format!("{text:?} holds a control character"))
    } else {
        checked_length(text)
    }
}

fn checked_length(text: &str) -> Result<&str, String> {
    if text.len() > LENGTH_BYTES_MAX {
        Err(format!("it has {} bytes; at most {LENGTH_BYTES_MAX} are taken", text.len()))
    } else {
        Ok(text)
    }
}

macro_rules! key {
    ($(#[$doc:meta])* $name:ident, $integer:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $integer);
    };
}

key!(
    /// A node, or the stand-in for a pool whose jobs name no node.
    NodeId, i32
);
key!(
    /// A unit in the catalogue; 0 where an import names none.
    UnitId, i32
);
key!(
    /// A GPU, by its UUID.
    GpuId, i32
);
key!(
    /// A SKU with its slice counts.
    SkuId, i32
);
key!(
    /// A pool.
    PoolId, i32
);
key!(
    /// A team.
    TeamId, i32
);
key!(
    /// An experiment; 0 is "none named".
    ExperimentId, i32
);
key!(
    /// A distinct set of job facts.
    FactSetId, i32
);
key!(
    /// One attempt of a job; 0 is "no job".
    JobId, i64
);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_safe_in_every_file_and_page() {
        for good in ["ee9e8c", "h100-80gb/1g.10gb+me", "A100", "2team"] {
            assert_eq!(TeamCode::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "=1+1", "-x", "a b", "a,b", "a\n", "Zoë", "a\"b", "<script>"] {
            assert!(TeamCode::parse(bad).is_err(), "{bad:?}");
        }
        assert!(TeamCode::parse(&"x".repeat(201)).is_err());
    }

    #[test]
    fn a_name_may_be_of_any_script_but_not_a_formula() {
        for good in ["Zoë–量子🚀", "Vision, Robotics", "NLP \"core\""] {
            assert!(checked_name(good).is_ok(), "{good:?}");
        }
        for bad in ["=HYPERLINK(1)", "+1", "@x", "\t=1", "line1\nline2", " x", "NA", "null", "", "-2+3"] {
            assert!(checked_name(bad).is_err(), "{bad:?}");
        }
    }
}
