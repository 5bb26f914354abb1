//! Job facts as they are stored: canonical JSON, found by its SHA-256.

use std::collections::BTreeMap;

use gpuledger_domain::rules::JobFacts;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::AppError;

/// What is not known is left out, keys are in a fixed order, labels in their own: equal facts are equal bytes.
#[derive(Serialize, Deserialize)]
struct Body {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    cluster: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pool: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    user: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    account: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    partition: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    qos: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    gpus: i32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// The canonical JSON of facts and its SHA-256.
pub(crate) fn to_body(facts: &JobFacts) -> Result<(String, Vec<u8>), AppError> {
    let JobFacts { cluster, pool, user, account, partition, qos, namespace, name, gpus, labels } = facts.clone();
    let body = Body { cluster, pool, user, account, partition, qos, namespace, name, gpus, labels };
    let text =
        serde_json::to_string(&body).map_err(|error| AppError::Refused(format!("facts cannot be written: {error}")))?;
    let sha256 = Sha256::digest(text.as_bytes()).to_vec();
    Ok((text, sha256))
}

/// Facts from their canonical JSON.
pub(super) fn from_body(text: &str) -> Result<JobFacts, AppError> {
    let body: Body = serde_json::from_str(text)
        .map_err(|error| AppError::Refused(format!("stored facts cannot be read: {error}")))?;
    let Body { cluster, pool, user, account, partition, qos, namespace, name, gpus, labels } = body;
    Ok(JobFacts { cluster, pool, user, account, partition, qos, namespace, name, gpus, labels })
}
